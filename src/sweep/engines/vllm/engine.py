"""`RolloutEngine`: measures trials that only generate, each point of vLLM's settings by one vLLM process.

The process leases its GPUs from the cluster by itself and serves every trial that its vLLM can generate for: those
of the same point, whatever their seed. What is generated is the training's own rollout
(`sweep.engines.vllm.rollout_spec`); the trainer's own share of the memory is not in these figures.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core.trial import Measure, Trial
from sweep.engines.gpu_memory import GpuMemory, least_free_gib
from sweep.engines.hosted_runtime import HostedRuntime, free_name
from sweep.engines.hosting import Launcher
from sweep.engines.mailbox import STARTED_VARIABLE
from sweep.engines.verl.environment import offline_variables
from sweep.engines.vllm.console import evidence
from sweep.engines.vllm.rollout_spec import rollout_spec, same_process
from sweep.ports import Checkpoint

CHILD = "sweep.engines.vllm.rollout_child"

ALWAYS = {
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn",  # as in verl; a fork would copy the threads of the Ray driver
}


class RolloutEngine:
    """Runtimes on a cluster that somebody else closes.

    `configuration` composes verl's whole configuration of a trial, `gpus_of` says how many GPUs its training has;
    `variables` is the environment that verl's own vLLM runs in.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        slots: int,
        configuration: Callable[[Trial], Mapping[str, object]],
        gpus_of: Callable[[Trial], int],
        memory: GpuMemory,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.slots = slots
        self._launcher = launcher
        self._configuration = configuration
        self._gpus_of = gpus_of
        self._memory = memory
        self._variables = {**ALWAYS, **(variables or {})}
        self._runtimes: list[HostedRuntime] = []

    def check(self, trial: Trial) -> None:
        """Where the training has room, its rollout alone has too."""

    def checkpoint(self, trial: Trial, folder: Path) -> None:
        """Nothing is trained, so nothing is saved."""

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, HostedRuntime]:
        """None: vLLM ends with the driver that started it."""
        return {}

    def start(
        self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: Checkpoint | None = None
    ) -> HostedRuntime:
        """Start vLLM at the trial's point.

        Raises:
            ConfigError: if the trial's rollout is none that vLLM alone can stand in for.
            EngineError: if the cluster has no GPUs for it now.
        """
        spec = self.spec(trial)
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        gpus = int(spec["gpus"])
        before = self._memory.in_use(gpus, least_free_gib(trial))
        name = f"rollout-{trial.id}-{uuid.uuid4().hex[:8]}"
        offline = offline_variables(str(spec["engine"]["model"]))
        variables = {**self._variables, **offline, STARTED_VARIABLE: f"{time.time():.3f}"}
        runtime = HostedRuntime(
            self._launcher.launch(name, ("-m", CHILD, json.dumps(spec)), variables, gpus=gpus),
            trial,
            free_name(folder, "runtime", ".log"),
            command=lambda other, place: {"type": "trial", "id": other.id, "steps": other.steps},
            serves=self.same_runtime if reuse else None,
            evidence=evidence,
            on_closed=lambda: self._memory.await_free(gpus, before),
        )
        self._runtimes.append(runtime)
        return runtime

    def spec(self, trial: Trial) -> dict[str, Any]:
        """What the process of the trial is told.

        Raises:
            ConfigError: as `start`.
        """
        return rollout_spec(self._configuration(trial), self._gpus_of(trial))

    def same_runtime(self, base: Trial, other: Trial) -> bool:
        """Whether the vLLM started for the first can generate for the second."""
        return other.measure is Measure.ROLLOUT and same_process(self.spec(base), self.spec(other))

    def notices(self) -> Sequence[str]:
        """None: what vLLM lacks, the engine that trains has said."""
        return ()

    def versions(self) -> Mapping[str, str]:
        """None of its own: they are the cluster's, which the training's engine reports."""
        return {}

    def close(self) -> None:
        """End every runtime. Safe to call again."""
        for runtime in self._runtimes:
            runtime.close()
        self._runtimes.clear()
