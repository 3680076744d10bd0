"""Real runs: a schedule on real processes, one a device, measured op by op.

::

    from pplab.distributed import profile, run
    costs = profile(schedule, "emulated").fit_costs()      # a short run
    predicted = pplab.simulate(schedule, costs)
    result = run(schedule, "emulated")                     # result.timeline, result.losses, …
    result.prediction_error(costs)

PyTorch is loaded by the ranks only: this process stays light, and stored runs are read without it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pplab.costs import Costs
from pplab.distributed.launcher import RunError, run_job, start, stop
from pplab.distributed.refusals import check_memory, check_schedule, check_torch, check_workload
from pplab.distributed.result import RunResult, load_run, stored_run
from pplab.distributed.room import shortage
from pplab.distributed.workloads import Emulated, Transformer, Workload, read_workload, to_json
from pplab.fitted import fit_costs
from pplab.schedule import Schedule
from pplab.schedule import check_schedule as check_is_schedule

__all__ = [
    "Costs", "Emulated", "RunError", "RunResult", "Transformer", "fit_costs", "load_run", "prepare", "profile", "run",
    "run_beside", "start", "stop", "stored_run",
]  # fmt: skip


def run(
    schedule: Schedule,
    workload: str | Workload = "transformer",
    steps: int = 10,
    warm_ups: int = 2,
    engine: str = "rows",
    check: bool = True,
    timeout: float = 10.0,
) -> RunResult:
    """Train a model for some steps on real processes, one a device, in the order of a schedule.

    ``workload``: ``"transformer"``, ``"emulated"``, or one with sizes of your own. ``steps`` are timed, after
    ``warm_ups`` that are not. ``engine``: ``"rows"``, PyTorch's runtime with the schedule's own rows;
    ``"torch-class"``, PyTorch's own class of that name, in its own order; ``"by-hand"``, a short 1F1B worker.
    ``check``: two more steps before the others, whose gradients are held against one process, and whose live
    activations are counted. ``timeout``: seconds without any progress after which a rank counts as hanging.

    Raises ValueError for what cannot run, before any process starts; RunError, which names rank, op and
    cause, where a rank fails; ImportError without PyTorch. However it ends, no process of the run is left.
    """
    job = prepare(schedule, workload, steps, warm_ups, engine, check, timeout)
    check_memory(schedule.num_devices, read_workload(workload).model_bytes)
    check_torch()
    if getattr(workload, "model", None):
        _check_model(job)
    return RunResult.from_run(job, run_job(job))


def _check_model(job: dict[str, Any]) -> None:
    """Try a model of the reader's own in one process first; raises ValueError for what its stages do wrong."""
    try:
        run_job(job | {"task": "check"})
    except RunError as error:
        text = error.reports[0]["text"] if error.reports else str(error)
        raise ValueError(f"the model {job['workload']['model']} cannot be run: {text}") from error


def profile(schedule: Schedule, workload: str | Workload = "transformer", steps: int = 5, **options: Any) -> RunResult:
    """A short run, without a check, for its ``fit_costs()``: what a prediction of longer runs starts from."""
    return run(schedule, workload, steps, check=False, **options)


def run_beside(
    stored: str, schedule: Schedule, workload: str | Workload = "transformer", **options: Any
) -> tuple[RunResult, ...]:
    """A real run; where cores are short the stored one after it, and where none can be made that one alone.

    ``stored``: its name, as ``stored_run`` takes it. ``options``: as of ``run``. Prints what was short.
    Raises as ``run`` does, but not for too little memory or for want of PyTorch.
    """
    beside = stored_run(stored)
    check_is_schedule(schedule)
    try:
        check_memory(schedule.num_devices)
        check_torch()
    except (ValueError, ImportError) as reason:
        print(f"nothing was run here: {reason}. What follows is the stored run {stored}")
        return (beside,)
    result = run(schedule, workload, **options)
    short = shortage(result)
    if not short:
        return (result,)
    print(f"{short}. For comparison: the stored run {stored}")
    return (result, beside)


def prepare(
    schedule: Schedule,
    workload: str | Workload = "transformer",
    steps: int = 10,
    warm_ups: int = 2,
    engine: str = "rows",
    check: bool = True,
    timeout: float = 10.0,
) -> dict[str, Any]:
    """The job that ranks run, as JSON takes it; raises ValueError for what cannot run."""
    from pplab import __version__

    check_is_schedule(schedule)
    workload = read_workload(workload)
    check_schedule(schedule, engine)
    check_workload(workload, schedule)
    for name, value, least in (("steps", steps, 1), ("warm_ups", warm_ups, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r:.40}: give a whole number, {least} or more")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < 1e6:
        raise ValueError(f"timeout is {timeout!r:.40}: give seconds, more than 0")
    return {
        "task": "run",
        "rows": [list(map(str, row)) for row in schedule.rows],
        "name": schedule.name,
        "pairs": [[str(a), str(b)] for a, b in schedule.pairs],
        "workload": to_json(workload),
        "engine": engine,
        "steps": steps,
        "warm_ups": warm_ups,
        "check": check,
        "timeout": float(timeout),
        "version": __version__,
        "sys_path": [os.path.abspath(path) for path in sys.path],
    }
