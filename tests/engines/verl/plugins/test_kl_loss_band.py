"""The band controller over the KL loss: verl's own actor configuration, a worker group that only listens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.verl
pytest.importorskip("verl")


class FakeWorkers:
    """Keeps the loss functions that it is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def set_loss_fn(self, loss: Any) -> None:
        self.sent.append(loss.keywords["config"].kl_loss_coef)


def trainer(*overrides: str) -> Any:
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    base = [
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
        "algorithm.kl_ctrl.type=band",
        "+algorithm.kl_ctrl.band_interval=2",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[*base, *overrides])
    OmegaConf.resolve(config.actor_rollout_ref.actor)
    return SimpleNamespace(config=config, actor_rollout_wg=FakeWorkers(), resumed_from=None)


def band(owner: Any) -> Any:
    from sweep.engines.verl.plugins.kl_loss_band import KlLossBand

    made = KlLossBand(owner)
    made.start()
    return made


def test_each_change_goes_to_the_workers_and_into_the_metrics() -> None:
    owner = trainer("actor_rollout_ref.actor.use_kl_loss=True")
    followed = [band_metrics for band_metrics in map(band(owner).follow, [{"actor/kl_loss": kl} for kl in (0.5,) * 5])]
    changes = [metrics["sweep/kl_coef_change"] for metrics in followed]
    assert changes == pytest.approx([0.0, 0.0002, 0.0, 0.00024, 0.0])
    assert owner.actor_rollout_wg.sent == pytest.approx([0.0012, 0.00144])
    assert owner.config.actor_rollout_ref.actor.kl_loss_coef == pytest.approx(0.00144)


@pytest.mark.parametrize(
    "overrides",
    [
        ["actor_rollout_ref.actor.use_kl_loss=False"],
        ["actor_rollout_ref.actor.use_kl_loss=True", "algorithm.kl_ctrl.type=fixed"],
        ["actor_rollout_ref.actor.use_kl_loss=True", "algorithm.use_kl_in_reward=True"],
    ],
)
def test_without_a_band_over_the_loss_nothing_happens(overrides: list[str]) -> None:
    owner = trainer(*overrides)
    own = band(owner)
    assert [own.follow({"actor/kl_loss": 0.5}) for _ in range(4)] == [{}] * 4
    assert owner.actor_rollout_wg.sent == []
