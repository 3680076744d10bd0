"""The exercises of the notebooks: what is right, computed, and the mistakes that people make, each with its hint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pplab.metrics import bubble_fraction, makespan, peak_in_flight
from pplab.op import Op
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate

_SIZES = [(4, 1), (4, 8), (2, 3), (8, 64), (5, 2)]


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
        if np.isclose(answer, self.right()):
            return None
        return next((hint for wrong, hint in self.mistakes.items() if np.isclose(answer, wrong)), self.hint)


@dataclass(frozen=True)
class Function:
    """A function to write, tried on ``cases``. ``mistakes``: wrong ones that people write, each with its hint."""

    right: Callable[..., float]
    cases: Sequence[tuple[int, ...]]
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
        for mistake, hint in self.mistakes.items():
            if all(_close(value, mistake(*case)) for case, value in zip(self.cases, given, strict=True)):
                return hint
        return f"for {wrong[0]} your function gives {given[self.cases.index(wrong[0])]!r:.40}. {self.hint}"


@dataclass(frozen=True)
class Rows:
    """A schedule to write as rows: any order is right that has its sizes and does as well as ``goal``."""

    goal: Callable[[], Schedule]
    praise: str
    hint: str

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
        held, least = peak_in_flight(mine), peak_in_flight(best)
        if (held > least).any():
            k = int(np.argmax(held > least))
            return f"as quick, but device {k} holds {held[k]} micro-batches where {least[k]} are enough. {self.hint}"
        return None


def _close(value: Any, right: float) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(np.isclose(value, right))


def _step_time(num_devices: int, num_microbatches: int, name: str = "1f1b") -> float:
    return makespan(simulate(SCHEDULES[name](num_devices, num_microbatches)))


def _bubble(num_devices: int, num_microbatches: int) -> float:
    return bubble_fraction(simulate(SCHEDULES["gpipe"](num_devices, num_microbatches)))


def _held(name: str) -> Callable[[int, int, int], float]:
    return lambda d, m, k: float(peak_in_flight(simulate(SCHEDULES[name](d, m)))[k])


_PLACES = [(4, 8, 0), (4, 8, 3), (4, 2, 0), (8, 64, 2), (3, 3, 1)]
TASKS: dict[str, Number | Function | Rows] = {
    "first-start": Number(
        lambda: float(simulate(SCHEDULES["gpipe"](4, 8)).start[SCHEDULES["gpipe"](4, 8).find(Op(3, "F", 0))]),
        "The first micro-batch passes three devices before it reaches device 3, one slot each.",
        "Follow micro-batch 0 from device to device: each forward takes one slot.",
        {4: "that is when device 3 has finished its first forward. When did it start?", 1: "that is device 1."},
    ),
    "time-saved": Number(
        lambda: _step_time(4, 8, "naive") - _step_time(4, 8),
        "Same work, same devices: only the order changed.",
        "Read both times off the numbers under the pictures, for D = 4, M = 8, backward : forward = 2, no hop.",
        {33: "that is the time of 1F1B itself. How much less than the naive one is it?", 96: "that is the naive time."},
    ),
    "bubble": Function(
        _bubble,
        _SIZES,
        "Your formula equals the simulation on every size tried.",
        "Count one device's idle slots, and divide by the whole step, idle slots included.",
        {
            lambda d, m: (
                (d - 1) / m
            ): "you divide the idle time by the useful time. The bubble is its share of the whole.",
            lambda d, m: 1 - (d - 1) / (m + d - 1): "that is the utilisation; the bubble is the rest.",
            lambda d, m: d / (m + d): "off by one: a device waits for the others, not for itself.",
            lambda d, m: (d - 1) / (2 * m + d - 1): "you count the ramp but not the drain, and forwards and backwards.",
        },
    ),
    "below-ten-percent": Number(
        lambda: float(next(m for m in range(1, 1000) if _bubble(8, m) < 0.1 - 1e-12)),
        "M > 9(D − 1): for D = 4, 8, 16 that is 28, 64 and 136.",
        "Solve (D − 1)/(M + D − 1) < 0.1 for M, with D = 8.",
        {
            63: "so close: 63 gives 10% exactly, and the question asks for less.",
            71: "you divided the idle time by the useful time alone.",
        },
    ),
    "gpipe-rows": Rows(
        lambda: SCHEDULES["gpipe"](2, 3),
        "A legal GPipe step, in as few slots as there can be.",
        "It takes 2 devices and 3 micro-batches: all forwards first, then all backwards, on both.",
    ),
    "recompute-time": Function(
        lambda d, m: makespan(simulate(SCHEDULES["gpipe"](d, m), _recomputing())) / _step_time(d, m, "gpipe"),
        _SIZES,
        "A third more, whatever D and M are: F + B grows from 3 to 4, and the whole step with it.",
        "A backward now takes F + B. What happens to (M + D − 1)(F + B)?",
        {
            lambda d, m: 1.5: "the backward alone grows by a half; the step also has forwards, which stay as they are.",
            lambda d, m: 2.0: "only forwards run twice, and backwards once.",
            lambda d, m: 4 / 3 - 1: "that is what is added; the question asks for the ratio of the two times.",
        },
    ),
    "1f1b-rows": Rows(
        lambda: SCHEDULES["1f1b"](3, 4),
        "Warm up with D − k − 1 forwards, then one forward and one backward in turn, then drain: that is 1F1B.",
        "It takes 3 devices and 4 micro-batches. Device k starts with 2 − k forwards, then takes turns.",
    ),
    "1f1b-held": Function(
        _held("1f1b"),
        _PLACES,
        "min(M, D − k): the first device holds the most, and never more than there are micro-batches.",
        "Device k runs its warm-up and one forward more before its first backward. How many can be open at once?",
        {
            lambda d, m, k: m: "that is GPipe: it holds every micro-batch.",
            lambda d, m, k: d: "that is the bound for the whole pipeline's first device. Later devices hold less.",
            lambda d, m, k: d - k: "right while M ≥ D − k. What if there are fewer micro-batches than that?",
            lambda d, m, k: min(
                m, d - k - 1
            ): "off by one: after the warm-up one more forward comes before the first backward.",
        },
    ),
}


def _recomputing() -> Any:
    from pplab.costs import Costs

    return Costs(forward=1.0, backward=3.0)
