"""`LocalActor`: an object of this process where verl expects the handle of a Ray actor.

Saves a process and a call between processes for what is too small to deserve them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any


class LocalActor:
    """`handle.method.remote(...)` calls the object's method at once; the result can be awaited."""

    def __init__(self, actor: object) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(getattr(self._actor, name))


class _Method:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def remote(self, *arguments: Any, **named: Any) -> Awaitable[Any]:
        result = self._function(*arguments, **named)
        return result if inspect.isawaitable(result) else _Done(result)


class _Done:
    """An awaitable that has its result; nothing is lost if nobody awaits it."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def __await__(self) -> Generator[None, None, Any]:
        return self._result
        yield
