"""Plan: what the planner found, as a table that sorts, shows itself and goes to CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pplab.cluster import Cluster
from pplab.layouts import Layout
from pplab.model import TransformerModel
from pplab.step_time import PARTS, StepTime

_LAYOUT = ("tensor", "pipeline", "data", "schedule", "num_chunks", "micro_batch_size", "num_microbatches", "recompute")
COLUMNS = ("rank", *_LAYOUT, "step_time", *(f"{part}_time" for part in PARTS), "memory_bytes", "mfu", "why")
_HTML_ROWS = 20
_CAUSES = {
    "compute": "compute", "tensor": "tensor-parallel all-reduces", "pipeline": "hops between stages",
    "bubble": "its bubble", "data": "the reduction of gradients",
}  # fmt: skip


@dataclass(frozen=True)
class PlannedLayout:
    """A layout with what it takes.

    time : seconds of a step by cause, None where memory does not suffice. memory : bytes on the fullest device by part.
    room : bytes that a device has for them. mfu : share of the peak that the model's own FLOPs reach, 0 to 1.
    rank : 1 for the fastest, 0 for one that does not fit. why : why it is not the best.
    """

    layout: Layout
    time: StepTime | None
    memory: dict[str, float]
    room: float
    mfu: float | None
    rank: int = 0
    why: str = ""

    def __post_init__(self) -> None:
        if self.fits != (self.time is not None):
            raise ValueError(f"{self.layout} holds {self.memory_bytes:g} bytes of {self.room:g}: time only what fits")

    @property
    def memory_bytes(self) -> float:
        """Bytes on the fullest device, at its fullest moment."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether they fit."""
        return self.memory_bytes <= self.room

    @property
    def step_time(self) -> float | None:
        """Seconds of a step; None where it does not fit."""
        return None if self.time is None else self.time.total

    def row(self) -> dict[str, Any]:
        """Its values by the names of COLUMNS: seconds, bytes and shares; None where it does not fit."""
        causes = {f"{part}_time": getattr(self.time, part, None) for part in PARTS}
        own = {name: getattr(self, name) for name in ("rank", "step_time", "memory_bytes", "mfu", "why")}
        values = own | causes | {name: getattr(self.layout, name) for name in _LAYOUT}
        return {name: values[name] for name in COLUMNS}


