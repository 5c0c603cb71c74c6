"""`Code`: every finding about a running or finished training, in order of precedence.

Where two findings are equally severe the one named earlier leads the verdict: causes stand before consequences,
what is certain before what is likely. The value is a title for people.
"""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    """What was found; `name` is the stable identifier, `value` its title."""

    NON_FINITE = "a metric is NaN or infinite"
    REWARD_ALL_ZERO = "the reward has been zero at every step"
    ENTROPY_COLLAPSE = "the policy has become deterministic"
    KL_EXPLOSION = "the policy runs away from its reference"
    ENTROPY_EXPLOSION = "the policy turns into noise"
    GRAD_EXPLOSION = "the actor's gradient explodes"
    ZERO_ADVANTAGE = "no learning signal: every advantage is zero"
    REWARD_HACKING = "the reward rises while the task does not"
    KL_NEGATIVE = "the KL estimate stays negative"
    ROLLOUT_MISMATCH = "rollout and trainer disagree on probabilities"
    LR_ZERO = "the learning rate is zero"
    REWARD_DROP = "the reward fell"
    LENGTH_SATURATED = "nearly all responses are cut off"
    LENGTH_COLLAPSE = "responses have become very short"
    CRITIC_LOSS_HIGH = "the critic's loss stays high"
    CRITIC_DIVERGING = "the critic gets worse"
    CRITIC_UNINFORMATIVE = "the critic explains nothing"
    ADVANTAGE_OFFSET = "the mean advantage is off zero"
    GRAD_SPIKE = "short gradient spikes"
    KL_SPIKE = "short spikes of KL to the reference"
    GRAD_VANISHING = "the actor's gradient has vanished"
    HIDDEN_OSCILLATION = "a smooth average hides an oscillation"
    REWARD_PLATEAU = "the reward is on a plateau"
    REWARD_STALLED = "the reward no longer grows, under noise"
    KL_HIGH = "KL to the reference is above its band"
    KL_COEF_AT_BOUND = "the KL controller has come to a bound"
    KL_TOO_LOW = "KL to the reference is below its band"
    UPDATE_TOO_LARGE = "single updates move the policy far"
    MEMORY_CREEP = "memory use creeps up"
    STEP_TIME_JUMP = "steps have become much slower"
    COMMUNICATION_BOUND = "GPUs wait for PCIe traffic"
    INPUT_OR_ROLLOUT_BOUND = "GPUs idle with their memory full"
    MEMORY_FLUCTUATION = "free GPU memory swings"
    LINK_DEGRADED = "the PCIe link runs below its maximum"
    WINDOW_EXCEEDS_RUN = "the planned run is shorter than a trial"
    INSUFFICIENT_DATA = "too few steps to tell a plateau"
    KL_NOT_MEASURED = "KL to the reference is not logged"
    REWARD_SATURATED = "the reward is at its ceiling"
    REWARD_CONSTANT = "the reward never changes"
    ENTROPY_RISING = "entropy rises"
    GRAD_ELEVATED = "gradient norm above its band"
    GRAD_LOW = "gradient norm below its band"
    LENGTH_TRUNCATED = "some responses are cut off"
    LENGTH_NEAR_LIMIT = "responses are nearly as long as allowed"
    SIDE_METRIC_NON_FINITE = "a side metric is NaN or infinite"
    SHORT_RUN = "fewer steps than the screen's window"

    @property
    def precedence(self) -> int:
        """Place in the order above, 0 first."""
        return _ORDER[self]


_ORDER = {code: place for place, code in enumerate(Code)}

HEADLINES = frozenset({Code.KL_NOT_MEASURED})
"""Codes that make the verdict even as mere information, if they are certain: a metric of the screen is missing."""
