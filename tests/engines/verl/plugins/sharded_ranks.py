"""Run as a process: one rank of a critic that verl shards over two, reset after other training. Prints what it saw."""

from __future__ import annotations

import json
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

HEAD_SEED = 5
STEPS = 4


def allow_fsdp1_on_the_cpu() -> None:
    """verl's own engine instead of ours for the CPU, and no refusal by torch to send CPU tensors, which gloo can."""
    import os

    from torch.distributed.fsdp import _init_utils

    os.environ["VERL_ENGINE_DEVICE"] = "cuda"
    _init_utils._check_module_states_for_sync_module_states = lambda states: None


def make_worker(strategy: str, model: str) -> Any:
    """A training worker as Ray would hold it, of verl's own engine."""
    import verl  # noqa: F401 - loads the plug-ins
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, HFModelConfig
    from verl.workers.engine import EngineRegistry

    model_config = HFModelConfig(path=model, override_config={"attn_implementation": "sdpa"}, use_remove_padding=False)
    model_config.model_type = "value_model"
    engine_config = FSDPEngineConfig(strategy=strategy, use_torch_compile=False)
    engine = EngineRegistry.new(
        model_type="value_model",
        backend=strategy,
        model_config=model_config,
        engine_config=engine_config,
        optimizer_config=optimizer(1e-3),
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    loss = partial(print, config=SimpleNamespace(cliprange_value=0.5, loss_agg_mode="token-mean"))
    part = SimpleNamespace(engine=engine, engine_config=engine_config, optimizer_config=None, loss_fn=loss)
    return SimpleNamespace(worker_dict={"critic": part})


def optimizer(lr: float) -> Any:
    from verl.workers.config import FSDPOptimizerConfig

    return FSDPOptimizerConfig(lr=lr, total_training_steps=20, lr_warmup_steps=2, weight_decay=0.1, clip_grad=0.5)


def train(engine: Any, seed: int, rank: int) -> list[list[float]]:
    """Loss, gradient norm and learning rate of each step."""
    import torch

    generator = torch.Generator().manual_seed(100 * seed + rank)
    told = []
    for _ in range(STEPS):
        ids = torch.randint(5, 200, (2, 9), generator=generator)
        engine.optimizer_zero_grad()
        loss = (engine.module(input_ids=ids).logits.float() - 1.0).pow(2).mean()
        loss.backward()
        norm = engine.optimizer_step()
        told.append([float(loss), float(norm), float(engine.lr_scheduler_step())])
    return told


def look(engine: Any) -> float:
    """A forward pass without a backward, which leaves the root of a sharded module gathered."""
    import torch

    with torch.no_grad():
        return float(engine.module(input_ids=torch.arange(5, 14)[None]).logits.float().sum())


def main(strategy: str, model: str, rank: int) -> dict[str, Any]:
    from sweep.engines.verl.plugins import guard, reset
    from sweep.engines.verl.plugins.value_head import redraw

    if strategy == "fsdp":
        allow_fsdp1_on_the_cpu()
    worker = make_worker(strategy, model)
    engine = worker.worker_dict["critic"].engine
    fields = {"critic": ("cliprange_value",)}
    expected = {"critic": guard.Expected(1e-3, {"cliprange_value": 0.5})}

    reset.take_snapshot(worker)
    start = [reset.state(worker, fields)]
    redraw(engine, HEAD_SEED)
    cold = {"look": look(engine), "steps": train(engine, 1, rank)}
    cold_end = reset.state(worker, fields)["critic"].weights

    reset.renew_optimizer(worker, "critic", optimizer(5e-2))
    other = train(engine, 2, rank)
    look(engine)
    dirty = guard.complaints([reset.state(worker, fields)], start, expected)

    reset.restore_weights(worker, "critic")
    reset.renew_optimizer(worker, "critic", optimizer(1e-3))
    clean = guard.complaints([reset.state(worker, fields)], start, expected)
    redraw(engine, HEAD_SEED)
    warm = {"look": look(engine), "steps": train(engine, 1, rank)}
    warm_end = reset.state(worker, fields)["critic"].weights

    redraw(engine, HEAD_SEED + 1)
    return {
        "cold": cold,
        "warm": warm,
        "other": other,
        "dirty": dirty,
        "clean": clean,
        "same_end": cold_end == warm_end,
        "another_head_differs": reset.state(worker, fields)["critic"].weights != warm_end,
        "sharded": type(engine.module).__name__,
    }


if __name__ == "__main__":
    import os

    import torch.distributed as distributed

    model_folder, rank_number = sys.argv[1], int(sys.argv[2])
    distributed.init_process_group("gloo", rank=rank_number, world_size=2, init_method=f"file://{sys.argv[3]}")
    os.environ.update(RANK=str(rank_number), WORLD_SIZE="2")
    found = {strategy: main(strategy, model_folder, rank_number) for strategy in ("fsdp2", "fsdp")}
    print("FOUND " + json.dumps(found))
    distributed.destroy_process_group()
