"""A trial's configuration over that of the last one."""

from __future__ import annotations

import pytest

omegaconf = pytest.importorskip("omegaconf")

from sweep.engines.verl.plugins.trial_config import (  # noqa: E402
    TrialRefused,
    changed_keys,
    check,
    flattened,
    write,
)

START = {
    "actor_rollout_ref": {
        "rollout": {"name": "vllm", "temperature": 1.0, "max_num_seqs": 256},
        "actor": {"optim": {"lr": 1e-6, "betas": [0.9, 0.999]}},
    },
    "algorithm": {"lam": 1.0, "kl_ctrl": {"type": "fixed", "kl_coef": 0.001}},
    "trainer": {"logger": ["file"], "total_training_steps": 5},
    "sweep": {"schedule_steps": 5, "reuse": True},
    "empty": {},
}


def config() -> omegaconf.DictConfig:
    made = omegaconf.OmegaConf.create(START)
    omegaconf.OmegaConf.set_struct(made, True)
    return made


def test_lists_and_empty_sections_are_values() -> None:
    flat = flattened(config())
    assert flat["actor_rollout_ref.actor.optim.betas"] == [0.9, 0.999]
    assert flat["empty"] == {}


def test_a_key_on_one_side_only_counts_as_changed() -> None:
    assert changed_keys({"a": 1, "b": 2}, {"b": 3, "c": None}) == ("a", "b", "c")


def test_everything_warm_takes_the_trials_value_also_where_verls_schema_has_no_such_key() -> None:
    written, wanted = config(), flattened(config())
    wanted |= {"algorithm.lam": 0.9, "algorithm.kl_ctrl.band_low": 0.01, "trainer.logger": ["file", "mlflow"]}
    write(written, wanted)
    assert flattened(written) == wanted


def test_what_the_last_trial_added_is_gone_again() -> None:
    written, start = config(), flattened(config())
    write(written, start | {"algorithm.kl_ctrl.band_low": 0.01, "sweep.clip_decay": 0.9})
    write(written, start)
    assert flattened(written) == start


def test_what_is_not_warm_is_never_written() -> None:
    written, wanted = config(), flattened(config())
    write(written, wanted | {"sweep.reuse": False, "actor_rollout_ref.rollout.max_num_seqs": 1})
    assert flattened(written) == wanted


def test_a_trial_that_needs_another_runtime_is_refused_by_the_keys_that_need_it() -> None:
    start = flattened(config())
    check(start | {"algorithm.lam": 0.9}, start)
    with pytest.raises(TrialRefused, match=r"cannot change actor_rollout_ref\.rollout\.max_num_seqs, no\.such\.key;"):
        check(start | {"no.such.key": 1, "actor_rollout_ref.rollout.max_num_seqs": 8}, start)


def test_limits_of_our_own_rollout_are_written() -> None:
    own = flattened(config()) | {"actor_rollout_ref.rollout.name": "cpu_transformers"}
    written = config()
    omegaconf.OmegaConf.update(written, "actor_rollout_ref.rollout.name", "cpu_transformers")
    wanted = own | {"actor_rollout_ref.rollout.max_num_seqs": 8}
    check(wanted, own)
    write(written, wanted)
    assert written.actor_rollout_ref.rollout.max_num_seqs == 8
