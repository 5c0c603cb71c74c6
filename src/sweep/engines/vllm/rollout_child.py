"""`python -m sweep.engines.vllm.rollout_child SPEC`: vLLM in this process, generating rounds for a mailbox's trials.

SPEC is the JSON of `sweep.engines.vllm.rollout_spec`. A round is a training step's rollout without its training: the
same prompts, as many samples, the rollout's sampling, and the sequences end where the model ends them. Whatever goes
wrong ends the process; its console says why.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sweep.core.curve import METRICS
from sweep.engines.machine import describe
from sweep.engines.mailbox import STARTED_VARIABLE, Mailbox, open_mailbox, trials
from sweep.engines.vllm.training_prompts import TrainingPrompts, shared_out


def main(text: str) -> None:
    """Serves the mailbox until it says that there are no more trials."""
    end_with_parent()
    import ray

    ray.init(log_to_driver=False, configure_logging=False)  # RAY_ADDRESS says where
    began = float(os.environ.get(STARTED_VARIABLE) or time.time())
    spec = json.loads(text)
    rollout = Rollout.start(spec)
    serve(rollout, open_mailbox(), time.time() - began)
    rollout.llm.llm_engine.engine_core.shutdown()


def end_with_parent() -> None:
    """When the parent dies this process leaves by `SystemExit`, upon which vLLM ends its own."""
    import ctypes

    def leave(number: int, frame: object) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def serve(rollout: Rollout, mailbox: Mailbox, startup_seconds: float) -> None:
    """Runs the mailbox's trials, one message a round, until it says that there are no more."""
    mailbox.put({"type": "ready", "startup_seconds": startup_seconds})
    for served, command in enumerate(trials(mailbox)):
        _run(rollout, mailbox, str(command["id"]), int(command["steps"]), warm=served > 0)


def _run(rollout: Rollout, mailbox: Mailbox, trial_id: str, rounds: int, *, warm: bool) -> None:
    mailbox.put({"type": "started", "id": trial_id, "reset_seconds": 0.0, "warm": warm, "machine": describe()})
    number, stopped_by = 0, ""
    while number < rounds and not stopped_by:
        number += 1
        metrics = rollout.round()
        print(f"round {number}: {metrics[METRICS['rollout_tokens_per_s']]:.0f} token/s", flush=True)
        stopped_by = mailbox.report_step(trial_id, number, metrics)
    ended = {"type": "ended", "id": trial_id, "last_step": number, "error": "", "stopped_by": stopped_by}
    mailbox.put({**ended, "reusable": True})


@dataclass(slots=True)
class Rollout:
    """A started vLLM and what it is handed in each round."""

    llm: Any
    prompts: Sequence[Any]
    sampling: Sequence[Any]
    replicas: int = 1
    preempted: int = 0

    @classmethod
    def start(cls, spec: Mapping[str, Any]) -> Rollout:
        """Loads vLLM and the prompts; seconds to minutes."""
        from vllm import LLM, SamplingParams
        from vllm.inputs import TokensPrompt

        llm = LLM(**spec["engine"])
        ids = TrainingPrompts(**spec["prompts"]).ids(llm.get_tokenizer())
        ids = shared_out(ids, spec["samples"], spec["sequences"])
        room = spec["prompt_tokens"] + spec["response_tokens"]
        lengths = [max(1, min(spec["response_tokens"], room - len(prompt))) for prompt in ids]
        return cls(
            llm,
            [TokensPrompt(prompt_token_ids=prompt) for prompt in ids],
            [SamplingParams(max_tokens=length, **spec["sampling"]) for length in lengths],
            spec["replicas"],
        )

    def round(self) -> dict[str, float]:
        """Generates for every prompt once; the metrics as the trainer's plug-ins log them for a step.

        The prefix cache is empty at first, as it is after each update of the weights.
        """
        self.llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = self.llm.generate(list(self.prompts), list(self.sampling), use_tqdm=False)
        seconds = time.perf_counter() - began
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        before, self.preempted = self.preempted, preemptions(self.llm)
        found = {
            "rollout_tokens_per_s": self.replicas * tokens / seconds,
            "gen_seconds": seconds,
            "response_tokens": tokens / len(outputs),
            "preemptions": float(self.replicas * (self.preempted - before)),
            **memory(self.llm),
        }
        return {METRICS[name]: value for name, value in found.items()}


def preemptions(llm: Any) -> int:
    """Requests that vLLM took off the device so far, for want of cache."""
    return int(sum(m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions"))


def memory(llm: Any) -> dict[str, float]:
    """GiB of the device with least: free now, and the most that was allocated at once; nothing without a GPU."""
    read = [one for one in llm.collective_rpc("sweep_memory") if one]
    if not read:
        return {}
    return {
        "free_gib": min(one["free_gib"] for one in read),
        "peak_gib": max(one["peak_allocated_gib"] for one in read),
    }


if __name__ == "__main__":
    main(sys.argv[1])
