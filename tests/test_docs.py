"""README and docs are true: commands run or compose, links and named files exist, the README stays short."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.cli import run
from sweep.config import ROOT, compose, to_plan

README = (ROOT / "README.md").read_text()
MOST_LINES = 150
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = re.findall(r"```bash\n(.*?)```", README, flags=re.S)
COMMANDS = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]
SWEEPS = [c for c in COMMANDS if c.startswith("python -m sweep ")]
TOOLS = [c for c in COMMANDS if c.startswith("python -m sweep.")]


def test_the_readme_is_short():
    assert len(README.splitlines()) < MOST_LINES


def test_the_readme_shows_commands_of_every_kind():
    assert SWEEPS and TOOLS and {"tune", "test"} <= set(re.findall(r"make ([a-z]+)", README))


@pytest.mark.parametrize("command", SWEEPS)
def test_every_sweep_command_of_the_readme_makes_a_plan(command: str, capsys):
    arguments = shlex.split(command)[3:]
    if any(a.startswith("-") for a in arguments):
        assert run(arguments) == 0
    else:
        assert to_plan(compose(arguments)).wanted


@pytest.mark.parametrize("command", TOOLS)
def test_every_tool_of_the_readme_knows_its_options(command: str):
    module = shlex.split(command)[2]
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]
    assert "usage" in done.stdout.lower()


def test_every_make_target_that_is_named_exists():
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"`make ([a-z-]+)", README)) | set(re.findall(r"^make ([a-z-]+)", README, flags=re.M))
    assert named <= made, named - made


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_and_every_named_file_of_the_project_exists(page: Path):
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    named = re.findall(r"`((?:src|conf|sweeps|docs|tests|benchmarks|scripts)/[\w./-]+\.\w+)`", text)
    missing = [link for link in links if not (page.parent / link).exists()] + [
        n for n in named if not (ROOT / n).exists()
    ]
    assert missing == []
