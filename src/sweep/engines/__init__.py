"""Engines that run trials: real verl, and a rehearsal with a known truth."""
