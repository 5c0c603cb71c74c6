"""Whether the data can be read, fill a batch, and be scored by the reward function."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.health.preflight.batches import roles
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, info, warn
from sweep.health.preflight.settings import Config, flag, text, texts, whole

DEFAULT_PROMPT_KEY = "prompt"
"""Source: verl trainer/config/data/legacy_data.yaml."""

REWARD_COLUMNS = ("data_source", "reward_model")
"""Columns that verl's reward managers read. Source: verl experimental/reward_loop/reward_manager."""

SCORED_SOURCES = frozenset(
    {
        "openai/gsm8k",
        "lighteval/MATH",
        "DigitalLearningGmbH/MATH-lighteval",
        "HuggingFaceH4/MATH-500",
        "math_dapo",
        "math",
        "math_dapo_reasoning",
        "numina_aops_forum",
        "numina_synthetic_math",
        "numina_amc_aime",
        "numina_synthetic_amc",
        "numina_cn_k12",
        "numina_olympiads",
        "codecontests",
        "apps",
        "codeforces",
        "taco",
        "hiyouga/geometry3k",
        "searchR1_nq",
        "searchR1_triviaqa",
        "searchR1_popqa",
        "searchR1_hotpotqa",
        "searchR1_2wikimultihopqa",
        "searchR1_musique",
        "searchR1_bamboogle",
    }
)
"""Data sources with a built-in reward; so are all that begin with `aime`. Source: verl utils/reward_score."""

