"""Beat the bubble: rows judged by how near they come to the lower bound, and the table of a class."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pplab.costs import Costs
from pplab.io import read_torch_csv
from pplab.metrics import lower_bound, makespan, peak_in_flight
from pplab.op import Row, ScheduleError
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate

_PAR = ("naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2")


@dataclass(frozen=True)
class Entry:
    """What a hand-in is worth. ``problem``: why it does not count, None where it does; it then has no score.

    makespan in slots, most_held in micro-batches on the device that holds most; both None where rows cannot run.
    score : lower bound / makespan, from 0 to 1. points : from 0 to 10.
    """

    name: str
    makespan: float | None = None
    most_held: int | None = None
    score: float = 0.0
    points: float = 0.0
    problem: str | None = None

    def __str__(self) -> str:
        numbers = "" if self.makespan is None else f"{self.makespan:g} slots, holds {self.most_held}, "
        if self.problem:
            return f"{self.name}: {numbers}does not count: {self.problem}"
        return f"{self.name}: {numbers}score {self.score:.3f}, {self.points:g} points"


@dataclass(frozen=True)
class Contest:
    """The rules: sizes, costs, and how many micro-batches a device may hold. Stage k stands on device k.

    A forward, a backward for the input and one for the weights take a slot each, a message ``hop`` slots.
    """

    num_devices: int = 4
    num_microbatches: int = 8
    hop: float = 1.0
    memory_limit: int = 6

    @property
    def costs(self) -> Costs:
        """One slot for F, I and W each, two for a whole backward."""
        return Costs(forward=1.0, backward_input=1.0, backward_weight=1.0, hop=self.hop)

    @property
    def bound(self) -> float:
        """Slots below which no order can get, whether backwards are whole or split."""
        return lower_bound(SCHEDULES["zb-h1"](self.num_devices, self.num_microbatches), self.costs)

    def judge(self, rows: Schedule | Iterable[Row], name: str = "yours") -> Entry:
        """What rows are worth; rows that cannot run, or break a rule, are told why and get no points."""
        try:
            s = rows if isinstance(rows, Schedule) else Schedule(rows, name=name)
        except ScheduleError as error:
            return Entry(name, problem=f"these rows cannot run. {error}")
        t = simulate(s, self.costs)
        took, held = makespan(t), int(peak_in_flight(t).max())
        problem = self._broken_rule(s, held)
        if problem:
            return Entry(name, took, held, problem=problem)
        score = self.bound / took
        return Entry(name, took, held, score, round(min(10.0, max(0.0, 25 * (score - 0.5))), 1))

    def par(self) -> list[Entry]:
        """What named schedules would get, computed."""
        return [self.judge(SCHEDULES[name](self.num_devices, self.num_microbatches), name) for name in _PAR]

    def _broken_rule(self, s: Schedule, held: int) -> str | None:
        sizes = (self.num_devices, self.num_microbatches)
        if (s.num_devices, s.num_microbatches) != sizes or s.placement != tuple((k,) for k in range(sizes[0])):
            return f"it takes {sizes[0]} devices, stage k on device k, and {sizes[1]} micro-batches"
        if not s.is_kind("BI").any() or s.paired.any():
            return "every micro-batch goes forward and backward, one op at a time"
        if held > self.memory_limit:
            return f"a device holds {held} micro-batches, and {self.memory_limit} is the limit"
        return None


CONTEST = Contest()


def class_table(folder: str | Path, contest: Contest = CONTEST) -> str:
    """A CSV table of all hand-ins in a folder, best first: PyTorch's CSV format, a file a person, named by the file.

    A file that cannot be read has its line too, with the reason. Raises ValueError where there is none to read.
    """
    files = sorted(Path(folder).glob("*.csv"))
    if not files:
        raise ValueError(f"no .csv file in {folder}: collect what pplab.write_torch_csv(schedule, 'name.csv') wrote")
    entries = []
    for file in files:
        try:
            entries.append(contest.judge(read_torch_csv(file), file.stem))
        except (ValueError, OSError) as error:
            entries.append(Entry(file.stem, problem=str(error)))
    entries.sort(key=lambda entry: (-entry.score, entry.most_held or 0, entry.name))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "slots", "most held", "score", "points", "problem"])
    for e in entries:
        writer.writerow([e.name, e.makespan, e.most_held, f"{e.score:.3f}", f"{e.points:g}", e.problem])
    return out.getvalue()