@dataclass(frozen=True)
class Plan:
    """Layouts that fit, ``rows``, the fastest first unless sorted otherwise; and those that do not, ``rejected``.

    Iterates over its rows. Raises ValueError without rows.
    """

    model: TransformerModel
    cluster: Cluster
    global_batch: int
    rows: tuple[PlannedLayout, ...] = field(repr=False)
    rejected: tuple[PlannedLayout, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("a plan has at least one layout that fits")

    @classmethod
    def of(cls, model: TransformerModel, cluster: Cluster, global_batch: int, found: Sequence[PlannedLayout]) -> Plan:
        """Rank what was found and say why the losers lose; raises ValueError where nothing fits."""
        fit = sorted((row for row in found if row.time), key=lambda row: (row.step_time, row.memory_bytes))
        rest = sorted((row for row in found if not row.time), key=lambda row: row.memory_bytes)
        name = cluster.accelerator.name
        if not found:
            raise ValueError("no layout is left: the schedules take none of the numbers of micro-batches; give others")
        if not fit:
            raise ValueError(
                f"no layout of {model.name or 'the model'} fits {cluster.num_devices} × {name}; the closest is "
                f"{rest[0].layout}: it {_lack(rest[0], name)}. More devices, a longer pipeline if the blocks divide, "
                "recomputation or sharded_optimizer=True may help"
            )
        rows = [replace(row, rank=k, why=_why(row, fit[0])) for k, row in enumerate(fit, start=1)]
        return cls(model, cluster, global_batch, tuple(rows), tuple(replace(r, why=_lack(r, name)) for r in rest))

    @property
    def best(self) -> PlannedLayout:
        """The fastest layout that fits."""
        return min(self.rows, key=lambda row: row.rank)

    def sorted_by(self, name: str, descending: bool = False) -> Plan:
        """The same plan with its rows in the order of a column. Raises ValueError for a column that there is not."""
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r:.40}: choose one of {', '.join(COLUMNS)}")
        rows = sorted(self.rows, key=lambda row: row.row()[name], reverse=descending)
        return replace(self, rows=tuple(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __getitem__(self, index: int) -> PlannedLayout:
        return self.rows[index]

    def to_csv(self, path: str | Path, rejected: bool = False) -> None:
        """Write the rows, and those rejected if asked, under a heading of COLUMNS; numbers in full."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(row.row() for row in self.rows + self.rejected * rejected)

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame with the columns of COLUMNS; raises ImportError without pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas") from None
        return pandas.DataFrame([row.row() for row in self.rows], columns=list(COLUMNS))

    def __repr__(self) -> str:
        what = f"{self.model.name or 'a model'} on {self.cluster.num_devices} × {self.cluster.accelerator.name}"
        return f"<Plan of {what}: {len(self.rows)} layouts fit, {len(self.rejected)} do not>"

    def __str__(self) -> str:
        lines = [_HEAD, *map(_cells, self.rows[:_HTML_ROWS])]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(c.rjust(w) for c, w in zip(line[:-1], widths, strict=False)) + f"  {line[-1]}" for line in lines
        ]
        return "\n".join([repr(self)[1:-1], *text, *self._more()])

    def _repr_html_(self) -> str:
        from pplab.widgets.tables import note, table

        best = [k for k, row in enumerate(self.rows[:_HTML_ROWS]) if row.rank == 1]
        caption = note("; ".join([repr(self)[1:-1], *self._more()]))
        return caption + table(_HEAD, map(_cells, self.rows[:_HTML_ROWS]), bold=best, role="")

    def _more(self) -> list[str]:
        rest = len(self.rows) - _HTML_ROWS
        return [f"… and {rest} more"] if rest > 0 else []


_HEAD = ("rank", "t × p × d", "schedule", "V", "micro-batch", "M", "recompute", "step s", *(f"{p} s" for p in PARTS),
         "GB", "MFU", "why not the best")  # fmt: skip


def _cells(row: PlannedLayout) -> tuple[str, ...]:
    x, time = row.layout, row.time
    causes = [f"{getattr(time, part):.3g}" for part in PARTS]
    sizes = (f"{x.tensor} × {x.pipeline} × {x.data}", x.schedule, x.num_chunks, x.micro_batch_size, x.num_microbatches)
    last = (f"{row.step_time:.4g}", *causes, f"{row.memory_bytes / 1e9:.1f}", f"{100 * (row.mfu or 0):.1f}%", row.why)
    return (str(row.rank), *map(str, sizes), x.recompute, *last)


def _lack(row: PlannedLayout, accelerator: str) -> str:
    """What a layout that does not fit lacks, and which part takes most."""
    most = max(row.memory, key=lambda part: row.memory[part])
    used, over = row.memory_bytes / 1e9, (row.memory_bytes - row.room) / 1e9
    return (
        f"needs {used:.4g} GB on its fullest device, {over:.3g} GB more than {accelerator} has room for; "
        f"the largest part is {most}, {row.memory[most] / 1e9:.3g} GB"
    )


def _why(row: PlannedLayout, best: PlannedLayout) -> str:
    """By how much a layout is slower than the best, and mainly because of what."""
    if row is best or row.time is None or best.time is None:
        return ""
    more = {part: getattr(row.time, part) - getattr(best.time, part) for part in PARTS}
    slower, main = row.time.total - best.time.total, max(more, key=lambda part: more[part])
    if slower <= 1e-9 * best.time.total:
        return f"as fast, but holds {(row.memory_bytes - best.memory_bytes) / 1e9:.3g} GB more"
    cause = _CAUSES[main]
    if main == "compute" and row.layout.recompute != best.layout.recompute:
        cause = f"computing blocks again, recompute {row.layout.recompute}"
    return f"{slower / best.time.total:.1%} slower, mainly {cause} (+{more[main]:.3g} s)"
