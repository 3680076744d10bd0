"""Whether there was room for a run: said where cores were short, so that nobody takes it for a bad prediction."""

from __future__ import annotations

import os
from pathlib import Path

from pplab.distributed.result import RunResult
from pplab.distributed.workloads import Emulated


def usable_cores() -> float:
    """How many cores this process may use: those of the machine, or fewer by a container's limit."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):  # there is no limit here, or it reads "max"
        return cores


def shortage(result: RunResult) -> str:
    """What cores its ranks had to share, in a sentence; empty where each had one or a GPU, or only slept."""
    cores, ranks, load = usable_cores(), result.schedule.num_devices, result.load or 0.0
    if isinstance(result.workload, Emulated) or not result.device.startswith("CPU") or cores - load > ranks - 0.5:
        return ""
    return (
        f"cores are short: {ranks} ranks compute on {cores:g}, of which other work took {load:.2f}, so they take turns "
        "and no prediction holds"
    )
