"""`extend`: import one module right after another, whenever that happens.

A finder in front of Python's own ones notices the import of an awaited module and lets it run to its end first.
Errors in an extension are raised to whoever imported the extended module: a plug-in that is missing silently would
train something else than was asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_awaited: dict[str, list[str]] = {}


def extend(module: str, extension: str) -> None:
    """Import `extension` after `module`: at once if `module` is there already, else right after its own import."""
    if module in sys.modules and not _is_loading(sys.modules[module]):
        importlib.import_module(extension)
        return
    _awaited.setdefault(module, []).append(extension)
    if not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Watcher(MetaPathFinder):
    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _awaited or fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ExtendingLoader(spec.loader)
        return spec


class _ExtendingLoader(Loader):
    """The module's own loader, followed by the extensions."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        for extension in _awaited.pop(module.__name__, ()):
            importlib.import_module(extension)
