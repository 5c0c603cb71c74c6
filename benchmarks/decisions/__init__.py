"""Parts of `benchmarks.bench_decisions`: worlds with a known truth, our rules and their peers on them, the count."""
