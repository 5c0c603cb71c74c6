"""Simulated trials whose truth is known: a whole campaign in seconds, for planning, tests and benchmarks."""
