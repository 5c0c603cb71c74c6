"""How often the decisions are right: verdicts, early stops and whole campaigns on simulated trials with a known truth.

    python benchmarks/bench_decisions.py            some hours of CPU time, over WORKERS processes (default: all cores)
    QUICK=1 python benchmarks/bench_decisions.py    the same in minutes with fewer repetitions

Every method starts from verl's defaults in the same worlds and pays for every training step: Optuna's TPE over all
knobs together, step-wise TPE in the manner of LightGBMTuner, Ray Tune's ASHA with OptunaSearch, random search, the
article's literal rule, and the staged search. Writes `results/decisions.json`, `.md` and `.png`; its last line is one
JSON object. CAMPAIGNS=100 plays so many a method and noise level. RESUME=1 goes on where an interrupted run was.
AGAIN="method; method" replays these methods only, and the single decisions if it names `verdicts` or `stops`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # before numpy is imported: the work is spread over processes
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.decisions.run import main

    main()
