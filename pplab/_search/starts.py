"""Where a search starts: one micro-batch at a time, and every named schedule that its placement and memory permit."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from pplab._search.node import Row
from pplab._search.problem import F, I, Problem, W
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES


def named_rows(p: Problem, num_chunks: int) -> list[list[Row]]:
    """The rows of each named schedule on this placement that fits into memory, with whole backwards split if asked."""
    out = [_rows(one_by_one(p.on, p.num_microbatches, p.split), p.split)]
    for build in SCHEDULES.values():
        sizes = {"num_chunks": num_chunks} if "num_chunks" in signature(build).parameters else {}
        try:
            s = build(len(p.on), p.num_microbatches, **sizes)
        except ValueError:
            continue  # not for these sizes
        whole = not s.is_kind("IW").any()
        if s.placement == tuple(map(tuple, p.on)) and s.is_kind("BI").any() and (p.split or whole):
            rows = _rows(s, p.split)
            if s.num_microbatches == p.num_microbatches and fit(p, rows):
                out.append(rows)
    return out


def _rows(s: Schedule, split: bool) -> list[Row]:
    """A schedule's rows as a problem has them: each stage's micro-batches from 0 up, B as I and W if ``split``."""
    rows: list[Row] = []
    for a, b in s.row_slices:
        count: dict[tuple[int, int], int] = {}
        row: Row = []
        for stage, kind in zip(s.stage[a:b].tolist(), s.kind[a:b].tolist(), strict=True):
            for k in {"F": (F,), "I": (I,), "W": (W,), "B": (I, W) if split else (I,)}[kind]:
                m = count.get((k, stage), 0)
                count[k, stage] = m + 1
                row.append((k, stage, m))
        rows.append(row)
    return rows


def fit(p: Problem, rows: list[Row]) -> bool:
    """Whether the devices' memory holds what these rows make it hold."""
    done = [0] * (3 * p.num_stages)
    for device, row in enumerate(rows):
        for kind, s, _ in row:
            done[kind * p.num_stages + s] += 1
            if kind == F and not p.fits(done, device):
                return False
    return True


def one_by_one(table: Any, num_microbatches: int, split: bool) -> Schedule:
    """One micro-batch after the other: what holds the least."""
    back = "IW" if split else "B"
    rows = []
    for stages in map(sorted, np.asarray(table).tolist()):
        one = [(s, "F") for s in stages] + [(s, kind) for s in stages[::-1] for kind in back]
        rows.append([(s, kind, m) for m in range(num_microbatches) for s, kind in one])
    return Schedule(rows)
