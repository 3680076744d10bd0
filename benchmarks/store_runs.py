"""Measure the runs that come with pplab, for those who cannot run them. On a quiet machine, from the root::

python -m benchmarks.store_runs
"""

from __future__ import annotations

from pathlib import Path

import pplab
from pplab.distributed import Emulated, Transformer, profile, run

DATA = Path(pplab.__file__).parent / "data"
SLEEPS = Emulated(20, 20, 20)
RUNS = {
    "gpipe_d2_transformer": (pplab.gpipe(2, 6), Transformer()),
    "1f1b_d2_transformer": (pplab.one_f_one_b(2, 6), Transformer()),
    "gpipe_d4": (pplab.gpipe(4, 8), SLEEPS),
    "1f1b_d4": (pplab.one_f_one_b(4, 8), SLEEPS),
    "1f1b_d4_slow": (pplab.one_f_one_b(4, 8), Emulated([20, 24, 20, 20], [20, 24, 20, 20], [20, 24, 20, 20])),
}


def main() -> None:
    """Measure, store, and say how well each was predicted."""
    for name, (schedule, workload) in RUNS.items():
        costs = profile(schedule, workload).fit_costs()
        result = run(schedule, workload)
        result.save(DATA / f"run_{name}.json")
        print(f"{name}: predicted {result.prediction_error(costs)['median']:+.1%}\n{result.summary()}\n", flush=True)


if __name__ == "__main__":
    main()
