"""Rules about the health of a run: before it starts (`preflight`), while it trains, and after it died (`doctor`)."""
