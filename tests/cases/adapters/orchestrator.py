"""Answers for `orchestrator`: campaigns played over a scripted engine, logs through the doctor, rules on records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep.cli import HELP
from sweep.core.decision import Ask, Launch
from sweep.core.failure import FailureClass
from sweep.core.outcome import Diverged, Failed, Finished, Outcome
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.progress import Progress, Record
from sweep.core.trial import Trial
from sweep.ending import Ending, Run, outcome_of
from sweep.engines.verl.settings import EngineSettings, complete
from sweep.health.doctor import classify
from sweep.report.summary import stage_lines, write_summary
from sweep.stages import decide
from tests.adapters.store_stages import finished
from tests.fakes import Script, flat_metrics

from . import doctor
from .played import KEYS, STEPS, Played, failing, scoring, settings

SLOW = Script(step_seconds=1e6)
OUTCOMES: dict[str, Callable[[], Outcome]] = {
    "COMPLETE": finished,
    "PRUNED": lambda: Diverged(finished().curve, "stopped"),
    "FAIL_env": lambda: Failed(FailureClass.ENV_FAULT, "environment"),
    "FAIL": lambda: Failed(FailureClass.OOM_GPU, "out of memory"),
}


def trial_events(given: Mapping[str, Any]) -> dict[str, Any]:
    """A log and the step it reached, attempts at one trial, or a stage of trials, whichever the case tells."""
    if "log_text" in given:
        return ended(given)
    if any("attempt" in event for event in given["events"]):
        return attempts(given)
    return stage_of_trials(given)


def ended(given: Mapping[str, Any]) -> dict[str, Any]:
    """The doctor's diagnosis; the trial's state is the fleet's own judgement of where the run stood."""
    answer = doctor.log_text(given)
    if "total_steps" in given:
        run = Run(Trial(NOTHING, 0, given["total_steps"]), ready=True, started_at=0.0)
        run.rows = {step: flat_metrics(step) for step in range(1, given["last_step"] + 1)}
        ending = Ending(gone=True, exit_code=given["rc"])
        outcome = outcome_of(run, ending, 1.0, given["log_text"], Path("log"), classify)
        answer["trial_state"] = "COMPLETE" if isinstance(outcome, Finished) else "FAIL"
        answer["counts_as_result"] = isinstance(outcome, Finished)
    answer["tag"] = "teardown_warning" if answer["class"] == "TEARDOWN" else answer["class"].lower()
    answer["retry_mode"] = answer["text"]
    return answer


