"""The command line of a real run: the same for ``python -m pplab run`` and for a worker under torchrun."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pplab.distributed.refusals import ENGINES
from pplab.distributed.workloads import WORKLOADS, Emulated, Workload
from pplab.io import read_torch_csv
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add everything but the number of devices, which torchrun knows."""
    parser.add_argument("schedule", help=f"{', '.join(SCHEDULES)}, or a .csv file of PyTorch's")
    parser.add_argument("--microbatches", type=int, default=8, metavar="M", help="micro-batches (8)")
    parser.add_argument("--chunks", type=int, metavar="V", help="stages a device, where the schedule lets you choose")
    parser.add_argument(
        "--workload", choices=WORKLOADS, default="transformer", help="what a pass computes (transformer)"
    )
    parser.add_argument("--ms", type=float, metavar="MS", help="emulated: how long F, I and W last, each (20)")
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed (10)")
    parser.add_argument("--engine", choices=ENGINES, default="rows", help="who runs the rows (rows: PyTorch's runtime)")
    parser.add_argument("--save", metavar="FILE", type=Path, help="store the run as JSON")


def read_options(arguments: list[str] | None, devices: int) -> argparse.Namespace:
    """The options of a worker under torchrun, with ``schedule`` built and ``settings`` as prepare takes them."""
    parser = argparse.ArgumentParser("torchrun … -m pplab.distributed.worker")
    add_options(parser)
    options = parser.parse_args(arguments)
    options.devices = devices
    options.settings = run_options(options)
    options.schedule = build_schedule(options)
    return options


def build_schedule(options: argparse.Namespace) -> Schedule:
    """The schedule that is asked for; raises ValueError for a name that is none."""
    name = options.schedule
    if name in SCHEDULES:
        chunks = {} if options.chunks is None else {"num_chunks": options.chunks}
        return SCHEDULES[name](options.devices, options.microbatches, **chunks)
    if Path(name).suffix == ".csv" or Path(name).is_file():
        return read_torch_csv(name)
    raise ValueError(f"no schedule is called {name!r}; there are {', '.join(SCHEDULES)}, or give a .csv file")


def run_options(options: argparse.Namespace) -> dict[str, Any]:
    """What run and prepare take beside the schedule."""
    workload: str | Workload = options.workload
    if options.ms is not None:
        if workload != "emulated":
            raise ValueError("--ms is how long a pass sleeps: give --workload emulated with it")
        workload = Emulated(options.ms, options.ms, options.ms)
    return {"workload": workload, "steps": options.steps, "engine": options.engine}
