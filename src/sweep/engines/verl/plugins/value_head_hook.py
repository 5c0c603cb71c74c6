"""verl's critic loader, with an attention that is installed and a note of which parameters are fresh.

verl loads every critic with flash attention, and reports its absence as a missing package of another name. It draws
the value head from the process's own random state, which no seed reaches; `value_head.redraw` does that again with a
seed, and needs to know whether the checkpoint brought a trained head instead.

Source: verl utils/model.py, `load_valuehead_model`.
"""

from __future__ import annotations

from typing import Any

import verl.utils.model as verl_model

from sweep.engines.verl.plugins.value_head import FRESH_PARAMETERS

_own_loader = verl_model.load_valuehead_model


def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """The token-classification form of the model; models that have none are left to verl's own loader."""
    from transformers import AutoModelForTokenClassification

    if type(model_config) not in AutoModelForTokenClassification._model_mapping:
        return _own_loader(local_path, torch_dtype, model_config, trust_remote_code)
    model, loading = AutoModelForTokenClassification.from_pretrained(
        local_path,
        dtype=torch_dtype,
        config=model_config,
        attn_implementation=attention(model_config),
        trust_remote_code=trust_remote_code,
        output_loading_info=True,
    )
    setattr(model, FRESH_PARAMETERS, tuple(sorted(loading["missing_keys"])))
    return model


def attention(model_config: Any) -> str:
    """The attention that the configuration asks for, or scaled dot product where flash attention is not installed."""
    from transformers.utils import is_flash_attn_2_available

    wanted = getattr(model_config, "_attn_implementation", None) or "flash_attention_2"
    return "sdpa" if wanted == "flash_attention_2" and not is_flash_attn_2_available() else str(wanted)


verl_model.load_valuehead_model = load_valuehead_model
