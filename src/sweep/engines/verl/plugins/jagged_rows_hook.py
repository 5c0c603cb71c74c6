"""verl's selection of rows becomes ours; `verls_selection` is what it was."""

from __future__ import annotations

import verl.utils.tensordict_utils as tensordict_utils

from sweep.engines.verl.plugins.jagged_rows import select_rows

verls_selection = tensordict_utils.index_select_tensor_dict
tensordict_utils.index_select_tensor_dict = select_rows
