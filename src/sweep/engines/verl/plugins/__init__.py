"""What this package adds to verl, loaded in each verl process by `VERL_USE_EXTERNAL_MODULES`.

verl's source stays untouched: each module here waits for the verl module that it extends and is imported right after
it, so that a process pays only for the parts of verl that it uses itself. Importing this package outside verl does
nothing but register those waits.
"""

from __future__ import annotations

import os

from sweep.engines.verl.plugins.loading import extend

EXTENSIONS = {
    "transfer_queue.interface": "queue_namespace",
    "verl.trainer.ppo.core_algos": "kl_band_hook",
    "verl.trainer.ppo.v1.trainer_sync": "trainer",
    "verl.utils.model": "value_head_hook",
    "verl.utils.tensordict_utils": "jagged_rows_hook",
    "verl.utils.torch_functional": "log_probs_hook",
    "verl.workers.engine.fsdp.transformer_impl": "adaptive_clip_hook",
    "verl.workers.rollout.router": "router_hook",
}
"""verl's module to ours that is imported after it, on every platform."""

CPU_EXTENSIONS = {
    "verl.plugin.platform": "platform_cpu",
    "verl.utils.distributed": "process_group_cpu",
    "verl.workers.engine.fsdp": "engine_cpu",
    "verl.workers.rollout.base": "rollout_cpu_names",
    "verl.workers.rollout.replica": "rollout_cpu_names",
}
"""The same, for `VERL_PLATFORM=cpu`; on a GPU verl's own platform, engines and rollout are used."""


def install() -> None:
    """Each extension is imported, now or as soon as the verl module that it extends is."""
    on_cpu = os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
    if on_cpu:
        os.environ.setdefault("TQ_NUM_THREADS", "1")  # asking for more than there are is a warning at each access
    for module, extension in (EXTENSIONS | (CPU_EXTENSIONS if on_cpu else {})).items():
        extend(module, f"{__name__}.{extension}")


install()
