"""RunResult: what a real run has measured, as a value that is stored and read without PyTorch."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pplab.costs import Costs
from pplab.distributed.workloads import Workload, from_json, to_json
from pplab.fitted import fit_costs
from pplab.io import PathLike
from pplab.metrics import makespan
from pplab.schedule import Schedule
from pplab.simulate import simulate
from pplab.timeline import Timeline

_DATA = Path(__file__).parents[1] / "data"
FORMAT = "pplab-run/1"


@dataclass(frozen=True, eq=False)
class RunResult:
    """A real run, step by step; times in seconds, each step's from its first op on.

    ``start``, ``end``: (steps, ops), in the order of the schedule's columns. ``losses``: the batch's, one a step.
    ``gradient_error``: the largest difference to one process that adds up the same micro-batches in the same order, 0
    where ``bit_equal``; ``whole_batch_error``: the norm of the difference to the whole batch at once, over that of its
    gradient. ``boundary_errors``: the largest difference of what micro-batch 0 sends from a stage (``1F``, ``1B``).
    ``live_chunks`` and ``live_bytes``: the most activations alive on each device; ``chunk_bytes``: those of one
    micro-batch on each stage. ``allocator_bytes``: each GPU's peak, None on a CPU. ``load``: other work
    meanwhile, in cores (None where the system does not tell). Without a check, what it would have found is None.
    """

    schedule: Schedule
    workload: Workload
    engine: str
    device: str
    start: np.ndarray
    end: np.ndarray
    losses: tuple[float, ...]
    versions: dict[str, str]
    load: float | None
    cores: int
    gradient_error: float | None = None
    whole_batch_error: float | None = None
    bit_equal: bool | None = None
    same_bits_twice: bool | None = None
    boundary_errors: dict[str, float] | None = None
    live_chunks: tuple[int, ...] | None = None
    live_bytes: tuple[int, ...] | None = None
    chunk_bytes: tuple[int, ...] | None = None
    allocator_bytes: tuple[int | None, ...] | None = None

    @classmethod
    def from_run(cls, job: dict[str, Any], found: dict[str, Any]) -> RunResult:
        """What the ranks have gathered, with the job that they ran, as a result."""
        asked = Schedule(job["rows"], name=job["name"], pairs=job["pairs"])
        ran = [[f"{k}{kind}{m}" for k, kind, m, *_ in spans[0]] for spans in found["spans"]]
        # PyTorch's own classes choose their order, and it is theirs that has been measured.
        schedule = asked if ran == [list(map(str, row)) for row in asked.rows] else Schedule(ran, name=asked.name)
        times = np.concatenate(
            [np.array([[a[3:] for a in step] for step in spans]) for spans in found["spans"]], axis=1
        )
        times = np.round(times - times.min(axis=(1, 2), keepdims=True), 7)
        start, end = times[..., 0], times[..., 1]
        first = np.flatnonzero(schedule.paired)  # a pair runs as one
        start[:, first + 1], end[:, first] = start[:, first], end[:, first + 1]
        checked: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in found.items() if k in cls.__dataclass_fields__
        }
        checked |= {
            "start": start,
            "end": end,
            "losses": tuple(found["losses"]),
            "versions": found["versions"] | {"pplab": job["version"]},
            "allocator_bytes": tuple(found["allocator"]) if any(found["allocator"]) else None,
        }
        return cls(
            schedule,
            from_json(job["workload"]),
            job["engine"],
            cores=os.cpu_count() or 1,
            **checked,
        )

    @cached_property
    def step_times(self) -> np.ndarray:
        """How long each step took, from the first op's start to the last one's end, (steps,)."""
        return self.end.max(axis=1) - self.start.min(axis=1)

    @property
    def step_time(self) -> float:
        """The median of step_times."""
        return float(np.median(self.step_times))

    @cached_property
    def timelines(self) -> tuple[Timeline, ...]:
        """Each step as a measured Timeline."""
        return tuple(Timeline(self.schedule, a, b, measured=True) for a, b in zip(self.start, self.end, strict=True))

    @property
    def timeline(self) -> Timeline:
        """The step of median length."""
        return self.timelines[int(np.argsort(self.step_times, kind="stable")[len(self.step_times) // 2])]

    def fit_costs(self) -> Costs:
        """The costs that explain these times best (see pplab.fitted)."""
        return fit_costs(self)

    def prediction_error(self, costs: Costs | None = None) -> dict[str, float]:
        """Predicted over measured step time, minus 1: against the ``median`` step, the ``fastest`` and the ``slowest``.

        ``costs``: of an earlier, short run, such as ``profile(…).fit_costs()``; the nominal times of passes that
        sleep unless given. Raises ValueError where neither is there.
        """
        if costs is None:
            if not hasattr(self.workload, "costs"):
                raise ValueError("a transformer's passes have no nominal times: give costs, profile(…).fit_costs()")
            costs = self.workload.costs()
        predicted = makespan(simulate(self.schedule, costs))
        measured = {"median": self.step_time, "fastest": self.step_times.min(), "slowest": self.step_times.max()}
        return {name: float(predicted / time - 1) for name, time in measured.items()}

    def compare(self, costs: Costs | None = None) -> str:
        """Predicted beside measured, the error as a number and as a band, and what other work took; see above."""
        error, times = self.prediction_error(costs), 1e3 * self.step_times
        median = float(np.median(times))
        others = "an unknown part" if self.load is None else f"{self.load:.2f}"
        return (
            f"{self.schedule.name:5} predicted {median * (1 + error['median']):.0f} ms, measured {median:.0f} "
            f"({times.min():.0f} to {times.max():.0f}): error {error['median']:+.1%}, "
            f"band {error['slowest']:+.1%} to {error['fastest']:+.1%}\n"
            f"      {len(times)} steps on {self.cores} cores, of which other work took {others}"
        )

    def summary(self) -> str:
        """The run in a few lines."""
        s, times = self.schedule, 1e3 * self.step_times
        others = "unknown" if self.load is None else f"{self.load:.2f} of them"
        lines = [
            f"{s!r}, engine {self.engine}",
            f"device     {self.device}; {self.cores} cores, taken by other work: {others}",
            f"step       median {np.median(times):.1f} ms, {times.min():.1f} to {times.max():.1f}, {len(times)} steps",
            f"loss       {self.losses[0]:.6g} to {self.losses[-1]:.6g}",
        ]
        if self.bit_equal is not None:
            equal = "equal to the last bit" if self.bit_equal else f"at most {self.gradient_error:.2g} apart"
            lines.append(f"gradients  against one process: {equal}; whole batch: {self.whole_batch_error:.1e} relative")
            lines.append(f"alive      {', '.join(map(str, self.live_chunks or ()))} chunks of activations at most")
        return "\n".join([*lines, f"versions   {', '.join(f'{k} {v}' for k, v in self.versions.items())}"])

    def save(self, path: PathLike) -> None:
        """Write the run as JSON, times to a tenth of a microsecond."""
        data = {k: v for k, v in vars(self).items() if k in self.__dataclass_fields__}
        data |= {
            "format": FORMAT,
            "schedule": {
                "name": self.schedule.name,
                "rows": [" ".join(map(str, row)) for row in self.schedule.rows],
                "pairs": [[str(a), str(b)] for a, b in self.schedule.pairs],
            },
            "workload": to_json(self.workload),
            "start": np.round(self.start, 7).tolist(),
            "end": np.round(self.end, 7).tolist(),
        }
        Path(path).write_text(json.dumps(data), encoding="utf-8")

    def __repr__(self) -> str:
        return (
            f"<RunResult of {self.schedule.name}: {len(self.step_times)} steps, median {1e3 * self.step_time:.1f} ms>"
        )


def stored_run(name: str) -> RunResult:
    """A run that comes with pplab, for those who cannot run it; raises ValueError, which lists them, for others."""
    paths = {path.stem.removeprefix("run_"): path for path in sorted(_DATA.glob("run_*.json"))}
    if name not in paths:
        raise ValueError(f"no stored run is called {name!r:.40}: there are {', '.join(paths)}")
    return load_run(paths[name])


def load_run(path: PathLike) -> RunResult:
    """Read what RunResult.save wrote, without PyTorch; raises ValueError for anything else."""
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not JSON, or is cut short: give a file that RunResult.save wrote") from None
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise ValueError(f"{path.name} holds no run of pplab.distributed: give a file that RunResult.save wrote")
    try:
        s = data["schedule"]
        data |= {
            "schedule": Schedule(s["rows"], name=s["name"], pairs=s["pairs"]),
            "workload": from_json(data["workload"]),
            "start": np.array(data["start"], float),
            "end": np.array(data["end"], float),
        }
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        r = RunResult(**fields)
        if not r.start.shape == r.end.shape == (len(r.start), r.schedule.num_ops):
            raise ValueError("start and end differ")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} lacks something that RunResult.save writes, or holds more: {error}") from None
    return r
