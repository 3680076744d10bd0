"""Schedule: who runs what, in which order; everything else reads it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain

import numpy as np

from pplab.checks import check_pairs, raise_no_pair
from pplab.needs import find_needs, find_nodes, find_steps
from pplab.op import Op, Row, ScheduleError, read_columns, read_ops, read_rows


class Schedule:
    """Every device's ops in order, without times; building one proves that it can run.

    Parameters
    ----------
    rows : one row a device; a row is Ops, ``(stage, kind, microbatch)`` tuples, strings such as
        ``"2F0"``, or one string of them all: ``"0F0 0F1 0B0 0B1"``.
    name : what tables and pictures call it.
    pairs : ``(first, second)`` for adjacent ops that run as one: they start when both are ready and
        both give their results at the end (DualPipe's overlapped F and B).

    Raises
    ------
    ScheduleError : an op twice or missing, a pass before what it needs, a deadlock (the cycle is named).

    Read-only columns, one entry an op, device by device in the order of the rows: ``device``,
    ``stage``, ``kind``, ``microbatch``; ``paired`` (runs as one with the next op); ``needs``
    (num_ops, 2), the op that sends to it and the op of its own stage that it needs, −1 for none.
    """

    def __init__(
        self, rows: Iterable[Row], name: str = "custom", pairs: Iterable[tuple[Op | str, Op | str]] = ()
    ) -> None:
        device, stage, kind, microbatch = read_rows(rows)
        self._build(device, stage, kind, microbatch, None, name)
        paired = self._find_pairs(pairs)
        if paired.any():
            self._build(device, stage, kind, microbatch, paired, name)

    @classmethod
    def from_columns(
        cls,
        device: np.ndarray,
        stage: np.ndarray,
        kind: np.ndarray,
        microbatch: np.ndarray,
        paired: np.ndarray | None = None,
        name: str = "custom",
    ) -> Schedule:
        """Build from arrays, one entry an op, device by device: the quick way for large schedules.

        ``paired[i]``: op i runs as one with op i + 1. Raises ScheduleError as the class does.
        """
        self = cls.__new__(cls)
        self._build(*read_columns(device, stage, kind, microbatch), paired, name)
        return self

    def _build(
        self,
        device: np.ndarray,
        stage: np.ndarray,
        kind: np.ndarray,
        microbatch: np.ndarray,
        paired: np.ndarray | None,
        name: str,
    ) -> None:
        self.name = name
        self.device, self.stage, self.microbatch = (np.array(c, np.int64).ravel() for c in (device, stage, microbatch))
        self.kind = np.array(kind, "<U1").ravel()
        self.paired = np.zeros(self.num_ops, bool) if paired is None else np.array(paired, bool).ravel()
        self.first = np.searchsorted(self.device, np.arange(self.num_devices + 1))
        check_pairs(self)
        self.needs = find_needs(self)
        self.nodes = find_nodes(self)
        self.steps = find_steps(self, self.nodes)
        columns = (self.device, self.stage, self.kind, self.microbatch, self.paired, self.needs)
        for column in (*columns, self.first, *self.nodes[:2], *self.nodes.needs, *self.steps):
            column.flags.writeable = False

    @cached_property
    def num_devices(self) -> int:
        """D, how many devices there are."""
        return int(self.device[-1]) + 1

    @cached_property
    def num_stages(self) -> int:
        """How many stages the model is cut into."""
        return int(self.stage.max()) + 1

    @cached_property
    def num_microbatches(self) -> int:
        """M, how many micro-batches one step runs."""
        return int(self.microbatch.max()) + 1

    @property
    def num_ops(self) -> int:
        """How many ops all devices run together."""
        return len(self.device)

    @cached_property
    def rows(self) -> tuple[tuple[Op, ...], ...]:
        """Each device's ops in order."""
        ops = list(map(Op, self.stage.tolist(), self.kind.tolist(), self.microbatch.tolist()))
        return tuple(tuple(ops[a:b]) for a, b in self.row_slices)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The stages of each device, in rising order; in DualPipe and Chimera a stage stands on two devices."""
        return tuple(tuple(np.unique(self.stage[a:b]).tolist()) for a, b in self.row_slices)

    @property
    def row_slices(self) -> list[tuple[int, int]]:
        """Where each device's ops begin and end in the columns."""
        return list(zip(self.first[:-1].tolist(), self.first[1:].tolist(), strict=True))

    @property
    def pairs(self) -> tuple[tuple[Op, Op], ...]:
        """The adjacent ops that run as one."""
        return tuple((self.op(i), self.op(i + 1)) for i in np.flatnonzero(self.paired))

    def op(self, index: int | np.integer) -> Op:
        """The op at an index of the columns."""
        return Op(int(self.stage[index]), str(self.kind[index]), int(self.microbatch[index]))

    def is_kind(self, kinds: str) -> np.ndarray:
        """Which ops are of one of these kinds, a boolean column."""
        letters = self.kind.view(np.uint32)
        return np.logical_or.reduce([letters == ord(kind) for kind in kinds])

    @cached_property
    def slot(self) -> np.ndarray:
        """In which slot each op starts if every op takes one slot and a hop none."""
        slot = np.empty(len(self.nodes.needs[0]), int)
        slot[np.concatenate(self.steps)] = np.repeat(np.arange(len(self.steps)), list(map(len, self.steps)))
        slot = slot[self.nodes.of_op]
        slot.flags.writeable = False
        return slot

    @cached_property
    def hops(self) -> np.ndarray:
        """Which ops wait for a message from another device, a boolean column."""
        sender = self.needs[:, 0]
        hops = (sender >= 0) & (self.device != self.device[sender])
        hops.flags.writeable = False
        return hops

    def _find_pairs(self, pairs: Iterable[tuple[Op | str, Op | str]]) -> np.ndarray:
        if isinstance(pairs, (str, bytes, dict)) or not isinstance(pairs, Iterable):
            raise ScheduleError(f"pairs must be a list of pairs of ops, such as [('0F1', '0B0')], not {pairs!r:.60}")
        paired, pairs = np.zeros(self.num_ops, bool), list(pairs)
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ScheduleError(f"{pair!r:.60} is not a pair: give two ops, such as ('0F1', '0B0')")
        if pairs:
            first, second = self._find("pairs, op", list(chain.from_iterable(pairs))).reshape(-1, 2).T
            apart = np.flatnonzero(second != first + 1)
            if len(apart):
                raise_no_pair(self, int(first[apart[0]]), int(second[apart[0]]))
            paired[first] = True
        return paired

    def find(self, op: Op | str) -> int:
        """The index of an op, such as ``"2F0"``, in the columns; raises ScheduleError where it is not run."""
        return int(self._find("op", [op])[0])

    def _find(self, where: str, ops: list[Op | str]) -> np.ndarray:
        stage, kind, microbatch = read_ops(where, ops)
        there = (stage < self.num_stages) & (microbatch < self.num_microbatches)
        found = np.full(len(ops), -1)
        found[there] = self._index[microbatch[there], stage[there], np.searchsorted(list("BFIW"), kind[there])]
        if (found < 0).any():
            i = int(np.argmin(found))
            raise ScheduleError(f"{stage[i]}{kind[i]}{microbatch[i]} is not in the schedule {self.name}")
        return found

    @cached_property
    def _index(self) -> np.ndarray:
        """The index of each op by micro-batch, stage and kind (B, F, I, W); −1 for none."""
        index = np.full((self.num_microbatches, self.num_stages, 4), -1)
        index[self.microbatch, self.stage, np.searchsorted(list("BFIW"), self.kind)] = np.arange(self.num_ops)
        return index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        columns = ("device", "stage", "kind", "microbatch", "paired")
        return all(np.array_equal(getattr(self, c), getattr(other, c)) for c in columns)

    def __hash__(self) -> int:
        return hash((self.stage.tobytes(), self.kind.tobytes(), self.microbatch.tobytes()))

    def __repr__(self) -> str:
        sizes = f"{self.num_devices} devices, {self.num_stages} stages, {self.num_microbatches} micro-batches"
        return f"<Schedule {self.name}: {sizes}, {self.num_ops} ops>"

    def __str__(self) -> str:
        return text_grid(self, self.slot, self.slot + 1)

    def _repr_html_(self) -> str:
        from pplab.simulate import simulate

        return simulate(self)._repr_html_()


def check_schedule(s: object) -> Schedule:
    """The schedule itself; raises TypeError, with the way out, for anything else."""
    if not isinstance(s, Schedule):
        raise TypeError(
            f"{s!r:.60} is not a schedule: give a Schedule, such as pplab.one_f_one_b(4, 8) or pplab.Schedule(rows)"
        )
    return s


def text_grid(schedule: Schedule, start: np.ndarray, end: np.ndarray, most_slots: int = 100) -> str:
    """A schedule as text: a row a device, a column a slot, ``.`` where it waits, ``-`` where an op goes on.

    ``start`` and ``end``: whole slots, one entry an op. A device with one stage shows ``F0`` for
    ``2F0``. Beyond ``most_slots`` the picture stops and says so.
    """
    start, end = np.asarray(start, int), np.asarray(end, int)
    shown = min(int(end.max()), most_slots)
    rows = []
    for a, b in schedule.row_slices:
        cells = ["."] * shown
        skip = len(str(schedule.stage[a])) if (schedule.stage[a:b] == schedule.stage[a]).all() else 0
        for i in range(a, b):
            if start[i] >= shown:
                break
            if start[i] == end[i]:  # takes no time, so it has no slot
                continue
            label = str(schedule.op(i))[skip:]
            together = i > a and schedule.paired[i - 1]
            cells[start[i] : end[i]] = [f"{cells[start[i]]}&{label}" if together else label] + ["-"] * (
                end[i] - start[i] - 1
            )
        rows.append(cells[:shown])
    width = max(len(cell) for row in [*rows, [str(shown - 1)]] for cell in row)
    lines = [("slot", list(map(str, range(shown)))), *((f"device {d}", row) for d, row in enumerate(rows))]
    text = "\n".join(f"{name:10}" + " ".join(cell.rjust(width) for cell in row) for name, row in lines)
    return text if shown == int(end.max()) else f"{text}\n… the first {shown} of {int(end.max())} slots"
