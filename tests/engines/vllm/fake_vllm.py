"""A fake vLLM: a package `vllm` in a folder, for processes that the product starts as it starts the real one.

The fake server answers `/health` and `/v1/completions` as vLLM 0.24.0 does and has a child, as vLLM has its engine;
the fake `LLM` counts tokens. `FAKE_VLLM` in the environment names what goes wrong.
"""

from __future__ import annotations

from pathlib import Path

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 3.02 GiB is free."
)
NO_CACHE = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
    "the engine."
)

SERVER = """
import json, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

mode = os.environ.get("FAKE_VLLM", "")
print("(APIServer pid=1) WARNING 11-30 14:46:09 [system_utils.py:299] Found ulimit of 20000. This can cause fd limit "
      "errors like `OSError: [Errno 24] Too many open files`.", flush=True)
print("args:", sys.argv[1:], flush=True)
if mode == "oom":
    sys.exit("OOM_TEXT")
if mode == "no cache":
    sys.exit("CACHE_TEXT")
if mode == "broken":
    sys.exit("ModuleNotFoundError: No module named 'vllm._C'")
if mode == "hang":
    time.sleep(600)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
answered = []

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/completions" and body["model"] == "model" and body["ignore_eos"] is True
        time.sleep(float(os.environ.get("FAKE_VLLM_SECONDS", "0.05")))
        answered.append(1)
        if mode == "dies under load" and len(answered) > 5:
            print("OOM_TEXT", flush=True)
            os._exit(1)
        status, tokens = (500, 0) if mode == "errors" else (200, body["max_tokens"] - (mode == "short"))
        reply = json.dumps({"usage": {"completion_tokens": tokens, "prompt_tokens": len(body["prompt"])}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *arguments):
        pass

ThreadingHTTPServer.request_queue_size = 128
port = int(sys.argv[sys.argv.index("--port") + 1])
host = sys.argv[sys.argv.index("--host") + 1]
ThreadingHTTPServer((host, port), Handler).serve_forever()
""".replace("OOM_TEXT", OUT_OF_MEMORY).replace("CACHE_TEXT", NO_CACHE)

ENGINE = '''
import os, sys, time
from types import SimpleNamespace

__version__ = "0.0.fake"
mode = os.environ.get("FAKE_VLLM", "")

class SamplingParams:
    """A response that may end by itself does so halfway."""

    def __init__(self, temperature, max_tokens, ignore_eos, logprobs, top_p=1.0, top_k=-1):
        assert (temperature, top_p, top_k) == (1.0, 1.0, -1)
        self.max_tokens = max_tokens if ignore_eos else max_tokens // 2

class Tokenizer:
    """Counts the words of the messages."""

    def apply_chat_template(self, messages, add_generation_prompt, tokenize, return_dict):
        assert (add_generation_prompt, tokenize, return_dict) == (True, True, False)
        return [len(word) for message in messages for word in message["content"].split()]

class LLM:
    """As fast as its token budget says; a budget over 100 does not fit."""

    def __init__(self, *, max_num_batched_tokens, max_num_seqs, disable_log_stats, **arguments):
        assert disable_log_stats is False
        print("devices:", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
        print("WARNING 11-30 14:46:09 [x.py:1] errors like torch.OutOfMemoryError may happen", flush=True)
        if mode == "engine hangs":
            time.sleep(600)
        if mode == "engine broken":
            raise ModuleNotFoundError("No module named 'vllm._C'")
        if max_num_batched_tokens > 100:
            print("(EngineCore pid=2) OOM_TEXT", flush=True)
            raise RuntimeError("Engine core initialization failed. See root cause above.")
        self.budget, self.preemptions, self.rounds = max_num_batched_tokens, 0, 0
        cache = SimpleNamespace(kv_cache_size_tokens=None, num_gpu_blocks=10, block_size=16)
        engine = SimpleNamespace(shutdown=lambda: None)
        self.arguments, self.resets = arguments, 0
        self.llm_engine = SimpleNamespace(vllm_config=SimpleNamespace(cache_config=cache), engine_core=engine)
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 64)

    def generate(self, prompts, sampling, use_tqdm):
        assert len(prompts) == len(sampling) and max(max(p["prompt_token_ids"]) for p in prompts) < 64
        tokens = sum(s.max_tokens for s in sampling)
        time.sleep(tokens / (self.budget * 100))
        self.rounds, self.preemptions = self.rounds + 1, self.preemptions + 3
        if mode == "dies in round 2" and self.rounds == 2:
            print("(EngineCore pid=2) OOM_TEXT", flush=True)
            raise RuntimeError("EngineDeadError")
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[0] * s.max_tokens)]) for s in sampling]

    def get_tokenizer(self):
        return Tokenizer()

    def reset_prefix_cache(self):
        self.resets += 1

    def get_metrics(self):
        return [SimpleNamespace(name="vllm:num_preemptions", value=self.preemptions)]

    def collective_rpc(self, method):
        assert method == "sweep_memory"
        return [{"peak_allocated_gib": 10.0 + self.rounds, "peak_reserved_gib": 12.0 + self.rounds,
                 "free_gib": 60.0 - self.rounds, "total_gib": 80.0}]
'''.replace("OOM_TEXT", OUT_OF_MEMORY)


def write_fake_vllm(folder: Path) -> Path:
    """The folder, now with the fake package in it, ready for PYTHONPATH."""
    entrypoints = folder / "vllm" / "entrypoints" / "openai"
    entrypoints.mkdir(parents=True)
    for package in (entrypoints, entrypoints.parent):
        (package / "__init__.py").write_text("")
    (folder / "vllm" / "__init__.py").write_text(ENGINE)
    (folder / "vllm" / "inputs.py").write_text("TokensPrompt = dict\n")
    (entrypoints / "api_server.py").write_text(SERVER)
    return folder
