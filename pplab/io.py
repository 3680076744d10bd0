"""Schedules and timelines in and out: PyTorch's CSV, Chrome trace, JSON."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from pplab.op import Row, ScheduleError, is_op, is_row, read_rows
from pplab.schedule import Schedule, check_schedule
from pplab.timeline import TIMES, Timeline, check_timeline

PathLike = str | os.PathLike[str]
_PAIR = re.compile(r"\(\s*([0-9]+[FBIW][0-9]+)\s*;\s*([0-9]+[FBIW][0-9]+)\s*\)\s*OVERLAP_F_B")
_NOT_COMPUTE = re.compile(r"[0-9]+\s*(SEND_[FB]|RECV_[FB]|UNSHARD|RESHARD|REDUCE_GRAD)\s*[0-9]*")
_KIND_NAMES = {"F": "forward", "B": "backward", "I": "backward for input", "W": "backward for weights"}


def read_torch_csv(path: PathLike, name: str | None = None) -> Schedule:
    """Read a schedule that torch.distributed.pipelining wrote: a line a rank, a comma between actions.

    Empty cells are PyTorch's drawing blanks and mean nothing; sends, receives, (un)sharding and gradient
    reductions are skipped; ``(0F7;7B3)OVERLAP_F_B`` is a pair. ``name``: the file's unless given.
    Raises ScheduleError for a file that is empty, cut short or of another format, naming line and cell.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError:
        raise ScheduleError(f"{path.name} is not a text file: give the CSV that PyTorch's _dump_csv wrote") from None
    if not lines:
        raise ScheduleError(
            f"{path.name} is empty: a schedule has one line of actions a rank, such as 0F0,0F1,,0B0,0B1"
        )
    rows: list[Row] = []
    paired: list[np.ndarray] = []
    for number, line in enumerate(lines, 1):
        row, places = _read_line(line, f"{path.name}, line {number}")
        rows.append(row)
        paired.append(places)
    try:
        columns = read_rows(rows)
        first = np.searchsorted(columns[0], np.arange(len(rows)))
        runs_as_one = np.zeros(len(columns[0]), bool)
        runs_as_one[np.concatenate([a + places for a, places in zip(first, paired, strict=True)])] = True
        return Schedule.from_columns(*columns, runs_as_one, name or path.name.split(".")[0])
    except ScheduleError as error:
        raise ScheduleError(f"{path.name}: {error}") from None


def _read_line(line: str, where: str) -> tuple[Row, np.ndarray]:
    """The ops of a line, and at which of them pairs begin."""
    none = np.zeros(0, int)
    if " " not in line and is_row(row := line.rstrip(",").replace(",", " ")):
        return row, none
    try:
        cells = next(csv.reader([line], skipinitialspace=True, strict=True)) if '"' in line else line.split(",")
    except csv.Error as error:
        raise ScheduleError(f"{where}: {error}; is the file cut short, or of another format?") from None
    ops: list[str] = []
    pairs: list[int] = []
    for place, cell in enumerate(map(str.strip, cells), 1):
        if is_op(cell):
            ops.append(cell)
        elif cell and not _NOT_COMPUTE.fullmatch(cell):
            pair = _PAIR.fullmatch(cell)
            if pair is None:
                raise ScheduleError(
                    f"{where}, cell {place}: {cell!r:.40} is not an action of PyTorch's schedules, such as 2F0, 2I0, "
                    "2W0, 2B0, 2SEND_F0 or (0F7;7B3)OVERLAP_F_B; is the file cut short, or of another format?"
                )
            pairs.append(len(ops))
            ops += [pair[1], pair[2]]
    return ops, np.array(pairs, int) if pairs else none


def write_torch_csv(schedule: Schedule, path: PathLike) -> None:
    """Write the ops, a line a rank, as PyTorch's _load_csv(format="compute_only") reads them."""
    ends = set(np.flatnonzero(check_schedule(schedule).paired) + 1)
    with open(path, "w", encoding="utf-8", newline="") as file:
        for (a, b), row in zip(schedule.row_slices, schedule.rows, strict=True):
            cells = [
                f"({row[i - a]};{row[i - a + 1]})OVERLAP_F_B" if schedule.paired[i] else str(row[i - a])
                for i in range(a, b)
                if i not in ends
            ]
            file.write(",".join(cells) + "\n")


