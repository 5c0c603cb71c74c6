"""`MemoryBound`: what trials that ran out of GPU memory rule out, so that no larger one is tried.

Memory grows with the settings in `GROWS` and does not depend on those in `NEUTRAL`. A trial that differs from one that
ran out of memory in nothing else, and is nowhere smaller, would run out of it too. Source: METHOD sections 4 and 8.
"""

from __future__ import annotations

from sweep.core import verl_keys as keys
from sweep.core.failure import FailureClass
from sweep.core.outcome import Failed, Finished, Outcome
from sweep.core.overrides import Overrides, bare
from sweep.core.trial import Measure, Trial

GROWS = frozenset(
    {
        keys.MAX_BATCHED_TOKENS,
        keys.MAX_SEQS,
        keys.ACTOR_MICRO_BATCH,
        keys.LOG_PROB_MICRO_BATCH,
        keys.REF_MICRO_BATCH,
        keys.CRITIC_MICRO_BATCH,
        keys.ACTOR_TOKENS,
        keys.RESPONSE_LENGTH,
        keys.PROMPT_LENGTH,
    }
)
"""Settings that take more memory the larger they are, all else equal. `gpu_memory_utilization` is none of them: more
of it takes memory from training and gives it to the rollout, which may need it."""

NEUTRAL = frozenset({keys.ACTOR_LR, keys.LAM, keys.KL_COEF, keys.KL_TYPE, keys.SCHEDULE_STEPS})
"""Settings that change what is computed, not how much is held."""

NEUTRAL_SECTIONS = ("algorithm.kl_ctrl.", "actor_rollout_ref.actor.optim.", "critic.optim.")


class MemoryBound:
    """The trials of a campaign that ran out of GPU memory, and what finished.

    A trial that ran out although one that needs as much finished did so by chance, and rules nothing out.
    """

    def __init__(self) -> None:
        self._over: list[Trial] = []
        self._finished: dict[tuple[Measure, Overrides], None] = {}

    def learn(self, trial: Trial, outcome: Outcome | None) -> None:
        """Take note of how the trial ended."""
        if isinstance(outcome, Finished):
            self._finished[trial.measure, _footprint(trial.overrides)] = None
            self._over = [over for over in self._over if not _refutes(trial.measure, trial.overrides, over)]
        elif isinstance(outcome, Failed) and outcome.failure_class is FailureClass.OOM_GPU:
            by_chance = any(_refutes(measure, settings, trial) for measure, settings in self._finished)
            if not by_chance and self.rules_out(trial) is None:
                self._over.append(trial)

    def rules_out(self, trial: Trial) -> Trial | None:
        """A trial that ran out of memory and needed no more of it than this one, None if there is none."""
        alike = (over for over in self._over if over.measure is trial.measure)
        return next((over for over in alike if needs_as_much(trial.overrides, over.overrides)), None)


def _footprint(settings: Overrides) -> Overrides:
    """The settings without those that take no memory: few are different however many trials there are."""
    return Overrides.of([(key, value) for key, value in settings if not _is_neutral(key)])


def _refutes(measure: Measure, settings: Overrides, over: Trial) -> bool:
    return measure is over.measure and needs_as_much(settings, over.overrides)


def needs_as_much(settings: Overrides, over: Overrides) -> bool:
    """Whether the settings need at least the memory that `over` needs; False whenever that is not certain."""
    return all(_is_neutral(key) or _is_larger(key, settings, over) for key in settings.difference(over))


def _is_neutral(key: str) -> bool:
    return bare(key) in NEUTRAL or bare(key).startswith(NEUTRAL_SECTIONS)


def _is_larger(key: str, settings: Overrides, over: Overrides) -> bool:
    mine, theirs = settings.get(key), over.get(key)
    if key not in GROWS or isinstance(mine, bool) or isinstance(theirs, bool):
        return False
    return isinstance(mine, int | float) and isinstance(theirs, int | float) and mine > theirs
