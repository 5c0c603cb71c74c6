"""`VerlEngine`: starts real verl on a cluster, one process a runtime.

Sees to it beforehand that the cluster can take a runtime at all (verl waits for ever for CPUs that do not exist), and
afterwards that the memory of its GPUs is really free.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.core.trial import Measure, Trial
from sweep.engines.gpu_memory import GpuMemory, MemoryProbe, least_free_gib
from sweep.engines.hosted_runtime import HostedRuntime, free_name
from sweep.engines.hosting import Host, Launcher
from sweep.engines.mailbox import NAME_VARIABLE, STARTED_VARIABLE
from sweep.engines.verl import placement
from sweep.engines.verl.checkpoints import latest_whole, reported_steps
from sweep.engines.verl.commands import file_logger, trial_command
from sweep.engines.verl.environment import Machine, inspect, notices, offline_variables
from sweep.engines.verl.settings import (
    EngineSettings,
    complete,
    gpus_per_node,
    launch_arguments,
    resumed_from,
    worker_variables,
)
from sweep.errors import ConfigError, EngineError
from sweep.ports import Checkpoint


class VerlEngine:
    """Runtimes on one cluster. `locate` puts paths in for the marks that a trial's settings carry.

    `campaign` is part of the names of its processes, by which a later driver of it finds them.
    """

    def __init__(
        self,
        launcher: Launcher,
        settings: EngineSettings,
        *,
        campaign: str = "campaign",
        locate: Callable[[Overrides], Overrides] = lambda overrides: overrides,
        memory_probe: MemoryProbe | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = f"sweep-{campaign}-"
        self._launcher = launcher
        self._settings = settings
        self._locate = locate
        self._memory = GpuMemory(launcher, None if settings.on_cpu else memory_probe, sleep=sleep, clock=clock)
        self._runtimes: list[HostedRuntime] = []
        self._machine: Machine | None = None
        self._composed: dict[str, Mapping[str, object]] = {}
        self._held: set[placement.Shape] = set()
        self._shape: placement.Shape | None = None

    @property
    def slots(self) -> int:
        """As many as asked for, or as the living nodes hold if that is less or nothing was asked for."""
        wanted = self._settings.slots
        if self._shape is None:
            return max(1, wanted)
        fit = placement.most_at_once(self._launcher.nodes(), self._shape)
        return max(1, min(wanted, fit) if wanted else fit)

    def start(
        self, trial: Trial, folder: Path, *, reuse: bool = True, checkpoint: Checkpoint | None = None
    ) -> HostedRuntime:
        """Start verl with the trial as its configuration.

        Raises:
            ConfigError: if the cluster is too small for it.
            EngineError: if the cluster cannot take it now.
        """
        self._require_place(trial)
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        before = self._memory.in_use(gpus_per_node(trial), least_free_gib(trial))  # a node; in verl every rank is asked
        overrides = self._complete(trial, folder, reuse)
        if checkpoint is not None:
            overrides = overrides.merged(resumed_from(checkpoint.path))
        name = f"{self._prefix}{trial.id}-{uuid.uuid4().hex[:8]}"
        variables = {**self._variables(overrides), **({} if reuse else file_logger(folder))}
        in_workers = {**variables, NAME_VARIABLE: name, STARTED_VARIABLE: f"{time.time():.3f}"}
        label = {
            "trial": trial.to_json(),
            "reuse": reuse,
            "extras": list(worker_variables(in_workers)),
            "resumed": checkpoint.step if checkpoint is not None else 0,
        }
        host = self._launcher.launch(name, launch_arguments(overrides, in_workers), variables, label=label)
        return self._runtime(host, folder, before)

    def checkpoint(self, trial: Trial, folder: Path) -> Checkpoint | None:
        """The latest of the trial's own checkpoints that is whole and seen from here."""
        return latest_whole(folder.resolve())

    def adopt(self, folders: Mapping[Trial, Path]) -> Mapping[str, HostedRuntime]:
        """What an earlier driver left on a given cluster; a local cluster ended with its driver."""
        by_id = {trial.id: folder.resolve() for trial, folder in folders.items()}
        found: dict[str, HostedRuntime] = {}
        for host in self._launcher.left(self._prefix):
            trial_id = _serves(host)
            if trial_id in by_id and trial_id not in found:
                found[trial_id] = self._runtime(host, by_id[trial_id], {})
                found[trial_id].adopt(trial_id, by_id[trial_id])
            else:
                host.close()
        return found

    def check(self, trial: Trial) -> None:
        """Does nothing if the cluster has what the wanted number of runtimes of this trial reserve.

        Raises:
            ConfigError: if it has not; the message says what was found and what would do.
        """
        wanted = max(1, self._settings.slots)
        shape = placement.Shape.of(trial, self._settings)
        nodes = self._launcher.nodes()
        if placement.most_at_once(nodes, shape) < wanted:
            raise ConfigError(placement.shortage(nodes, shape, wanted))
        self._shape = shape
        self._held.add(shape)

    def _require_place(self, trial: Trial) -> None:
        """Raises: ConfigError, or EngineError if the cluster once had a place for such a trial and may have again."""
        shape, nodes = placement.Shape.of(trial, self._settings), self._launcher.nodes()
        if placement.most_at_once(nodes, shape) < 1:
            why = placement.shortage(nodes, shape, 1)
            raise EngineError(why) if shape in self._held else ConfigError(why)
        self._shape = shape
        self._held.add(shape)

    def _runtime(self, host: Host, folder: Path, before: Mapping[str, float]) -> HostedRuntime:
        """The runtime of the process; its label says what it was started with."""
        trial, reuse = Trial.from_json(host.label["trial"]), bool(host.label["reuse"])
        resumed, extras = int(host.label["resumed"]), host.label["extras"]

        def command(other: Trial, place: Path) -> Mapping[str, object]:
            return trial_command(other, place, self._complete(other, place.resolve(), True), extras)

        runtime = HostedRuntime(
            host,
            trial,
            free_name(folder, "runtime", ".log"),
            command=command if reuse else None,
            serves=self.same_runtime if reuse else None,
            on_closed=lambda: self._memory.await_free(gpus_per_node(trial), before),
            before={s: m for s, m in reported_steps(folder).items() if s <= resumed},
        )
        self._runtimes.append(runtime)
        return runtime

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
        return not needs_new_runtime(changed, str(first.get(keys.ROLLOUT_NAME)))

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

    def notices(self) -> Sequence[str]:
        """What is missing on a node with GPUs, and what is done instead."""
        return () if self._settings.on_cpu else notices(self.machine())

    def machine(self) -> Machine:
        """What a node that trains has installed; asked once."""
        if self._machine is None:
            self._machine = self._launcher.call(inspect)
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
        return {**offline_variables(str(overrides.get(keys.MODEL_PATH, ""))), **self._settings.variables}


def _serves(host: Host) -> str:
    """Id of the trial that the process was given last; one without reuse has its trial from the start."""
    if not host.label["reuse"]:
        return Trial.from_json(host.label["trial"]).id
    return str(host.command["id"]) if host.command is not None and host.command["type"] == "trial" else ""
