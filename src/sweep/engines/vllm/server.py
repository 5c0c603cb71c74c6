"""`VllmServer`: a real vLLM OpenAI server on loopback, in a session of its own; `ServerSettings`, `ServerFailed`."""

from __future__ import annotations

import http.client
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from sweep.core.failure import FailureClass
from sweep.ending import Classify
from sweep.engines.vllm.console import evidence
from sweep.engines.vllm.environment import variables
from sweep.engines.vllm.own_process import OwnProcess
from sweep.errors import EngineError

HOST = "127.0.0.1"

SERVED_NAME = "model"
"""What requests call the model, whatever its path."""

POLL_SECONDS = 0.5
"""Between two looks whether the server is ready."""

ANSWER_SECONDS = 5.0
"""How long a server that is ready may take to say so. Ours."""


class ServerFailed(EngineError):
    """The server did not come up or died; `failure_class` and `cause` are what its console says."""

    def __init__(self, message: str, failure_class: FailureClass, cause: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.cause = cause


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the server is started with; None leaves vLLM's own default. `more` are further options of `vllm serve`."""

    model: str
    gpu_memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int = 1
    more: tuple[str, ...] = ()

    def arguments(self, port: int) -> list[str]:
        """Arguments of Python that start the server. Source: vLLM 0.24.0 entrypoints/openai/api_server.py."""
        options = {
            "--model": self.model,
            "--served-model-name": SERVED_NAME,
            "--host": HOST,
            "--port": port,
            "--tensor-parallel-size": self.tensor_parallel_size,
            "--gpu-memory-utilization": self.gpu_memory_utilization,
            "--max-num-batched-tokens": self.max_num_batched_tokens,
            "--max-num-seqs": self.max_num_seqs,
            "--max-model-len": self.max_model_len,
        }
        chosen = [part for name, value in options.items() if value is not None for part in (name, str(value))]
        return ["-m", "vllm.entrypoints.openai.api_server", *chosen, *self.more]


class VllmServer:
    """Starting on construction; `await_ready` before it is asked anything, `close` in any case."""

    def __init__(self, settings: ServerSettings, log_path: Path, classify: Classify) -> None:
        self.settings = settings
        self.log_path = log_path
        self.port = free_port()
        self._classify = classify
        self._process = OwnProcess(settings.arguments(self.port), variables(settings.model), log_path)

    def await_ready(self, timeout_seconds: float) -> float:
        """Seconds that it took.

        Raises:
            ServerFailed: if it ended, or was not ready in time.
        """
        began = time.monotonic()
        while (waited := time.monotonic() - began) < timeout_seconds:
            if self._process.exit_code() is not None:
                raise self.failure("ended before it was ready")
            if healthy(self.port):
                return waited
            time.sleep(POLL_SECONDS)
        raise ServerFailed(
            f"the vLLM server was not ready within {timeout_seconds:g} s; log: {self.log_path}",
            FailureClass.HANG,
            "it did not become ready",
        )

    def failure(self, what: str) -> ServerFailed:
        """The error for a server that did so, with the cause from its console."""
        seen = self._classify(evidence(self._process.log_text()))
        code = self._process.exit_code()
        ending = "" if code is None else f" (exit code {code})"
        because = f": {seen.text}" if seen.text else ""
        message = f"the vLLM server {what}{ending}{because}; log: {self.log_path}"
        return ServerFailed(message, seen.failure_class, seen.text)

    def members(self) -> list[int]:
        """Ids of the server's processes."""
        return self._process.members()

    def close(self) -> None:
        """End the server and wait until its processes are gone. Safe to call again.

        Raises:
            EngineError: if some are not.
        """
        left = self._process.end()
        if left:
            raise EngineError(f"the vLLM server did not end; processes left: {left}; log: {self.log_path}")


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def healthy(port: int) -> bool:
    """Whether a server there says that it can answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
