"""A fake verl: a process that speaks the mailbox protocol, holds a placement group and a worker, and trains nothing.

Run by a host as `python fake_trainer.py [never_ready]`. A trial's override `fake=...` says how it goes: `ok`, `slow`,
`hang`, `die`, `exit0`, `error`, `broken`, `noisy`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import ray
from ray.util.placement_group import placement_group


@ray.remote
class Worker:
    def pid(self) -> int:
        return os.getpid()


class FakeTrainer:
    def __init__(self) -> None:
        self.mailbox = ray.get_actor(os.environ["SWEEP_MAILBOX"], namespace="sweep")
        self.served = 0

    def call(self, method: str, *arguments: object) -> Any:
        return ray.get(getattr(self.mailbox, method).remote(*arguments))

    def serve(self) -> None:
        while True:
            command = self.call("take", 1.0)
            if command and command["type"] == "end":
                return
            if command:
                self.run(command)

    def run(self, command: dict[str, Any]) -> None:
        how = next((o.split("=", 1)[1].strip("'") for o in command["overrides"] if o.startswith("+fake=")), "ok")
        trial = command["id"]
        self.call("put", {"type": "started", "id": trial, "reset_seconds": 0.1, "warm": self.served > 0})
        self.served += 1
        for step in range(1, command["steps"] + 1):
            time.sleep(0.2 if how == "slow" else 0.01)
            if how != "ok" and how != "slow" and how != "noisy" and step == 3:
                self.misbehave(how, trial)
                return
            metrics = {"critic/score/mean": 0.1 * step, "pid": float(os.getpid())}
            self.call("put", {"type": "step", "id": trial, "step": step, "metrics": metrics})
            if reason := self.call("stop_request", trial):
                self.end(trial, step, stopped_by=reason)
                return
        if how == "noisy":
            raise RuntimeError("the destructor of something failed")
        self.end(trial, command["steps"])

    def misbehave(self, how: str, trial: str) -> None:
        if how == "hang":
            time.sleep(600)
        if how == "die":
            raise RuntimeError("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
        if how == "exit0":
            raise SystemExit(0)
        self.end(trial, 2, error=f"ValueError: a bad {how}", reusable=how != "broken")

    def end(self, trial: str, step: int, error: str = "", stopped_by: str = "", reusable: bool = True) -> None:
        message = {"last_step": step, "error": error, "stopped_by": stopped_by, "reusable": reusable}
        self.call("put", {"type": "ended", "id": trial, **message})


def main() -> None:
    ray.init(log_to_driver=True)
    group = placement_group([{"CPU": 3, "GPU": 0.5}])
    ray.get(group.ready())
    environment = {"env_vars": {"SWEEP_MAILBOX": os.environ["SWEEP_MAILBOX"]}}
    worker = Worker.options(num_gpus=0.25, num_cpus=1, runtime_env=environment).remote()  # type: ignore[attr-defined]
    print("worker", ray.get(worker.pid.remote()), flush=True)
    trainer = FakeTrainer()
    if sys.argv[1:] == ["never_ready"]:
        time.sleep(600)
    trainer.call("put", {"type": "ready", "startup_seconds": 1.0})
    trainer.serve()


if __name__ == "__main__":
    main()
