"""verl's own validation, asked in a process of its own."""

from __future__ import annotations

import pytest

from sweep.engines.verl import validate
from sweep.engines.verl.validate import verl_objections
from sweep.health.preflight import Severity

FINE = [
    "actor_rollout_ref.rollout.name=vllm",
    "trainer.n_gpus_per_node=1",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "critic.ppo_micro_batch_size_per_gpu=2",
]


@pytest.mark.slow
@pytest.mark.verl
def test_a_configuration_that_verl_accepts_has_no_objections_even_without_its_model_here() -> None:
    assert verl_objections(FINE) == ()


@pytest.mark.slow
@pytest.mark.verl
def test_verls_bare_assertion_is_named_by_its_source_line() -> None:
    (finding,) = verl_objections([*FINE, "actor_rollout_ref.actor.optim.lr_scheduler_type=linear"])
    assert (finding.code, finding.severity) == ("VERL_REFUSES", Severity.ERROR)
    assert "lr_scheduler_type in" in finding.what


@pytest.mark.slow
@pytest.mark.verl
def test_checks_behind_a_missing_model_are_still_run() -> None:
    (finding,) = verl_objections([*FINE, "critic.ppo_mini_batch_size=4096"])
    assert "critic.ppo_mini_batch_size" in finding.what


def test_a_verl_that_does_not_answer_in_time_is_a_remark_and_no_error() -> None:
    (finding,) = verl_objections(FINE, timeout_seconds=0.01)
    assert (finding.code, finding.severity) == ("VERL_NOT_ASKED", Severity.INFO)


def test_a_child_that_dies_is_a_remark_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate.sys, "executable", "/bin/false")
    (finding,) = verl_objections(FINE)
    assert finding.code == "VERL_NOT_ASKED"
