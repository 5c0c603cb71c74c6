"""With one rollout server there is nothing to balance: its client finds it without asking another process first.

Several servers, or a router that the configuration names, are balanced by verl's own actor.

Source: verl workers/rollout/router.py, `get_router_handle`, and llm_server.py, `LLMServerClient`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl.workers.rollout import router

from sweep.engines.verl.plugins.local_actor import LocalActor

_own_handle = router.get_router_handle


class OnlyServer:
    """What a load balancer answers if there is one server."""

    def __init__(self, name: str, handle: Any) -> None:
        self._server = (name, handle)

    def require_acquire_fields(self) -> list[str]:
        """Nothing of a request decides where it goes."""
        return []

    def require_release_fields(self) -> list[str]:
        """Nothing is counted."""
        return []

    def acquire_server(self, request_id: str, **fields: Any) -> tuple[str, Any]:
        """The server, always."""
        return self._server

    def release_server(self, server_id: str, **fields: Any) -> None:
        """Nothing is held."""


def get_router_handle(servers: Mapping[str, Any], router_config_path: str | None = None, **options: Any) -> Any:
    """The only server's stand-in for a balancer, else verl's."""
    if len(servers) == 1 and not router_config_path and options.get("load_balancer_cls") is None:
        ((name, handle),) = servers.items()
        return LocalActor(OnlyServer(name, handle))
    return _own_handle(servers=servers, router_config_path=router_config_path, **options)


router.get_router_handle = get_router_handle
