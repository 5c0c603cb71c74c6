"""What of a training sample goes to the queue: what somebody reads there. Pure.

verl stores every column of the data set with each sample and hands all of them to the training workers at each of
their five calls a step, one Python object for each sample and column. By then the columns have done their work: the
prompt is tokens and the answer is a reward. Validation samples keep everything.

Source: the fields that verl selects in trainer/ppo/v1/trainer_base.py and replay_buffer.py, and that its FSDP engine
and losses read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRAINING = "train"
"""The partition of training samples."""

UNREAD = frozenset(
    {
        "ability",
        "agent_name",
        "data_source",
        "extra_info",
        "global_steps",
        "index",
        "interaction_kwargs",
        "metrics",
        "mm_processor_kwargs",
        "mm_processor_output",
        "session_id",
        "tools_kwargs",
    }
)
"""Never read from the queue by name, in no configuration."""
READ_BY_REWARD_MODELS = "raw_prompt"
EMPTY = ("multi_modal_inputs", "routed_experts")
"""Left out where they hold nothing: for text, and for models without experts."""


def for_training(sample: Mapping[str, Any], keeps_prompt: bool) -> dict[str, Any]:
    """The sample's fields that are read; `keeps_prompt` if a reward model will still need the chat."""
    unread = UNREAD if keeps_prompt else UNREAD | {READ_BY_REWARD_MODELS}
    return {
        name: value
        for name, value in sample.items()
        if name not in unread and not (name in EMPTY and (value is None or value == {}))
    }
