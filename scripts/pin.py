"""Write requirements/constraints.txt from the environment that runs this: `python scripts/pin.py`.

torch and what comes with a GPU are pinned in requirements/cpu.txt and requirements/gpu.txt instead.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

TARGET = Path(__file__).resolve().parents[1] / "requirements" / "constraints.txt"
HEAD = """\
# Every package of the environment that the tests ran in; written by scripts/pin.py.
# Where a release has dropped Python 3.10, pip picks the newest that still has it there.
"""
NOT_PINNED = {"torch", "sweep", "pip", "setuptools", "triton"}


def line(package: metadata.Distribution) -> str:
    """The pin of a package, for 3.11 and newer only if its release needs that."""
    needs = package.metadata.get("Requires-Python")
    marker = ' ; python_version >= "3.11"' if needs and not SpecifierSet(needs).contains("3.10.5") else ""
    return f"{package.metadata['Name']}=={package.version}{marker}"


def main() -> None:
    """Write the file."""
    packages = {p.metadata["Name"].lower(): p for p in metadata.distributions()}
    kept = [
        line(p) for name, p in sorted(packages.items()) if name not in NOT_PINNED and not name.startswith("nvidia-c")
    ]
    TARGET.write_text(HEAD + "\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
