"""Runs cases, public reports reduced to inputs and right answers, against the product's own calls."""
