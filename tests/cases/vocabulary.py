"""One table from the words of the cases to ours: codes, ways, settings, and what a forbidden answer would look like.

Nothing here knows a case; a phrase that cannot be turned into a check is reported by the runner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

CODES = {
    "COMMUNICATION_BOUND": {"PCIE_BUSY", "PCIE_BOUND", "PCIE_SATURATED", "COMM_BOUND"},
    "INPUT_OR_ROLLOUT_BOUND": {"LOW_UTILISATION", "LOW_UTILIZATION", "LOW_GPU_UTIL", "DATALOADER_BOUND", "GPU_IDLE",
                               "INPUT_BOUND", "DATA_BOUND", "ROLLOUT_OR_INPUT_BOUND"},
    "MEMORY_FLUCTUATION": {"MEMORY_SWING", "MEMORY_SWINGS"},
    "LINK_DEGRADED": {"PCIE_DEGRADED", "DEGRADED_LINK"},
    "NON_FINITE": {"NAN", "NAN_METRIC", "INF"},
    "REWARD_ALL_ZERO": {"ALL_ZERO_REWARD", "ZERO_REWARD", "REWARD_ZERO", "REWARD_ALWAYS_ZERO", "NO_REWARD"},
    "REWARD_DROP": {"REWARD_COLLAPSE", "REWARD_FALL"},
    "REWARD_HACKING": {"REWARD_HACK", "VAL_DIVERGENCE", "TRAIN_VAL_GAP", "OVEROPTIMIZATION"},
    "REWARD_PLATEAU": {"PLATEAU", "REWARD_STALLED"},
    "REWARD_SATURATED": {"REWARD_CEILING"},
    "ZERO_ADVANTAGE": {"ZERO_ADVANTAGES", "NO_LEARNING_SIGNAL", "NO_SIGNAL"},
    "LR_ZERO": {"ZERO_LR"},
    "ENTROPY_COLLAPSE": {"ENTROPY_LOW"},
    "ENTROPY_EXPLOSION": {"ENTROPY_HIGH", "ENTROPY_BLOWUP"},
    "KL_EXPLOSION": {"KL_BLOWUP", "KL_OUT_OF_CONTROL"},
    "KL_HIGH": {"KL_TOO_HIGH"},
    "KL_TOO_LOW": {"KL_LOW"},
    "KL_NEGATIVE": {"NEGATIVE_KL"},
    "GRAD_EXPLOSION": {"GRADIENT_EXPLOSION", "EXPLODING_GRADIENT", "GRAD_EXPLODING"},
    "GRAD_VANISHING": {"VANISHING_GRADIENT", "GRADIENT_VANISHING", "GRAD_VANISH"},
    "GRAD_SPIKE": {"GRADIENT_SPIKE"},
    "GRAD_ELEVATED": {"GRADIENT_ELEVATED"},
    "LENGTH_SATURATED": {"LENGTH_SATURATION", "RESPONSE_TRUNCATED", "TRUNCATION", "LENGTH_EXPLOSION"},
    "LENGTH_COLLAPSE": {"RESPONSE_LENGTH_COLLAPSE", "SHORT_RESPONSES"},
    "CRITIC_LOSS_HIGH": {"VF_LOSS_HIGH", "VALUE_LOSS_HIGH"},
    "CRITIC_UNINFORMATIVE": {"CRITIC_POOR", "CRITIC_NOT_LEARNING", "LOW_EXPLAINED_VARIANCE", "CRITIC_USELESS"},
    "CRITIC_DIVERGING": {"CRITIC_DIVERGED", "CRITIC_DIVERGENCE", "VALUE_LOSS_EXPLOSION", "CRITIC_EXPLOSION"},
    "HIDDEN_OSCILLATION": {"OSCILLATION", "REWARD_OSCILLATION", "GRAD_OSCILLATION"},
    "ROLLOUT_MISMATCH": {"TRAIN_ROLLOUT_MISMATCH", "ROLLOUT_TRAIN_MISMATCH", "LOGPROB_MISMATCH"},
    "UPDATE_TOO_LARGE": {"CLIPFRAC_HIGH", "PPO_KL_JUMP", "PPO_KL_HIGH"},
    "STEP_TIME_JUMP": {"STEP_TIME_INCREASE", "SLOWDOWN"},
    "MEMORY_CREEP": {"MEMORY_LEAK"},
    "INSUFFICIENT_DATA": {"NOT_ENOUGH_DATA", "TOO_SHORT"},
    "WINDOW_EXCEEDS_RUN": {"RUN_TOO_SHORT"},
}  # fmt: skip
"""Our code to other spellings of the same thing."""

_OURS = {other: ours for ours, others in CODES.items() for other in others}

WAYS = {
    "raise": "raise|raising|increase|increasing|higher|larger|bigger|up",
    "lower": "lower|lowering|reduce|reducing|decrease|decreasing|halve|halving|smaller|downgrade|less",
    "set": "set|setting|enable|switch on|turn on",
    "check": "check",
}
"""What to do to a setting, in the words of the cases."""

KNOBS = {
    "kl_coef": ("kl_coef", "kl coefficient", "kl penalty"),
    "lr": ("learning rate", "lr"),
    "entropy_coeff": ("entropy_coeff", "entropy coefficient"),
    "gpu_memory_utilization": ("gpu_memory_utilization", "the utilization"),
    "max_num_seqs": ("max_num_seqs",),
    "max_num_batched_tokens": ("max_num_batched_tokens",),
    "clip_grad": ("clip_grad", "grad_clip", "gradient clip"),
    "ppo_micro_batch_size_per_gpu": ("gpu micro batch", "micro batch"),
    "max_response_length": ("max_response_length", "response length"),
    "n": ("rollout.n", "raise n"),
    "dataloader_num_workers": ("dataloader_num_workers",),
    "ulysses_sequence_parallel_size": ("ulysses_sequence_parallel_size", "ulysses"),
}
"""Last part of verl's key to the names that cases use."""