READ_SUFFIXES = (".parquet", ".json", ".jsonl")
"""Source: verl utils/dataset/rl_dataset.py."""


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on data and reward."""
    for key, why in sorted(facts.missing_files.items()):
        yield error(
            "FILE_MISSING",
            f"{key} names {config.get(key)}: {why}",
            "verl finds out after Ray has started",
            keys=(key,),
            source="verl utils/dataset/rl_dataset.py",
        )
    for name in texts(config, keys.TRAIN_FILES):
        if not name.endswith(READ_SUFFIXES):
            yield error(
                "FILE_FORMAT",
                f"{keys.TRAIN_FILES} names {name}",
                f"verl reads {', '.join(READ_SUFFIXES)}",
                keys=(keys.TRAIN_FILES,),
                source="verl utils/dataset/rl_dataset.py",
            )
    if flag(config, keys.FILTER_PROMPTS) is False and text(config, keys.TRUNCATION) == "error":
        yield info(
            "OVERLONG_PROMPT_RAISES",
            f"{keys.FILTER_PROMPTS} is false and {keys.TRUNCATION} is error",
            f"one prompt above {keys.PROMPT_LENGTH} ends the run when its batch is drawn",
            nearest=(f"{keys.FILTER_PROMPTS}=true", f"{keys.TRUNCATION}=left"),
            keys=(keys.FILTER_PROMPTS, keys.TRUNCATION),
            source="verl utils/dataset/rl_dataset.py",
        )
    yield from _rows(config, facts)
    yield from _columns(config, facts)
    yield from _reward(config, facts)
    yield from _logger(config, facts)


def _rows(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    train, rows = whole(config, keys.TRAIN_BATCH), facts.dataset_rows
    known = facts.rows_after_filter if facts.rows_after_filter is not None else rows
    if not train or train < 1 or known is None:
        return
    computed = {"rows": known, "train": train}
    filtered = flag(config, keys.FILTER_PROMPTS) and facts.rows_after_filter is None
    if known < train:
        yield error(
            "EMPTY_DATALOADER",
            f"{keys.TRAIN_BATCH} is {train}, the training data has {known} rows"
            + (" after its filter" if facts.rows_after_filter is not None else ""),
            "verl drops the incomplete last batch, so not one is left",
            nearest=_largest_batch(config, known),
            keys=(keys.TRAIN_BATCH, keys.TRAIN_FILES, keys.FILTER_PROMPTS),
            source="LeapLabTHU/Absolute-Zero-Reasoner#14",
            computed=computed,
        )
        return
    if filtered and known < facts.limits.filter_rows_ratio * train:
        yield warn(
            "DATALOADER_MAY_BE_EMPTY",
            f"{known} rows before the length filter are few for {keys.TRAIN_BATCH} {train}",
            f"if the filter drops {known - train + 1} rows not one batch is left",
            keys=(keys.TRAIN_BATCH, keys.FILTER_PROMPTS),
            source="LeapLabTHU/Absolute-Zero-Reasoner#14",
            computed=computed,
        )
    dropped = known % train
    if dropped:
        yield info(
            "ROWS_DROPPED",
            f"{dropped} of {known} rows ({dropped / known:.1%}) are dropped each epoch at {train} a step",
            "the incomplete last batch is left out, other rows after each shuffle",
            keys=(keys.TRAIN_BATCH,),
            source="verl trainer/ppo/v1/trainer_base.py",
            computed=computed | {"dropped_share": round(dropped / known, 4)},
        )


def _largest_batch(config: Config, rows: int) -> tuple[str, ...]:
    """The largest train batch that the rows fill and every mini-batch divides; else the rows themselves."""
    step = math.lcm(*(max(1, role.mini) for role in roles(config)))
    largest = rows // step * step or rows
    return (f"{keys.TRAIN_BATCH}={largest}",) if largest else ()


def _columns(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    if facts.dataset_columns is None:
        return
    prompt = text(config, keys.PROMPT_KEY) or DEFAULT_PROMPT_KEY
    missing = [name for name in (prompt, *REWARD_COLUMNS) if name not in facts.dataset_columns]
    if missing:
        yield error(
            "COLUMNS_MISSING",
            f"the training data lacks {', '.join(missing)}",
            f"it has {', '.join(sorted(facts.dataset_columns)) or 'no columns'}",
            nearest=(f"{keys.PROMPT_KEY}=<column with the chat messages>",) if prompt in missing else (),
            keys=(keys.TRAIN_FILES, keys.PROMPT_KEY),
            source="verl examples/data_preprocess/gsm8k.py",
            computed={"missing": missing},
        )


def _reward(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    if facts.reward_error is not None:
        yield error(
            "REWARD_NOT_LOADABLE",
            f"the reward function of {keys.REWARD_PATH} does not load: {facts.reward_error}",
            "verl loads it in every reward worker, after the models",
            keys=(keys.REWARD_PATH, "reward.custom_reward_function.name"),
            source="verl trainer/ppo/reward.py",
        )
    own = text(config, keys.REWARD_PATH) or flag(config, keys.REWARD_MODEL_ENABLE)
    if own or facts.data_sources is None or text(config, keys.REWARD_SOURCE) == "importlib":
        return
    unscored = sorted(name for name in facts.data_sources if not _scored(name))
    if unscored:
        yield error(
            "REWARD_NOT_IMPLEMENTED",
            f"no reward function for data source {', '.join(unscored[:5])}",
            "verl has none built in, and no custom one is set; it fails at the first rollout",
            nearest=(f"{keys.REWARD_PATH}=<file with compute_score>",),
            keys=(keys.REWARD_PATH, keys.TRAIN_FILES),
            source="verl utils/reward_score/__init__.py",
            computed={"unscored": unscored[:5]},
        )


def _scored(source: str) -> bool:
    return source in SCORED_SOURCES or source.startswith("aime")


def _logger(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    absent = sorted(set(texts(config, keys.LOGGER)) & facts.missing_modules)
    if absent:
        left = [name for name in texts(config, keys.LOGGER) if name not in absent]
        yield error(
            "LOGGER_NOT_INSTALLED",
            f"{keys.LOGGER} names {', '.join(absent)}, which is not installed",
            "verl's default logger list contains wandb",
            nearest=(f"{keys.LOGGER}=[{','.join(left or ['console', 'file'])}]",),
            keys=(keys.LOGGER,),
            source="verl utils/tracking.py",
        )
