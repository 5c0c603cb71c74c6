"""Extensions are imported right after what they extend, whenever that is."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.engines.verl.plugins.loading import extend

ORDER = "order_of_imports"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `extended` whose modules write down when they run."""
    folder = tmp_path / "extended"
    folder.mkdir()
    (tmp_path / f"{ORDER}.py").write_text("seen = []\n")
    note = f"from {ORDER} import seen\nseen.append(__name__)\n"
    for name in ("__init__", "first", "second", "extension", "another"):
        (folder / f"{name}.py").write_text(note)
    (folder / "second.py").write_text(note + "import extended.first\nseen.append('end of second')\n")
    (folder / "broken.py").write_text("raise LookupError('cannot extend')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    yield folder
    sys.meta_path[:] = finders
    for name in [m for m in sys.modules if m.split(".")[0] in ("extended", ORDER)]:
        del sys.modules[name]


def seen() -> list[str]:
    return list(importlib.import_module(ORDER).seen)


def test_an_extension_waits_for_its_module(package: Path) -> None:
    extend("extended.first", "extended.extension")
    import extended.another  # type: ignore[import-not-found]

    assert "extended.extension" not in sys.modules
    import extended.first  # type: ignore[import-not-found]  # noqa: F401

    assert seen()[-2:] == ["extended.first", "extended.extension"]


def test_a_module_that_is_there_already_is_extended_at_once(package: Path) -> None:
    import extended.first  # noqa: F401

    extend("extended.first", "extended.extension")
    assert seen()[-1] == "extended.extension"


def test_a_module_that_is_just_being_imported_is_extended_after_its_end(package: Path) -> None:
    (package / "second.py").write_text(
        f"from {ORDER} import seen\n"
        "from sweep.engines.verl.plugins.loading import extend\n"
        "extend('extended.first', 'extended.extension')\n"
        "import extended.first\n"
        "seen.append('end of second')\n"
    )
    import extended.second  # type: ignore[import-not-found]  # noqa: F401

    assert seen() == ["extended", "extended.first", "extended.extension", "end of second"]


def test_several_extensions_come_in_the_order_in_which_they_were_asked_for(package: Path) -> None:
    extend("extended.first", "extended.another")
    extend("extended.first", "extended.extension")
    import extended.first  # noqa: F401

    assert seen()[-3:] == ["extended.first", "extended.another", "extended.extension"]


def test_an_extension_that_fails_fails_the_import(package: Path) -> None:
    extend("extended.first", "extended.broken")
    with pytest.raises(LookupError, match="cannot extend"):
        import extended.first  # noqa: F401


def test_an_extended_module_looks_like_any_other(package: Path) -> None:
    extend("extended.first", "extended.extension")
    import extended.first as module

    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert "seen.append" in inspect.getsource(module)


def test_the_plug_ins_do_not_import_verl_by_themselves() -> None:
    import subprocess

    script = "import sys, sweep.engines.verl.plugins; print([m for m in sys.modules if m.split('.')[0] == 'verl'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
