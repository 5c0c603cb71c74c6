"""How many verl fit onto a cluster: what verl would wait for without a word."""

from __future__ import annotations

import pytest

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.environment import Machine, gpu_engine
from sweep.engines.verl.placement import Shape, most_at_once, shortage

ONE_GPU = Shape(nodes=1, gpus_a_node=1, cpus_a_node=3, other_cpus=2)
TWO_GPUS = Shape(nodes=1, gpus_a_node=2, cpus_a_node=6, other_cpus=2)
TWO_NODES = Shape(nodes=2, gpus_a_node=1, cpus_a_node=3, other_cpus=2)


def node(gpus: float, cpus: float) -> dict[str, float]:
    return {"GPU": gpus, "CPU": cpus}


@pytest.mark.parametrize(
    ("nodes", "shape", "count"),
    [
        ([node(1, 5)], ONE_GPU, 1),
        ([node(1, 4)], ONE_GPU, 0),
        ([node(0, 64)], ONE_GPU, 0),
        ([node(4, 20)], ONE_GPU, 4),
        ([node(4, 19)], ONE_GPU, 3),
        ([node(1, 5), node(1, 5)], ONE_GPU, 2),
        ([node(1, 32), node(1, 32)], TWO_GPUS, 0),
        ([node(2, 32), node(1, 32)], TWO_GPUS, 1),
        ([node(1, 5), node(3, 64)], TWO_GPUS, 1),
        ([node(2, 64)], TWO_NODES, 0),
        ([node(1, 8), node(1, 8)], TWO_NODES, 1),
        ([node(1, 3), {"CPU": 2}], ONE_GPU, 1),
        ([], ONE_GPU, 0),
    ],
)
def test_gpus_and_their_cpus_must_be_together_and_the_other_cpus_anywhere(
    nodes: list[dict[str, float]], shape: Shape, count: int
) -> None:
    assert most_at_once(nodes, shape) == count


def test_a_place_that_no_node_has_is_named_although_the_sum_would_do() -> None:
    said = shortage([node(1, 32), node(1, 32)], TWO_GPUS, 1)
    assert "2 GPUs and 6 CPUs together" in said and "1/32, 1/32" in said and "holds 0" in said


def test_a_sum_that_is_too_small_is_named_with_what_would_do() -> None:
    assert "2 GPUs (1 each), but the Ray cluster has 1" in shortage([node(1, 64)], ONE_GPU, 2)
    said = shortage([node(2, 9)], ONE_GPU, 2)
    assert "10 CPUs (5 each), but the Ray cluster has 9" in said and "wait for the rest" in said
    assert "ray start --head --num-cpus=10" in said


def test_a_floor_that_nobody_reserves_is_called_one() -> None:
    shape = Shape.of(Trial(Overrides.of({keys.GPUS_PER_NODE: 1}), 1, 10), gpu_engine(Machine()))
    assert shape == Shape(nodes=1, gpus_a_node=1, cpus_a_node=3, other_cpus=7, idle_cpus=5)
    said = shortage([node(1, 8)], shape, 1)
    assert "10 CPUs (10 each), but the Ray cluster has 8" in said and "wait for the rest" not in said
    assert "reserves only 5 of 10, on a GPU host 10 are the floor" in said and "ray start --head --num-cpus=10" in said
    assert "wait for the rest" in shortage([node(1, 4)], shape, 1)
