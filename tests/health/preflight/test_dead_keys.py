"""Keys without effect, keys that moved, keys that were added."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, Severity
from sweep.health.preflight.dead_keys import DEAD_KEYS

from .sound import codes, found, only

GRAD_CLIP = "actor_rollout_ref.actor.grad_clip"


def test_a_dead_key_with_another_value_is_a_warning_that_names_the_live_one() -> None:
    finding = only("DEAD_KEY", {GRAD_CLIP: 0.5}, Facts(given=frozenset({GRAD_CLIP})))
    assert (finding.severity, finding.nearest) == (Severity.WARN, (keys.ACTOR_CLIP_GRAD,))


def test_a_dead_key_at_its_default_is_only_a_remark() -> None:
    assert only("DEAD_KEY", {GRAD_CLIP: 1.0}, Facts(given=frozenset({GRAD_CLIP}))).severity is Severity.INFO


@pytest.mark.parametrize("dead", DEAD_KEYS, ids=lambda dead: dead.key)
def test_a_sweep_over_any_dead_key_is_an_error(dead) -> None:  # type: ignore[no-untyped-def]
    assert only("DEAD_KEY", {}, Facts(swept=frozenset({dead.key}))).severity is Severity.ERROR


def test_without_knowing_what_was_given_the_value_decides() -> None:
    assert codes({GRAD_CLIP: 0.5}) == ["DEAD_KEY"]
    assert codes({GRAD_CLIP: 1.0}) == []


def test_a_key_that_verl_demands_is_no_warning() -> None:
    assert only("DEAD_KEY", {}, Facts(given=frozenset({keys.CRITIC_MICRO_BATCH}))).severity is Severity.INFO


def test_the_critics_micro_batch_lives_in_the_older_trainer() -> None:
    assert codes({keys.USE_V1: False}, Facts(given=frozenset({keys.CRITIC_MICRO_BATCH}))) == []


def test_a_reward_function_under_its_old_key_is_an_error() -> None:
    finding = only("LEGACY_KEY_IGNORED", {keys.OLD_REWARD_PATH: "/r.py"})
    assert (finding.severity, finding.nearest) == (Severity.ERROR, (keys.REWARD_PATH,))
    assert "LEGACY_KEY_IGNORED" not in codes({keys.OLD_REWARD_PATH: "/r.py", keys.REWARD_PATH: "/r.py"})


def test_deprecated_keys_are_remarked_on_when_they_do_something() -> None:
    given = Facts(given=frozenset({keys.ACTOR_ULYSSES_OLD}))
    assert "DEPRECATED_KEY" in codes({keys.ACTOR_ULYSSES_OLD: 2}, given)
    assert "DEPRECATED_KEY" not in codes({keys.ACTOR_ULYSSES_OLD: 1}, given)


@pytest.mark.parametrize(
    "key",
    [
        "sweep.schedule_steps",
        *keys.BAND_KEYS,
        keys.CRITIC_INFER_MAX_TOKENS,
        "ray_kwargs.ray_init.runtime_env.env_vars",
        "critic.model.override_config.attn_implementation",
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype",
    ],
)
def test_additions_that_verl_or_our_plugin_reads_are_right(key: str) -> None:
    assert "ADDED_KEY" not in codes({}, Facts(added=frozenset({key})))


def test_an_addition_that_nothing_reads_is_a_warning() -> None:
    added = Facts(added=frozenset({"actor_rollout_ref.actor.my_knob"}))
    assert [f.severity for f in found({}, added)] == [Severity.WARN]
