"""verl's fallback for log-probabilities without flash attention becomes ours; `verls_rows` is what it was."""

from __future__ import annotations

import verl.utils.torch_functional as torch_functional

from sweep.engines.verl.plugins.log_probs import log_probs

verls_rows = torch_functional.logprobs_from_logits_v2
torch_functional.logprobs_from_logits_v2 = log_probs