CONCEPTS = {
    "plateau": ("REWARD_PLATEAU", "REWARD_STALLED"),
    "vanishing": ("GRAD_VANISHING",),
    "exploding": ("GRAD_EXPLOSION",),
    "collapse": ("ENTROPY_COLLAPSE",),
    "cuda oom": ("CUDA_OOM",),
}
"""A word by which a case names a finding, to our codes."""

FORBIDDEN_TERMS = ("pcie", "data-loader", "data loader", "dataloader", "padding", "expandable_segments", "/tmp/ray")
"""Terms that the leading finding must not use where a case forbids advice about them."""


def code(text: str) -> str:
    """Our spelling of a code; conditions in brackets behind it do not count."""
    head = re.match(r"[A-Z][A-Z0-9_]+", text.strip())
    name = head[0] if head else text.strip()
    return _OURS.get(name, name)


def is_code(text: str) -> bool:
    """Whether the text is a code, with or without a condition behind it."""
    return re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?: \(.*\))?|OK|ERROR|WARN", text.strip()) is not None


def moves_in(text: str) -> set[tuple[str, str]]:
    """(way, last part of the key) for each setting that the text tells to move; a way holds for all that follow."""
    lowered = text.casefold()
    words = "|".join(f"(?P<{way}>\\b(?:{forms})\\b)" for way, forms in WAYS.items())
    marks = [(m.start(), m.lastgroup or "") for m in re.finditer(words, lowered)]
    found = set()
    for knob, names in KNOBS.items():
        for name in names:
            for place in (m.start() for m in re.finditer(rf"(?<![\w.]){re.escape(name)}(?!\w)", lowered)):
                before = [way for at, way in marks if at < place or name.startswith("raise ")]
                found |= {(before[-1], knob)} if before else set()
    return found


