"""`gather`: everything preflight can know here and now around a composed configuration.

Reads files and asks the machine; starts no verl and uses no GPU. The machine counts only if it has a GPU: on a
laptop its CPUs and disks say nothing about where the run will be.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core import verl_keys as keys
from sweep.core.visible_gpus import visible
from sweep.engines.verl.checkpoint_files import step_folder, tracked_step
from sweep.engines.verl.compose import Composed
from sweep.engines.verl.data_facts import read_data, reward_problem
from sweep.engines.verl.model_facts import read_model
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.limits import DEFAULT, PreflightLimits
from sweep.health.preflight.settings import Config, text, texts

GIB = 1024**3

LOGGER_MODULES = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "vemlp_wandb": "volcengine_ml_platform",
    "tensorboard": "torch.utils.tensorboard",
    "clearml": "clearml",
    "trackio": "trackio",
}
"""Logger name to the module it needs. Source: verl utils/tracking.py."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a trial will run on; None is unknown."""

    gpu_count: int | None = None
    gpu_gib: float | None = None
    logical_cpus: int | None = None
    host_memory_gib: float | None = None


def this_machine() -> Machine:
    """This machine if it has NVIDIA GPUs; an unknown one if not. Those that are hidden from this process count for
    nothing."""
    gpus = _gpus()
    if not gpus:
        return Machine()
    chosen = visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    sizes = [gpu.gib for gpu in chosen if gpu.gib is not None]
    return Machine(len(chosen), min(sizes, default=None), _logical_cpus(), _host_memory_gib())


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU of this machine; None is a size that it does not report."""

    index: int
    uuid: str
    gib: float | None


def _gpus() -> list[_Gpu]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no permission: all mean that GPUs are unknown here
        return []

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except pynvml.NVMLError:
            return None

    found = []
    try:
        for index in range(ask(pynvml.nvmlDeviceGetCount) or 0):
            gpu = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            if gpu is not None:
                memory = ask(pynvml.nvmlDeviceGetMemoryInfo, gpu)
                uuid = ask(pynvml.nvmlDeviceGetUUID, gpu) or ""
                found.append(
                    _Gpu(index, uuid if isinstance(uuid, str) else uuid.decode(), memory and memory.total / GIB)
                )
    finally:
        pynvml.nvmlShutdown()
    return found


def gather(
    composed: Composed,
    *,
    machine: Machine | None = None,
    trial_steps: int | None = None,
    swept: frozenset[str] = frozenset(),
    limits: PreflightLimits = DEFAULT,
) -> Facts:
    """The facts around a configuration; a machine that is not given is asked for. `limits` are preflight's."""
    config, place = composed.config, machine if machine is not None else this_machine()
    files = texts(config, keys.TRAIN_FILES) if keys.TRAIN_FILES in composed.given else ()
    data = read_data(files)
    folder = Path(text(config, keys.CHECKPOINT_DIR) or ".").expanduser()
    reward_name = text(config, "reward.custom_reward_function.name") or "compute_score"
    return Facts(
        given=composed.given,
        swept=swept,
        added=composed.added,
        unknown_keys=composed.unknown,
        mistyped=composed.mistyped,
        model=read_model(text(config, keys.MODEL_PATH)),
        critic_model=read_model(text(config, keys.CRITIC_MODEL_PATH)),
        gpu_count=place.gpu_count,
        gpu_gib=place.gpu_gib,
        logical_cpus=place.logical_cpus,
        host_memory_gib=place.host_memory_gib,
        free_disk_gib=_free_gib(folder) if place.gpu_count else None,
        ray_temp_dir=_ray_folder(),
        dataset_rows=data.rows,
        dataset_columns=data.columns,
        data_sources=data.sources,
        missing_files={keys.TRAIN_FILES: "; ".join(data.unreadable)} if data.unreadable else {},
        missing_modules=_missing_loggers(config),
        reward_error=reward_problem(text(config, keys.REWARD_PATH), reward_name),
        trial_steps=trial_steps,
        existing_checkpoint=_existing_checkpoint(folder),
        verl_version=_version("verl"),
        limits=limits,
    )


def _logical_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _host_memory_gib() -> float:
    import psutil

    return float(psutil.virtual_memory().total) / GIB


def _free_gib(folder: Path) -> float | None:
    """GiB free where the folder is, or would be."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if place.exists():
            return shutil.disk_usage(place).free / GIB
    return None


def _ray_folder() -> str | None:
    parent = os.environ.get("RAY_TMPDIR")
    return str(Path(parent, "ray")) if parent else None


def _missing_loggers(config: Config) -> frozenset[str]:
    wanted = set(texts(config, keys.LOGGER)) & set(LOGGER_MODULES)
    return frozenset(name for name in wanted if not _installed(LOGGER_MODULES[name]))


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _existing_checkpoint(folder: Path) -> str | None:
    step = tracked_step(folder)
    return step_folder(folder, step).name if step > 0 else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
