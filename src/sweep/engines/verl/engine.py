"""`VerlEngine`: starts real verl on a cluster, one process a runtime.

Sees to it beforehand that the cluster can take a runtime at all (verl waits for ever for CPUs that do not exist), and
afterwards that the memory of its GPUs is really free.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.engines.gpu_memory import GpuMemory, MemoryProbe
from sweep.engines.hosted_runtime import HostedRuntime, free_name
from sweep.engines.hosting import Launcher
from sweep.engines.verl.commands import file_logger, trial_command
from sweep.engines.verl.environment import Machine, inspect, offline_variables
from sweep.engines.verl.settings import EngineSettings, complete, cpus_of, gpus_of, launch_arguments, worker_variables
from sweep.errors import ConfigError

MODEL_PATH = "actor_rollout_ref.model.path"


class VerlEngine:
    """Runtimes on one cluster. `locate` puts paths in for the marks that a trial's settings carry."""

    def __init__(
        self,
        launcher: Launcher,
        settings: EngineSettings,
        *,
        locate: Callable[[Overrides], Overrides] = lambda overrides: overrides,
        memory_probe: MemoryProbe | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots = settings.slots
        self._launcher = launcher
        self._settings = settings
        self._locate = locate
        self._memory = GpuMemory(launcher, None if settings.on_cpu else memory_probe, sleep=sleep, clock=clock)
        self._runtimes: list[HostedRuntime] = []
        self._machine: Machine | None = None
        self._composed: dict[str, Mapping[str, object]] = {}

    def start(self, trial: Trial, folder: Path, *, reuse: bool = True) -> HostedRuntime:
        """Start verl with the trial as its configuration.

        Raises:
            ConfigError: if the cluster is too small for it.
            EngineError: if the cluster cannot take it now.
        """
        self.check(trial)
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        before = self._memory.in_use(gpus_of(trial))
        overrides = self._complete(trial, folder, reuse)
        name = f"sweep-{trial.id}-{uuid.uuid4().hex[:8]}"
        variables = {**self._variables(overrides), **({} if reuse else file_logger(folder))}
        in_workers = {**variables, "SWEEP_MAILBOX": name, "SWEEP_STARTED_AT": f"{time.time():.3f}"}
        host = self._launcher.launch(name, launch_arguments(overrides, in_workers), variables)
        extras = worker_variables(in_workers)

        def command(other: Trial, place: Path) -> Mapping[str, object]:
            return trial_command(other, place, self._complete(other, place.resolve(), True), extras)

        runtime = HostedRuntime(
            host,
            trial,
            free_name(folder, "runtime", ".log"),
            command=command if reuse else None,
            serves=self.same_runtime if reuse else None,
            on_closed=lambda: self._memory.await_free(gpus_of(trial), before),
        )
        self._runtimes.append(runtime)
        return runtime

    def check(self, trial: Trial) -> None:
        """Does nothing if the cluster has what `slots` runtimes of this trial reserve.

        Raises:
            ConfigError: if it has not; the message says what was found and what would do.
        """
        found = self._launcher.resources()
        for kind, each, hint in (
            ("GPU", gpus_of(trial), "lower trainer.n_gpus_per_node or cluster.slots"),
            ("CPU", cpus_of(trial, self._settings), "lower cluster.slots, or let Ray count more with cluster.num_cpus"),
        ):
            if found.get(kind, 0) < each * self.slots:
                raise ConfigError(
                    f"{self.slots} verl at once reserve {each * self.slots} {kind}s ({each} each), but the Ray cluster "
                    f"has {found.get(kind, 0):g}, and verl would wait for the rest without a word; {hint}"
                )

    def same_runtime(self, base: Trial, other: Trial) -> bool:
        """Whether a runtime started with the first can serve the second: what differs can be changed warm.

        False for a trial that does not compose: verl itself shall say why; and for one that does not train.
        """
        from sweep.engines.verl.warm_table import needs_new_runtime

        if other.measure is not Measure.TRAINING:
            return False
        try:
            first, second = self.configuration(base), self.configuration(other)
        except ConfigError:
            return False
        changed = [k for k in first.keys() | second.keys() if first.get(k, ...) != second.get(k, ...)]
        return not needs_new_runtime(changed, str(first.get("actor_rollout_ref.rollout.name")))

    def configuration(self, trial: Trial) -> Mapping[str, object]:
        """verl's whole configuration of the trial by dotted key, its files under one made-up folder for all trials.

        Raises:
            ConfigError: if it does not compose.
        """
        from sweep.engines.verl.compose import compose, require_known

        if trial.id not in self._composed:
            self._composed[trial.id] = require_known(compose(self._complete(trial, Path("/"), True))).config
        return self._composed[trial.id]

    def versions(self) -> Mapping[str, str]:
        """Of what a trial depends on, as installed on a node that trains."""
        return dict(self.machine().versions)

    def machine(self) -> Machine:
        """What a node that trains has installed; asked once."""
        if self._machine is None:
            busy = any(not runtime.closed for runtime in self._runtimes)  # they hold the GPUs
            self._machine = self._launcher.call(inspect, gpus=0 if busy else 1)
        return self._machine

    def close(self) -> None:
        """End every runtime and the cluster, if it was started here. Safe to call again."""
        try:
            for runtime in self._runtimes:
                runtime.close()
        finally:
            self._runtimes.clear()
            self._launcher.close()

    def _complete(self, trial: Trial, folder: Path, reuse: bool) -> Overrides:
        return self._locate(complete(trial, str(folder), self._settings, reuse))

    def _variables(self, overrides: Overrides) -> dict[str, str]:
        return {**offline_variables(str(overrides.get(MODEL_PATH, ""))), **self._settings.variables}
