"""The kinds of answer that an exercise takes: a number, a function, rows, a real run of them, a cut into stages.

Each knows what is right, by computing it, and the mistakes that people make, with the hint for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pplab.distributed.result import RunResult
from pplab.metrics import makespan, peak_in_flight
from pplab.partition import Partition, optimal
from pplab.schedule import Schedule
from pplab.simulate import simulate


@dataclass(frozen=True)
class Number:
    """A number to find. ``mistakes``: wrong answers that people give, each with the hint for it."""

    right: Callable[[], float]
    praise: str
    hint: str
    mistakes: dict[float, str]

    def find_mistake(self, answer: Any) -> str | None:
        """The hint for a wrong answer, None for a right one; NotImplementedError for an untouched stub."""
        if answer is ...:
            raise NotImplementedError
        if isinstance(answer, bool) or not isinstance(answer, (int, float, np.number)):
            return f"the answer is a number, not {answer!r:.40}."
        if np.isclose(answer, self.right(), rtol=5e-3):
            return None
        return next((hint for wrong, hint in self.mistakes.items() if np.isclose(answer, wrong, rtol=5e-3)), self.hint)


@dataclass(frozen=True)
class Function:
    """A function to write, tried on ``cases``. ``mistakes``: wrong ones that people write, each with its hint."""

    right: Callable[..., float]
    cases: Sequence[tuple[Any, ...]]
    praise: str
    hint: str
    mistakes: dict[Callable[..., float], str]

    def find_mistake(self, answer: Any) -> str | None:
        """The hint for a wrong function, None for a right one; what the function raises goes through."""
        if not callable(answer):
            return "hand in the function itself, without calling it."
        given = [answer(*case) for case in self.cases]
        wrong = [case for case, value in zip(self.cases, given, strict=True) if not _close(value, self.right(*case))]
        if not wrong:
            return None
        if any(value is None for value in given):
            return "your function returns nothing: end it with return."
        if text := next((value for value in given if isinstance(value, str)), None):
            return f"your function gives {text!r:.40}: it has to be a number, not text."
        for mistake, hint in self.mistakes.items():
            if all(_close(value, mistake(*case)) for case, value in zip(self.cases, given, strict=True)):
                return hint
        if all(_close(value, self.right(*case), 1e-2) for case, value in zip(self.cases, given, strict=True)):
            return "right, but rounded: return all digits."
        return f"for {wrong[0]} your function gives {given[self.cases.index(wrong[0])]!r:.40}. {self.hint}"


@dataclass(frozen=True)
class Rows:
    """A schedule to write as rows: any order is right that has its sizes and does as well as ``goal``.

    ``forwards_first``: no forward may follow a backward on a device.
    """

    goal: Callable[[], Schedule]
    praise: str
    hint: str
    forwards_first: bool = False

    def find_mistake(self, answer: Any) -> str | None:
        """The hint for rows that fall short, None for good ones; ScheduleError for rows that cannot run."""
        if answer is ... or any(row is ... or row == "..." for row in answer):
            raise NotImplementedError
        goal, schedule = self.goal(), Schedule(answer, name="your rows")
        sizes = (schedule.num_devices, schedule.num_stages, schedule.num_microbatches)
        if sizes != (goal.num_devices, goal.num_stages, goal.num_microbatches):
            return f"your rows have {sizes[0]} devices, {sizes[1]} stages and {sizes[2]} micro-batches; {self.hint}"
        mine, best = simulate(schedule), simulate(goal)
        if makespan(mine) > makespan(best):
            return f"they run, but take {makespan(mine):g} slots where {makespan(best):g} are enough. {self.hint}"
        mixed = [k for k, row in enumerate(schedule.rows) if "BF" in "".join(op.kind for op in row)]
        if self.forwards_first and mixed:
            return f"as quick, but device {mixed[0]} runs a backward before its last forward. {self.hint}"
        held, least = peak_in_flight(mine), peak_in_flight(best)
        if (held > least).any():
            k = int(np.argmax(held > least))
            return f"as quick, but device {k} holds {held[k]} micro-batches where {least[k]} are enough. {self.hint}"
        return None


@dataclass(frozen=True)
class RealRun:
    """Rows to write and to run for real: any order is right that has the goal's sizes and time, and holds few enough.

    ``most``: micro-batches alive on a device. How near the prediction came is not judged: that is up to the machine.
    """

    goal: Callable[[], Schedule]
    most: int
    praise: str
    hint: str

    def find_mistake(self, answer: Any) -> str | None:
        """The hint for a run that falls short, None for a good one; NotImplementedError for an untouched stub."""
        if answer is ...:
            raise NotImplementedError
        if not isinstance(answer, RunResult):
            return f"hand in what run(…) gave for your rows, a RunResult, not {answer!r:.40}."
        goal, schedule = self.goal(), answer.schedule
        sizes = (schedule.num_devices, schedule.num_stages, schedule.num_microbatches)
        if sizes != (goal.num_devices, goal.num_stages, goal.num_microbatches):
            return f"your rows have {sizes[0]} devices, {sizes[1]} stages and {sizes[2]} micro-batches; {self.hint}"
        took, least = makespan(simulate(schedule)), makespan(simulate(goal))
        if took > least:
            return f"they ran, but in simulation take {took:g} slots where {least:g} are enough. {self.hint}"
        if answer.live_chunks is None:
            return "nobody counted what was alive: run it again without check=False."
        if max(answer.live_chunks) > self.most:
            k, held = int(np.argmax(answer.live_chunks)), max(answer.live_chunks)
            return f"as quick, but {held} micro-batches were alive on device {k}; {self.most} are allowed. {self.hint}"
        return None


@dataclass(frozen=True)
class Cut:
    """Layers to cut into stages: the sizes of the stages, right if the slowest stage is as quick as the best cut's."""

    times: tuple[float, ...]
    num_stages: int
    praise: str
    hint: str

    def find_mistake(self, answer: Any) -> str | None:
        """The hint for a wrong cut, None for a best one; NotImplementedError for an untouched stub."""
        if not isinstance(answer, (list, tuple)):
            return f"give a list of {self.num_stages} whole numbers, not {answer!r:.40}."
        if any(size is ... for size in answer):
            raise NotImplementedError
        sizes = tuple(answer)
        if not all(isinstance(size, int) for size in sizes):
            return f"give {self.num_stages} whole numbers, how many layers each stage has."
        if len(sizes) != self.num_stages or sum(sizes) != len(self.times):
            return (
                f"{len(sizes)} stages with {sum(sizes)} layers in all; it takes {self.num_stages} stages that share "
                f"{len(self.times)} layers."
            )
        slowest, best = Partition(sizes, self.times).slowest, optimal(self.times, self.num_stages).slowest
        return (
            None
            if slowest <= best
            else f"the slowest stage takes {slowest:g}, and {best:g} can be reached. {self.hint}"
        )


def _close(value: Any, right: float, within: float = 1e-8) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(np.isclose(value, right, atol=within))
