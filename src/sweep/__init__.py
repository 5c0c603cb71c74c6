"""sweep: tunes verl PPO in four stages, one lever at a time; the winner of each stage is frozen before the next."""

__version__ = "0.1.0"
