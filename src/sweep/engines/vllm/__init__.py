"""vLLM on its own, without a trainer: a real server under load, and the throughput of a token budget."""
