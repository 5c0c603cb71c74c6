"""Faults on purpose: campaigns that are killed, cut off and filled up, and what they lose by it: `make chaos`."""
