"""`python -m sweep.pressure model=PATH`: does vLLM with these settings leave enough memory free under load?

Starts a real vLLM server, sends it 10 concurrent requests of 128 tokens, round after round for some seconds, while
free memory is sampled, and ends it. `model=NAME` takes a preset of conf/model and its settings; options override them.

exit codes: 0 passes, 1 the server did not run, for another reason than its settings, 2 configuration (vllm, a GPU or
the model is missing), 3 fails the check, 130 interrupted
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sweep.arguments import Parser, count
from sweep.errors import ConfigError, SweepError
from sweep.report.progress import say

if TYPE_CHECKING:
    from sweep.engines.vllm.pressure_run import PressureReport, TakeSamples
    from sweep.engines.vllm.server import ServerSettings

PASSES, INTERRUPTED, FAILS, TERMINATED = 0, 130, 3, 143

START_SECONDS = 900.0
"""How long the server may take to become ready: a first start compiles and captures graphs for minutes. Ours."""

REQUEST_SECONDS = 300.0
"""How long one request may take. Ours."""

CHECK_SECONDS = 5.0
"""How long the check loads the server at least: memory is to be *steady*, not only large once. Ours."""

SAMPLE_SECONDS = 0.2
"""Between samples of free memory. Ours: a round of a small model takes a second."""

ASSETS = Path("runs") / "assets"
"""Where a generated model is made, or found if a campaign made it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check, print what came out and return the exit code."""
    options = _parser().parse_intermixed_args(arguments)
    signal.signal(signal.SIGTERM, _terminate)  # the server is ended on the way out
    try:
        report = run(options)
    except SweepError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    except KeyboardInterrupt:
        print("error: interrupted; everything that was started has been ended", file=sys.stderr)
        return INTERRUPTED
    say(json.dumps(report.to_json(), indent=2) if options.json else report.as_text())
    return PASSES if report.passed else FAILS


def run(options: argparse.Namespace) -> PressureReport:
    """The check from start to end; the processes that it started are gone when it returns or raises.

    Raises:
        ConfigError: vllm, a GPU or the model is missing.
        EngineError: the server did not run, for another reason than its settings.
    """
    from dataclasses import replace

    from sweep.engines.verl.model_facts import read_model
    from sweep.engines.vllm.environment import require
    from sweep.engines.vllm.pressure_run import Load, measure
    from sweep.engines.vllm.server import VllmServer
    from sweep.health.doctor import classify
    from sweep.health.pressure_verdict import DEFAULT

    settings = server_settings(options)
    require(settings.model)
    load = Load(options.requests, options.max_tokens, options.prompt_tokens, options.seconds, REQUEST_SECONDS)
    longer = replace(load, requests=options.load_requests or options.requests, seconds=options.load_seconds)
    with _sampling(options, settings.tensor_parallel_size) as (devices, take):
        folder = Path(options.log or tempfile.mkdtemp(prefix="sweep-pressure-"))
        console = folder / "server.log"
        _say(f"starting vLLM with {settings.model}; its console: {console}")
        report = measure(
            lambda: VllmServer(settings, console, classify),
            [load, longer] if options.load_seconds > 0 else [load],
            take,
            start_seconds=options.start_seconds,
            vocabulary=read_model(settings.model).vocabulary,
            limits=replace(DEFAULT, free_gib=options.free_gib),
            devices=devices,
            say=_say,
        )
    if report.passed and not options.log:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def server_settings(options: argparse.Namespace) -> ServerSettings:
    """The server's settings: options over the preset's, where the model is named by one.

    Raises:
        ConfigError: no model was named, or there is no such preset.
    """
    from sweep.core import verl_keys as keys
    from sweep.engines.vllm.server import ServerSettings

    given = dict(part.split("=", 1) if "=" in part else ("model", part) for part in options.model)
    if not given or given.keys() - {"model", "model.path"}:
        raise ConfigError(f"wanted model=PATH, or model=PRESET and model.path=PATH, got {' '.join(options.model)!r}")
    path, preset = _path_and_preset(given)

    def chosen(option: Any, key: str) -> Any:
        return preset.get(key) if option is None else option

    return ServerSettings(
        model=path,
        gpu_memory_utilization=chosen(options.gpu_memory_utilization, keys.MEMORY_UTILIZATION),
        max_num_batched_tokens=chosen(options.max_num_batched_tokens, keys.MAX_BATCHED_TOKENS),
        max_num_seqs=chosen(options.max_num_seqs, keys.MAX_SEQS),
        max_model_len=options.max_model_len,
        tensor_parallel_size=chosen(options.tensor_parallel_size, keys.TENSOR_PARALLEL) or 1,
        more=tuple(options.vllm),
    )


def _path_and_preset(given: dict[str, str]) -> tuple[str, dict[str, object]]:
    """Where the model is, and the preset's verl settings; none for a model that is named by its path."""
    name = given.get("model", "")
    if "/" in name or Path(name).expanduser().is_dir() or not name:
        return given.get("model.path", name), {}
    from sweep.config import compose
    from sweep.settings_text import parse_settings
    from sweep.tasks import assets, tiny_model

    model = compose([f"{key}={value}" for key, value in given.items()]).model
    path = str(tiny_model.make(ASSETS)) if model.path == assets.GENERATED else model.path
    return path, dict(parse_settings(model.verl, f"model {name}"))