def attempts(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a trial that failed some times before it ended: trials in the study, attempts, state."""
    events = sorted(given["events"], key=lambda event: event["attempt"])
    scripts = [failing(e["code"]) if e.get("code") else Script(metrics=scoring(e["value"])) for e in events]
    chosen = settings(next(e["params"] for e in events if "params" in e))
    remaining = iter(scripts)
    played = Played(lambda trial, warm: next(remaining))
    trial = played.begin(chosen)
    while played.waiting():
        played.campaign._attend()
    (record,) = played.store.records(played.stage)
    answer = {
        "trials_in_study": len(played.store.records(played.stage)),
        "attempts": len(played.store.attempts(played.stage, trial.id)),
        "final": "COMPLETE" if record.finished else "FAIL",
        "text": "",
    }
    played.close()
    return answer


def stage_of_trials(given: Mapping[str, Any]) -> dict[str, Any]:
    """How a stage ends of which some trials failed: rows of its summary, exit code, winner."""
    events = {event["trial"]: event for event in given["events"]}
    chosen = {number: NOTHING if number == 0 else settings({"kl": number * 1e-3}) for number in sorted(events)}
    numbers = {s: n for n, s in chosen.items()}

    def script(trial: Trial, warm: bool) -> Script:
        event = events[numbers[trial.overrides]]
        return failing(event["code"]) if event.get("code") else Script(metrics=scoring(event["value"]))

    played = Played(script, start=[s for s in chosen.values() if s != NOTHING], trials=len(events))
    (winner,) = played.campaign.run()
    failed = write_summary(played.plan, played.store, played.folder, None).failed_trials
    (line,) = stage_lines(played.plan, played.store)
    good = line.trials - len(line.failures)
    played.close()
    return {
        "summary_table_rows": good + failed,
        "exit_code": f"a value of its own when finished with failed trials: {_documented(4)}" if failed else "0",
        "best_trial": numbers[winner.choice.settings],
        "text": "; ".join(line.failures),
    }


def _documented(exit_code: int) -> str:
    line = next(line for line in HELP.splitlines() if line.startswith("exit codes:"))
    return next(part for part in line.split(",") if part.strip().startswith(str(exit_code)))


def proposals(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the campaign does with each proposal, given what it has done, is running and has failed at."""
    running = {Trial(settings(values), 0, STEPS).id for values in given.get("running", ())}
    faulty = {Trial(settings(values), 0, STEPS).id for values in given.get("failed_env", ())}
    slow = [False]

    def script(trial: Trial, warm: bool) -> Script:
        return SLOW if slow[0] or trial.id in running else Script()

    played = Played(script, start=[settings(v) for v in given["proposed"]], slots=32)
    for values in given.get("failed_env", ()):
        trial = Trial(settings(values), 0, STEPS)
        played.store.intend(played.stage, _proposal(values), trial)
        played.store.settle(played.stage, trial, OUTCOMES["FAIL_env"](), None)
    for values in given.get("done", ()):
        played.begin(settings(values))
        while played.waiting():
            played.campaign._attend()
    for values in given.get("running", ()):
        played.begin(settings(values))
    slow[0] = True
    decisions = []
    for values in given["proposed"]:
        before = set(played.waiting())
        trial = played.begin(settings(values))
        if trial.id in before:
            decisions.append("skip (running)")
        elif trial.id not in played.waiting():
            decisions.append("reuse finished result")
        else:
            decisions.append("run (earlier failure was the environment)" if trial.id in faulty else "run")
    attempts_made = len(played.trained()) + len(played.fleet._queue)
    assert attempts_made <= len(given.get("done", ())) + len(running) + len(decisions)
    played.close()
    return {"decisions": decisions, "text": "; ".join(decisions)}


def _proposal(values: Mapping[str, Any]) -> Any:
    from sweep.core.progress import Proposal

    return Proposal(settings(values), 0, settings(values))


def budget(given: Mapping[str, Any]) -> dict[str, Any]:
    """How many trials the rule starts on top of those that ended and run."""
    ends = [OUTCOMES[kind]() for kind, count in given["finished"].items() for _ in range(count)]
    return {"start_now": len(_to_start(given["planned_total"], [*ends, *[None] * given["running"]])), "text": ""}


def _to_start(planned: int, outcomes: list[Outcome | None]) -> list[Record]:
    """The records that the search adds to the given ones until it starts no more."""
    played = Played(lambda trial, warm: Script(), trials=planned)
    records = [_record(number, outcome) for number, outcome in enumerate(outcomes)]
    added: list[Record] = []
    while len(added) <= planned:
        decision = decide(played.stage, Progress(NOTHING, (*records, *added), (0,)))
        match decision:
            case Ask(count):
                added += [_record(len(records) + len(added) + i, None) for i in range(count)]
            case Launch(wanted):
                added += [Record(Trial(p.settings, p.seed, STEPS), p.settings, p.requested) for p in wanted]
            case _:
                break
    played.close()
    return added


def _record(number: int, outcome: Outcome | None) -> Record:
    """The record of the nth candidate; the first is the baseline."""
    chosen = NOTHING if number == 0 else Overrides.of({KEYS["kl"]: number * 1e-4})
    return Record(Trial(chosen, 0, STEPS), chosen, chosen, outcome=outcome)


def launch(given: Mapping[str, Any]) -> dict[str, Any]:
    """Where the files of trials go that start together."""
    played = Played(lambda trial, warm: Script(), slots=given["count"])
    trials = [Trial(settings({"kl": n * 1e-3}), 0, STEPS) for n in range(1, given["count"] + 1)]
    folders = [str(played.campaign.folder(trial)) for trial in trials]
    said = [complete(t, f, EngineSettings(on_cpu=True), False) for t, f in zip(trials, folders, strict=True)]
    named = {str(s.get("trainer.default_local_dir")) for s in said}
    played.close()
    assert all(any(name.startswith(folder) for folder in folders) for name in named)
    action = (
        "each trial has a directory of its own under the campaign's, named by the trial's content id and never by the "
        "time; the child gets it explicitly (trainer.default_local_dir), created with its attempt"
    )
    return {"distinct_dirs": len(named), "action": action, "text": action}


def resumed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The next number in the study and how many trials are still to run, the orphans included."""
    played = Played(lambda trial, warm: Script(), trials=given["planned_total"])
    ends = [finished()] * given["finished"] + [None] * given["orphaned"]
    for number, outcome in enumerate(ends):
        record = _record(number, outcome)
        played.store.intend(played.stage, replace(_proposal({}), settings=record.settings), record.trial)
        if outcome is not None:
            played.store.settle(played.stage, record.trial, outcome, None)
    played.fleet.close()
    played.store.close()
    played.open()
    orphans = len(played.store.orphans())
    fresh = _to_start(given["planned_total"], list(ends))
    played.begin(Overrides.of({KEYS["kl"]: 0.5}))
    number = max(t.number for t in played.store._storage.get_all_trials(1))
    played.close()
    return {"next_trial_id": number, "to_run": orphans + len(fresh), "text": ""}


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "trial_events": trial_events,
    "proposals": proposals,
    "budget": budget,
    "launch": launch,
    "study_resume": resumed,
}
