"""PyTorch profiler traces of a pipeline run, somebody's own or ours, as a measured Timeline."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pplab.io import PathLike
from pplab.op import ScheduleError
from pplab.schedule import Schedule
from pplab.timeline import Timeline

_OP = re.compile(r"(?:PP:)?([0-9]+[FBIW][0-9]+)")
_PAIR = re.compile(r"PP:\(([0-9]+[FBIW][0-9]+);([0-9]+[FBIW][0-9]+)\)OVERLAP_F_B")
_MESSAGES = ("c10d::", "gloo:", "nccl:", "record_param_comms")
_WAY = "give the files that torch.profiler's export_chrome_trace wrote, one a rank"


class _Slice(NamedTuple):
    start: float
    end: float
    ops: tuple[str, ...]
    computes: float  # when the first computation in it begins


def read_chrome_trace(paths: PathLike | Iterable[PathLike], step: int = -1) -> Timeline:
    """One step of a pipeline run that PyTorch's profiler has recorded, as a measured timeline from 0 on, in seconds.

    ``paths``: a file a rank, ``.json`` or ``.json.gz`` (or one file with a track a device, as write_chrome_trace
    writes it). ``step``: which of the steps that were recorded; the last unless given, since the first are
    slower. The ops are the spans named ``PP:2F0``, as PyTorch's schedules that are given as rows label them
    (its GPipe and 1F1B do not); the schedule is inferred from their order. A span begins when its
    device begins to wait for the op's message; here the op starts with its first computation, or, where the trace
    has none, once whoever sends the message is done. Where a trace has times of the GPU itself, those are taken.

    Raises ScheduleError where the spans are no whole steps of a schedule, ValueError for what is no trace.
    """
    files = [paths] if isinstance(paths, str) or not isinstance(paths, Iterable) else list(paths)
    tracks: dict[tuple[int, int, int], list[_Slice]] = {}
    for number, path in enumerate(files):
        for track, slices in _read_file(Path(path), number).items():
            if track in tracks:
                raise ValueError(f"{Path(path).name} is of rank {track[0]}, as another file is: {_WAY}")
            tracks[track] = slices
    rows = [_pick(sorted(tracks[key], key=lambda x: x.start), step) for key in sorted(tracks)]
    if not rows:
        raise ScheduleError(
            f"{', '.join(Path(p).name for p in files)}: no span is named as PyTorch names its ops, such as PP:2F0: "
            f"{_WAY}, of a schedule that runs from rows (its classes GPipe and 1F1B label nothing)"
        )
    try:
        pairs = [x.ops for row in rows for x in row if len(x.ops) == 2]
        s = Schedule([[op for x in row for op in x.ops] for row in rows], name="trace", pairs=pairs)
    except ScheduleError as error:
        raise ScheduleError(f"the trace: {error}") from None
    return _timeline(s, rows)


def _timeline(s: Schedule, rows: list[list[_Slice]]) -> Timeline:
    times = np.array([(x.start, x.end, x.computes) for row in rows for x in row for _ in x.ops])
    start, end, computes = times.T - times.min()
    start = np.where(s.hops, computes, start)
    sent = np.where(s.needs[:, 0] < 0, 0.0, end[s.needs[:, 0]])
    lead = np.flatnonzero(~np.r_[False, s.paired[:-1]])
    start = np.maximum(start, np.maximum.reduceat(sent, lead)[s.nodes.of_op])
    start = np.minimum(start, end)  # clocks of two machines may differ
    return Timeline(s, start - start.min(), end - start.min(), measured=True)


def _read_file(path: Path, number: int) -> dict[tuple[int, int, int], list[_Slice]]:
    """The ops of a file by rank, process and thread; times in seconds since the epoch or another common origin."""
    try:
        raw = path.read_bytes()
        data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        events = data["traceEvents"] if isinstance(data, dict) else data
        found = [(event, ops) for event in events if event.get("ph") == "X" and (ops := _ops(event.get("name")))]
        work = _computations(events)
        on_gpu = [x for x in found if x[0].get("cat") == "gpu_user_annotation"]
        info = data if isinstance(data, dict) else {}
        base = int(info.get("baseTimeNanoseconds", 0)) / 1e9
        rank = info.get("distributedInfo", {}).get("rank")
        slices: dict[tuple[int, int, int], list[_Slice]] = {}
        for event, ops in on_gpu or found:
            begin, took = float(event["ts"]), float(event["dur"])
            inner = work.get((event["pid"], event["tid"]), np.zeros(0))
            at = int(np.searchsorted(inner, begin))
            computes = float(inner[at]) if at < len(inner) and inner[at] < begin + took else begin
            track = (number, int(event["pid"]), int(event["tid"])) if rank is None else (int(rank), 0, 0)
            slices.setdefault(track, []).append(
                _Slice(base + begin / 1e6, base + (begin + took) / 1e6, ops, base + computes / 1e6)
            )
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError, gzip.BadGzipFile):
        raise ValueError(f"{path.name} is no Chrome trace, or is cut short: {_WAY}") from None
    return slices


def _computations(events: list[Any]) -> dict[tuple[Any, Any], np.ndarray]:
    """When the operators of each thread begin, those that only send or receive left out."""
    found: dict[tuple[Any, Any], list[float]] = {}
    for event in events:
        if event.get("cat") == "cpu_op" and not str(event.get("name")).startswith(_MESSAGES):
            found.setdefault((event["pid"], event["tid"]), []).append(float(event["ts"]))
    return {track: np.sort(times) for track, times in found.items()}


def _ops(name: Any) -> tuple[str, ...]:
    if not isinstance(name, str):
        return ()
    match = _OP.fullmatch(name) or _PAIR.fullmatch(name)
    return match.groups() if match else ()


def _pick(row: list[_Slice], step: int) -> list[_Slice]:
    """The spans of one step of a device: of each op, the occurrence of that number."""
    count = Counter(x.ops for x in row)
    steps = max(count.values())
    if min(count.values()) < steps:
        rare = min(count, key=count.__getitem__)
        raise ScheduleError(
            f"{' '.join(rare)} is recorded {count[rare]} times and others {steps} times: the profiler was started or "
            "stopped in the middle of a step; record whole steps"
        )
    if not -steps <= step < steps:
        raise ValueError(f"step is {step}, but the trace holds {steps}, numbered 0 to {steps - 1}")
    seen: Counter[tuple[str, ...]] = Counter()
    chosen = []
    for x in row:
        if seen[x.ops] == step % steps:
            chosen.append(x)
        seen[x.ops] += 1
    return chosen