@contextlib.contextmanager
def _sampling(options: argparse.Namespace, gpus: int) -> Iterator[tuple[tuple[str, ...], TakeSamples]]:
    """Names of the devices that the server uses, and what gives the samples of them since its last call.

    Raises:
        ConfigError: there are fewer GPUs than wanted.
    """
    from sweep.adapters.gpu_reading import NvmlReader
    from sweep.adapters.gpu_sampler import GpuSampler
    from sweep.adapters.host_memory import read_host_memory
    from sweep.core.visible_gpus import visible

    reader = NvmlReader(pcie=False)
    found = read_host_memory() if options.cpu else visible(reader(), os.environ.get("CUDA_VISIBLE_DEVICES"))[:gpus]
    if len(found) < (1 if options.cpu else gpus):
        raise ConfigError(
            f"the server needs {gpus} NVIDIA GPU(s), but this process sees {len(found)}"
            f"{': ' + reader.problem if reader.problem else ''}; with --cpu vLLM's CPU build is checked against the "
            "host's memory"
        )
    used, began = {reading.index for reading in found}, time.time()
    sampler = GpuSampler(read_host_memory if options.cpu else reader, SAMPLE_SECONDS)
    try:
        yield (
            tuple(f"{r.name}, {r.total_gib or 0:.1f} GiB" for r in found),
            lambda: [reading.sample(began) for reading in sampler.take() if reading.index in used],
        )
    finally:
        sampler.close()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _terminate(number: int, frame: object) -> NoReturn:
    sys.exit(TERMINATED)


def _parser() -> argparse.ArgumentParser:
    from sweep.health.pressure_verdict import DEFAULT, MAX_TOKENS, REQUESTS

    parser = Parser(
        prog="python -m sweep.pressure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", nargs="*", metavar="model=PATH", help="a model's folder or hub name, or a preset: model=smollm2-135m")
    add("--requests", type=count, default=REQUESTS, help="concurrent requests (%(default)s)")
    add("--max-tokens", type=count, default=MAX_TOKENS, help="tokens that each generates (%(default)s)")
    add("--prompt-tokens", type=count, default=MAX_TOKENS, help="tokens of each prompt (%(default)s)")
    add("--seconds", type=float, default=CHECK_SECONDS, help="how long rounds go on at least (%(default)s)")
    add("--load-seconds", type=float, default=0.0, help="a longer load after the check, for its throughput (none)")
    add("--load-requests", type=count, help="concurrent requests of the longer load (as many)")
    add("--free-gib", type=float, default=DEFAULT.free_gib, help="memory that must stay free (%(default)s)")
    add("--start-seconds", type=float, default=START_SECONDS, help="time that the server has to start (%(default)s)")
    add("--gpu-memory-utilization", type=float, help="share of the GPU for vLLM (the preset's, else vLLM's)")
    add("--max-num-batched-tokens", type=count, help="token budget of a scheduler step (likewise)")
    add("--max-num-seqs", type=count, help="sequences of a scheduler step (likewise)")
    add("--max-model-len", type=count, help="longest sequence (the model's)")
    add("--tensor-parallel-size", type=count, help="GPUs that share the model (the preset's, else 1)")
    add(
        "--vllm",
        action="append",
        default=[],
        metavar="OPTION",
        help="a further option of vllm serve: --vllm=--dtype=half",
    )
    add("--cpu", action="store_true", help="vLLM's CPU build: the host's free memory stands in for a GPU's")
    add("--log", metavar="FOLDER", help="where to keep the server's console (kept anyway if the server fails)")
    add("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