def write_chrome_trace(t: Timeline, path: PathLike) -> None:
    """Write a trace that Perfetto and chrome://tracing open: a track a device, a slice an op.

    One unit of the timeline is taken as a second (the format counts microseconds). Messages between devices
    are arrows; time that a blocking hop keeps a device busy is a slice of its own. The ops of a measured timeline have
    the names that PyTorch's profiler gives them (``PP:2F0``); read_chrome_trace reads both.
    """
    s = check_timeline(t).schedule
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"pplab: {s.name}"}},
        *(
            {"ph": "M", "pid": 0, "tid": d, "name": "thread_name", "args": {"name": f"device {d}"}}
            for d in range(s.num_devices)
        ),
    ]

    def add(i: int, name: str, kind: str, start: float, end: float, **more: Any) -> None:
        place = {"pid": 0, "tid": int(t.device[i]), "ts": start * 1e6, "dur": (end - start) * 1e6}
        events.append({"ph": "X", "name": name, "cat": kind} | place | more)

    for i, span in enumerate(t):
        details = {"stage": span.stage, "microbatch": span.microbatch}
        name = f"PP:{span.op}" if t.measured else str(span.op)  # as PyTorch's profiler names it
        add(i, name, _KIND_NAMES[span.kind], span.start, span.end, args=details)
        if t.receive[i]:
            add(i, f"receive for {span.op}", "communication", span.start - t.receive[i], span.start)
        if t.send[i]:
            add(i, f"send of {span.op}", "communication", span.end, span.end + t.send[i])
    for i in np.flatnonzero(s.hops).tolist():
        sender = int(s.needs[i, 0])
        flow = {"name": "message", "cat": "communication", "id": i, "pid": 0}
        middle = float(t.start[sender] + t.end[sender]) / 2  # at its end, viewers take the slice that follows
        events.append(flow | {"ph": "s", "tid": int(t.device[sender]), "ts": middle * 1e6})
        events.append(flow | {"ph": "f", "bp": "e", "tid": int(t.device[i]), "ts": float(t.start[i]) * 1e6})
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")


def as_dict(value: Schedule | Timeline) -> dict[str, Any]:
    """A Schedule or a Timeline as what write_json writes."""
    s = value.schedule if isinstance(value, Timeline) else check_schedule(value)
    texts = [
        f"{stage}{kind}{m}"
        for stage, kind, m in zip(*(c.tolist() for c in (s.stage, s.kind, s.microbatch)), strict=True)
    ]
    data: dict[str, Any] = {
        "format": "pplab/1",
        "name": s.name,
        "rows": [" ".join(texts[a:b]) for a, b in s.row_slices],
        "pairs": [[str(a), str(b)] for a, b in s.pairs],
    }
    if isinstance(value, Timeline):
        usual = {
            "receive": 0.0 * value.end,
            "send": 0.0 * value.end,
            "departure": value.end,
            "arrival": value.departure,
        }
        times = [name for name in TIMES if name not in usual or not np.array_equal(getattr(value, name), usual[name])]
        data["measured"] = value.measured
        data |= {name: getattr(value, name).tolist() for name in times}
    return data


def write_json(value: Schedule | Timeline, path: PathLike) -> None:
    """Write a Schedule or a Timeline as JSON that read_json gives back equal, to the last bit."""
    Path(path).write_text(json.dumps(as_dict(value), indent=1), encoding="utf-8")


def read_json(path: PathLike) -> Schedule | Timeline:
    """Read what write_json wrote; raises ValueError for anything else, ScheduleError for rows that cannot run."""
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not JSON, or is cut short: give a file that pplab.write_json wrote") from None
    right = isinstance(data, dict) and data.get("format") == "pplab/1" and "rows" in data
    if not right or not isinstance(data.get("pairs", []), list):
        raise ValueError(f"{path.name} holds no schedule of pplab: give a file that pplab.write_json wrote")
    schedule = Schedule(data["rows"], name=data.get("name", path.stem), pairs=data.get("pairs", ()))
    if "start" not in data:
        return schedule
    times = {name: data.get(name) for name in TIMES}
    return Timeline(schedule, measured=bool(data.get("measured")), **times)