def moves_of(answer: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The answer's moves with settings by the last part of their key."""
    return {(way, str(key).rsplit(".", 1)[-1]) for way, key in answer.get("moves", ())}


Check = Callable[[Mapping[str, Any]], str | None]
"""What is wrong with an answer; None if nothing."""


def forbidden(phrase: str) -> list[Check]:
    """Checks that fail an answer that does what the phrase forbids; empty if the phrase means nothing to us."""
    lowered = phrase.casefold()
    checks: list[Check] = [_no_code(code(name)) for name in re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", phrase)]
    moves = moves_in(phrase)
    checks += [_no_move(move) for move in sorted(moves)]
    if re.search(r"\bhealthy\b|evidence of health", lowered):
        checks.append(lambda answer: "verdict is OK" if answer.get("verdict") == "OK" else None)
    if "same-config retry" in lowered:
        checks.append(lambda answer: "retries as it was" if answer.get("retry") == "same_config" else None)
    if re.search(r"average nan away|nanmean", lowered):
        checks.append(lambda answer: None if "NON_FINITE" in answer.get("codes", ()) else "NaN is not reported")
    if re.search(r"\boom of .*batch", lowered):
        checks += [_no_code("CUDA_OOM"), _no_class("OOM_GPU"), _no_batch_moved]
    if re.search(r"\bonly the version", lowered):
        checks.append(_not_versions_alone)
    first = re.search(r"(.+) as the first advice", lowered)
    if first:
        checks.append(_not_first(first[1]))
    if re.search(r"\badd '\+'", lowered):
        checks.append(_no_plus)
    if not moves:
        checks += [_no_code(name) for word, names in CONCEPTS.items() if word in lowered for name in names]
    return checks + [_no_term(term) for term in FORBIDDEN_TERMS if term in lowered]


def _no_code(name: str) -> Check:
    return lambda answer: f"has {name}" if name in map(code, answer.get("codes", ())) else None


def _no_class(name: str) -> Check:
    return lambda answer: f"is of class {name}" if answer.get("class") == name else None


def _no_batch_moved(answer: Mapping[str, Any]) -> str | None:
    moved = [key for _, key in moves_of(answer) if "batch" in key and key != "max_num_batched_tokens"]
    return f"changes {moved[0]}" if moved else None


def _fixes(answer: Mapping[str, Any]) -> list[str]:
    return [str(fix).casefold() for fix in answer.get("ordered_fixes") or answer.get("fix") or ()]


ABOUT_VERSIONS = r"version|downgrad|upgrad|\bpin"


def _not_versions_alone(answer: Mapping[str, Any]) -> str | None:
    other = [fix for fix in _fixes(answer) if not re.search(ABOUT_VERSIONS, fix)]
    return None if other else "has no advice but versions"


def _not_first(what: str) -> Check:
    """Fails an answer whose first advice is this, or any talk of versions where this is to change one."""
    words = re.findall(r"[a-z]{4,}", what)

    def check(answer: Mapping[str, Any]) -> str | None:
        first = next(iter(_fixes(answer)), "")
        versions = re.search(ABOUT_VERSIONS, what) and re.search(ABOUT_VERSIONS, first)
        return f"first says {first!r}" if versions or all(word in first for word in words) else None

    return check


def _no_plus(answer: Mapping[str, Any]) -> str | None:
    offered = [*answer.get("suggestions", {}).values(), *answer.get("fix", ())]
    added = [value for value in offered if str(value).startswith("+")]
    if added:
        return f"offers {added[0]}"
    return None if answer.get("verdict") == "ERROR" else "lets the unknown key pass"


def _no_move(move: tuple[str, str]) -> Check:
    return lambda answer: f"says {' '.join(move)}" if move in moves_of(answer) else None


def _no_term(term: str) -> Check:
    return lambda answer: f"speaks of {term}" if term in str(answer.get("text", "")).casefold() else None
