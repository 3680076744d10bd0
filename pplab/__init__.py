"""pplab: pipeline parallelism, from the schedule to the picture, the numbers and the real run.

A schedule is a value, and everything else reads it::

    import pplab
    s = pplab.one_f_one_b(num_devices=4, num_microbatches=8)
    t = pplab.simulate(s)
    pplab.makespan(t), pplab.bubble_fraction(t), pplab.peak_in_flight(t)
"""

from typing import Any

from pplab import svg
from pplab.costs import Costs
from pplab.environment import check_environment
from pplab.frontier import frontier
from pplab.idle import critical_path, idle_by_reason, idle_gaps
from pplab.io import read_json, read_torch_csv, write_chrome_trace, write_json, write_torch_csv
from pplab.metrics import (
    bubble_fraction,
    busy_time,
    in_flight,
    lower_bound,
    makespan,
    messages_sent,
    peak_in_flight,
    utilization,
)
from pplab.op import Op, ScheduleError
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES, eager_1f1b, gpipe, interleaved_1f1b, naive, one_f_one_b
from pplab.search import search
from pplab.simulate import simulate
from pplab.timeline import Timeline

__version__ = "0.1.0"

__all__ = [
    "SCHEDULES",
    "Costs",
    "Op",
    "Schedule",
    "ScheduleError",
    "Timeline",
    "bubble_fraction",
    "busy_time",
    "check_environment",
    "critical_path",
    "draw_grid",
    "draw_in_flight",
    "draw_memory",
    "draw_memory_trace",
    "draw_timeline",
    "eager_1f1b",
    "estimate_memory",
    "frontier",
    "gpipe",
    "idle_by_reason",
    "idle_gaps",
    "in_flight",
    "interleaved_1f1b",
    "lower_bound",
    "makespan",
    "messages_sent",
    "naive",
    "one_f_one_b",
    "peak_in_flight",
    "picture",
    "read_json",
    "read_torch_csv",
    "review",
    "search",
    "simulate",
    "svg",
    "utilization",
    "write_chrome_trace",
    "write_json",
    "write_torch_csv",
]

# Imported when first asked for: drawing needs Matplotlib, and no reader needs all the modules.
_LATER = {
    "draw_frontier": "frontier_figure",
    "draw_grid": "draw",
    "draw_in_flight": "draw",
    "draw_memory": "memory_figures",
    "draw_memory_trace": "memory_figures",
    "draw_timeline": "draw",
    "estimate_memory": "memory",
    "picture": "draw",
    "read_chrome_trace": "traces",
    "review": "reviews",
}
_MODULES = (
    "asynchronous",
    "bars",
    "batching",
    "chapter",
    "distributed",
    "draw",
    "exercises",
    "fitted",
    "hardware",
    "loss_curves",
    "memory",
    "memory_figures",
    "model",
    "numeric",
    "palette",
    "partition",
    "planner",
    "widgets",
)


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LATER:
        return getattr(importlib.import_module(f"pplab.{_LATER[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"pplab.{name}")
    raise AttributeError(f"module 'pplab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_LATER, *_MODULES]
