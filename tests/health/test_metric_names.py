"""Names of quantities across frameworks, versions and units."""

from __future__ import annotations

import pytest

from sweep.health.metric_names import Quantity, Unit, find, validation

from .curves import table


@pytest.mark.parametrize(
    ("names", "quantity", "chosen"),
    [
        (["critic/rewards/mean", "critic/score/mean"], Quantity.REWARD, "critic/score/mean"),
        (["actor/kl_loss", "actor/reward_kl_penalty"], Quantity.REFERENCE_KL, "actor/reward_kl_penalty"),
        (["critic/kl"], Quantity.REFERENCE_KL, "critic/kl"),
        (["actor/entropy_loss"], Quantity.ENTROPY, "actor/entropy_loss"),
        (["timing/gen"], Quantity.GEN_SECONDS, "timing/gen"),
        (["train/grad_norm"], Quantity.GRAD_NORM, "train/grad_norm"),
        (["perf/max_memory_reserved_gb"], Quantity.GPU_RESERVED_GIB, "perf/max_memory_reserved_gb"),
    ],
)
def test_the_preferred_name_of_a_quantity_is_found(names: list[str], quantity: Quantity, chosen: str) -> None:
    found = find(table({name: [1.0] for name in names}), quantity)
    assert found is not None and found.name == chosen


def test_kl_within_an_update_never_stands_in_for_kl_to_the_reference() -> None:
    logged = table({"actor/ppo_kl": [0.001], "policy/approxkl_avg": [0.002]})
    assert find(logged, Quantity.REFERENCE_KL) is None
    assert find(logged, Quantity.UPDATE_KL) is not None


def test_each_name_of_kl_carries_its_unit_and_a_stated_unit_wins() -> None:
    per_sequence, per_token = table({"objective/kl": [7.0]}), table({"kl": [0.1]})
    found = find(per_sequence, Quantity.REFERENCE_KL), find(per_token, Quantity.REFERENCE_KL)
    assert [f.unit for f in found if f] == [Unit.PER_SEQUENCE, Unit.PER_TOKEN]
    stated = find(per_token, Quantity.REFERENCE_KL, {"kl": "nats per sequence (ours)"})
    assert stated is not None and stated.unit is Unit.PER_SEQUENCE


def test_a_learning_rate_in_units_of_one_ten_thousandth_is_converted() -> None:
    found = find(table({"actor/lr(1e-4)": [0.01]}), Quantity.LR)
    assert found is not None and found.series.values[0] == pytest.approx(1e-6)


def test_the_critic_gradient_is_another_quantity() -> None:
    assert find(table({"critic/grad_norm": [1000.0]}), Quantity.GRAD_NORM) is None


def test_validation_prefers_the_headline_accuracy() -> None:
    names = ["val-aux/x/acc/mean@8", "val-core/x/reward/mean@1", "val-core/x/acc/mean@1", "val/clipfrac_avg"]
    series = validation(table({name: [0.5] for name in names}))
    assert series is not None and series.name == "val-core/x/acc/mean@1"


def test_statistics_of_the_value_function_are_no_validation() -> None:
    assert validation(table({"val/clipfrac_avg": [0.1], "val/num_eos_tokens": [3.0]})) is None
