"""A process that speaks the mailbox protocol and ends every trial after one step: what is left is orchestration."""

from __future__ import annotations

import ray

from sweep.engines.mailbox import open_mailbox, trials

METRICS = {"critic/score/mean": 0.5, "timing_s/step": 1.0, "sweep/rollout_tokens_per_s": 100.0}


def main() -> None:
    """Serve trials until told to end."""
    ray.init(log_to_driver=False)
    mailbox = open_mailbox()
    mailbox.put({"type": "ready", "startup_seconds": 0.0})
    for served, command in enumerate(trials(mailbox)):
        trial = command["id"]
        mailbox.put({"type": "started", "id": trial, "reset_seconds": 0.0, "warm": served > 0})
        mailbox.report_step(trial, 1, METRICS)
        done = {"last_step": 1, "error": "", "stopped_by": "", "reusable": True}
        mailbox.put({"type": "ended", "id": trial, **done})


if __name__ == "__main__":
    main()
