"""Timeline: when each op of a schedule started and ended, whether simulated or measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pplab.op import Op
from pplab.schedule import Schedule, check_schedule, text_grid

_PARTS = (2, 3, 4, 5, 10)  # of the shortest op, that a slot of the grid may be
_MOST_SLOTS = 400  # of such parts
TIMES = ("start", "end", "receive", "send", "departure", "arrival")


class Span(NamedTuple):
    """One op with its device and times; the unit is the timeline's."""

    device: int
    stage: int
    kind: str
    microbatch: int
    start: float
    end: float

    @property
    def op(self) -> Op:
        """The op that ran."""
        return Op(self.stage, self.kind, self.microbatch)


class Messages(NamedTuple):
    """Messages between devices, as columns: the ops that send and need them (indices), departure and arrival."""

    sender: np.ndarray
    needed_by: np.ndarray
    departure: np.ndarray
    arrival: np.ndarray


def check_timeline(t: object) -> Timeline:
    """The timeline itself; raises TypeError, with the way out, for anything else."""
    if not isinstance(t, Timeline):
        raise TypeError(f"{t!r:.60} is not a timeline: simulate a schedule first, pplab.simulate(schedule, costs)")
    return t


class Timeline:
    """A schedule with the start and end of each op, as read-only NumPy columns.

    Columns, one entry an op in the schedule's order: ``device``, ``stage``, ``kind`` (one-letter
    strings), ``microbatch``, ``start``, ``end``. Times are in the unit of the costs, or in seconds where
    they were measured. ``receive`` and ``send``: how long the device itself was kept busy by the message
    before the op and after it (0 unless a hop is blocking); the op's own time does not hold them.
    ``departure`` and ``arrival``: when the message that the op sends leaves and is there (its end, where it sends
    none or nobody noted it); ``messages`` lists those between devices.

    Raises ValueError for a column of the wrong length, a time that is not finite, an op that ends
    before it starts.
    """

    def __init__(
        self,
        schedule: Schedule,
        start: Any,
        end: Any,
        receive: Any = None,
        send: Any = None,
        measured: bool = False,
        departure: Any = None,
        arrival: Any = None,
    ) -> None:
        self.schedule, self.measured = check_schedule(schedule), measured
        self.device, self.stage, self.kind, self.microbatch = (
            getattr(schedule, name) for name in ("device", "stage", "kind", "microbatch")
        )
        nothing = np.zeros(schedule.num_ops)
        times = {"start": start, "end": end, "receive": nothing, "send": nothing}
        times |= {k: v for k, v in (("receive", receive), ("send", send)) if v is not None}
        self.start, self.end, self.receive, self.send = (self._column(name, times[name]) for name in times)
        self.departure = self.end if departure is None else self._column("departure", departure)
        self.arrival = self.departure if arrival is None else self._column("arrival", arrival)
        if (self.end < self.start).any():
            i = int(np.argmax(self.end < self.start))
            raise ValueError(f"{schedule.op(i)} ends at {self.end[i]:g}, before it starts at {self.start[i]:g}")

    def _column(self, name: str, values: Any) -> np.ndarray:
        try:
            column = np.array(values, float)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"{name} must be {self.schedule.num_ops} times, one an op of {self.schedule.name}, not {values!r:.60}"
            ) from None
        if column.shape != (self.schedule.num_ops,) or not np.isfinite(column).all():
            raise ValueError(
                f"{name} needs {self.schedule.num_ops} finite times, one an op of {self.schedule.name}, "
                f"not {column.shape} with {np.count_nonzero(~np.isfinite(column))} that are not finite"
            )
        column.flags.writeable = False
        return column

    @property
    def messages(self) -> Messages:
        """The messages between devices that take time, in the order of the ops that need them."""
        needed_by = np.flatnonzero(self.schedule.hops)
        sender = self.schedule.needs[needed_by, 0]
        took = self.arrival[sender] > self.departure[sender]
        sender, needed_by = sender[took], needed_by[took]
        return Messages(sender, needed_by, self.departure[sender], self.arrival[sender])

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, index: int) -> Span:
        stage, kind, microbatch = self.schedule.op(index)
        return Span(int(self.device[index]), stage, kind, microbatch, float(self.start[index]), float(self.end[index]))

    def __iter__(self) -> Iterator[Span]:
        columns = (self.device, self.stage, self.kind, self.microbatch, self.start, self.end)
        return map(Span, *(column.tolist() for column in columns))

    def to_frame(self) -> Any:
        """The columns as a pandas DataFrame, one row an op; raises ImportError without pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas") from None
        names = ("device", "stage", "kind", "microbatch", "start", "end")
        return pandas.DataFrame({name: getattr(self, name) for name in names})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        return self.schedule == other.schedule and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in TIMES
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        how = "measured" if self.measured else "simulated"
        length = self.end.max() - self.start.min()
        return f"<Timeline of {self.schedule.name}, {how}: {len(self)} ops in {length:g}>"

    def __str__(self) -> str:
        times, took = np.concatenate([self.start, self.end]) - self.start.min(), self.end - self.start
        if not took.any():
            return f"{self!r}\nno grid: every op takes no time"
        shortest = float(took[took > 0].min())
        parts = [n for n in _PARTS if times.max() * n <= _MOST_SLOTS * shortest]
        for unit in (1.0, shortest, *(shortest / n for n in parts)):
            slots = np.rint(times / unit)
            if np.allclose(slots * unit, times, rtol=0, atol=1e-9 * unit):
                start, end = np.split(slots.astype(int), 2)
                note = "" if unit == 1 else f"\na slot is {unit:g}"
                return text_grid(self.schedule, start, end) + note
        return f"{self!r}\nno grid: its times are no multiples of a slot that gives at most {_MOST_SLOTS} of them"

    def _repr_html_(self) -> str:
        if len(self) > 20_000:  # as SVG, megabytes
            from pplab import draw

            return draw.picture(self)._repr_html_()
        from pplab import svg

        return svg.as_image(self)
