"""Real runs: how long a launch takes, how good predictions are, and PyTorch's runtime against 1F1B by hand.

    python benchmarks/bench_run.py                         everything, about ten minutes
    python benchmarks/bench_run.py --devices 4 --schedules 1f1b zb-h1

A prediction comes from a short run before, by fit_costs, and is held against the median step of another run;
other work on the machine ruins it, so how many cores that took is printed beside.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import pplab
from pplab.distributed import Emulated, RunResult, Transformer, profile, run, stop

HEAD = f"{'schedule':18} {'D':>2} {'M':>3} {'step':>9} {'spread':>15} {'predicted':>10} {'nominal':>8} {'load':>5}"


def predict(schedule: pplab.Schedule, workload: Emulated | Transformer, steps: int) -> tuple[RunResult, float]:
    """Profile, predict, run: the run, and predicted over measured − 1."""
    costs = profile(schedule, workload).fit_costs()
    result = run(schedule, workload, steps, check=False)
    return result, result.prediction_error(costs)["median"]


def line(result: RunResult, error: float) -> str:
    """A line of the table, times in ms."""
    s, times = result.schedule, 1e3 * result.step_times
    nominal = f"{result.prediction_error()['median']:+8.1%}" if isinstance(result.workload, Emulated) else " " * 8
    load = "?" if result.load is None else f"{result.load:.2f}"
    spread = f"{times.min():.1f}–{times.max():.1f}"
    sizes = f"{s.name:18} {s.num_devices:2} {s.num_microbatches:3}"
    return f"{sizes} {np.median(times):9.1f} {spread:>15} {error:+10.2%} {nominal} {load:>5}"


def start_up() -> None:
    """The first run and later ones."""
    stop()
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        run(pplab.one_f_one_b(2, 2), Emulated(1, 1, 1), steps=1, warm_ups=0, check=False)
        times.append(time.perf_counter() - begin)
    print(f"launch     first {times[0]:.2f} s, later {', '.join(f'{t:.2f}' for t in times[1:])} s")


def by_hand(milliseconds: float, steps: int) -> None:
    """PyTorch's runtime and its own class against the worker written by hand, steps of each in turn."""
    s, workload = pplab.one_f_one_b(2, 8), Emulated(milliseconds, milliseconds, milliseconds)
    took: dict[str, list[float]] = {}
    for _ in range(3):
        for engine in ("by-hand", "rows", "torch-class"):
            took.setdefault(engine, []).extend(run(s, workload, steps, engine=engine, check=False).step_times)
    base = np.median(took["by-hand"])
    shares = ", ".join(f"{engine} {np.median(t) / base - 1:+.1%}" for engine, t in took.items() if engine != "by-hand")
    print(f"by hand    1f1b, passes of {milliseconds:g} ms: {1e3 * base:.1f} ms a step; against it {shares}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--schedules", nargs="*", default=list(pplab.SCHEDULES))
    parser.add_argument("--ms", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=6)
    a = parser.parse_args()
    start_up()
    print(HEAD, flush=True)
    errors, nominal = [], []
    for devices in a.devices:
        for name in a.schedules:
            try:
                schedule = pplab.SCHEDULES[name](devices, 2 * devices)
                result, error = predict(schedule, Emulated(a.ms, a.ms, a.ms), a.steps)
            except ValueError as refused:
                print(f"{name:18} {devices:2}     {refused!s:.90}")
                continue
            errors.append(error)
            nominal.append(result.prediction_error()["median"])
            print(line(result, error), flush=True)
    for what, values in (("fitted", np.abs(errors)), ("nominal", np.abs(nominal))):
        print(f"{what:10} median {np.median(values):.2%}, worst {values.max():.2%} over {len(values)} runs")
    for samples in (2, 8):
        print(line(*predict(pplab.one_f_one_b(2, 8), Transformer(micro_batch_size=samples), a.steps)), flush=True)
    for milliseconds in (20.0, 2.0):
        by_hand(milliseconds, a.steps)


if __name__ == "__main__":
    main()
