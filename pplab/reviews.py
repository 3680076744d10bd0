"""review: what rows that somebody wrote are worth: why they cannot run, or where they wait, and how good they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import numpy as np

from pplab.costs import Costs
from pplab.idle import IdleGap, idle_gaps
from pplab.metrics import bubble_fraction, held_microbatches, lower_bound, makespan
from pplab.op import Op, Row
from pplab.presets import check_number
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate
from pplab.timeline import Timeline

_IN_WORDS = {
    "ramp": "the pipeline is still filling",
    "drain": "it has no forwards left to fill the time with",
    "order": "the order of the rows",
    "slower stage": "a slower stage",
    "hop": "a message on its way",
    "communication": "it is sending or receiving",
}
_MOST_GAPS = 3  # that are told
_MOST_OPS = 4000  # beyond, no comparison with all named schedules


@dataclass(frozen=True)
class Score:
    """A timeline in four numbers; ``makespan`` and ``bound``, which no order of these ops can beat, in its unit.

    most_held : micro-batches on the device that holds most; of V chunks each counts 1/V.
    """

    makespan: float
    bubble: float
    bound: float
    most_held: float

    @property
    def over_bound(self) -> float:
        """How many times the bound it takes; 1 is the best there can be."""
        return self.makespan / self.bound if self.bound else 1.0

    def __str__(self) -> str:
        held = f"{self.most_held:g} micro-batch{'es' * (self.most_held != 1)}"
        return f"time {self.makespan:g}, bubble {self.bubble:.1%}, most held {held}"


@dataclass(frozen=True)
class Review:
    """What ``review`` found; it shows itself as text, and as a picture with that text in a notebook.

    problem : why the rows are refused, or which limit they break; None where all is well. schedule, timeline, score :
    None where they cannot run. waits : the largest idle times, in words. best : the named schedule of the same D, M
    and V, with backwards whole or split as in the rows, that does best within the limit, and its score; None where
    there is none, or the rows are long.
    """

    problem: str | None
    schedule: Schedule | None = None
    timeline: Timeline | None = None
    score: Score | None = None
    waits: tuple[str, ...] = ()
    best: tuple[str, Score] | None = None

    def __repr__(self) -> str:
        if self.schedule is None or self.score is None:
            return f"These rows cannot run.\n{self.problem}"
        s = self.schedule
        lines = [f"They run: {s.num_devices} devices, {s.num_stages} stages, {s.num_microbatches} micro-batches."]
        lines += [f"But {self.problem}"] * (self.problem is not None)
        lines += [f"yours: {self.score}"]
        lines += [f"{self.best[0]}: {self.best[1]}"] if self.best else []
        lines += [f"No order of these ops takes less than {self.score.bound:g}; yours takes {_times(self.score)}."]
        return "\n".join([*lines, *self.waits])

    def _repr_html_(self) -> str:
        text = f'<pre style="white-space:pre-wrap;word-break:normal">{escape(repr(self))}</pre>'
        if self.timeline is None:
            return text
        from pplab.draw import picture

        return picture(self.timeline)._repr_html_() + text


def review(
    rows: str | Iterable[Row] | Schedule,
    costs: Costs | None = None,
    pairs: Iterable[tuple[Op | str, Op | str]] = (),
    memory_limit: float | None = None,
    name: str = "your rows",
) -> Review:
    """Judge rows, one string of ops a device (or a text with a line a device, or a Schedule); never an error for them.

    ``costs`` and ``pairs`` as in simulate and Schedule; F = 1 and B = 2 unless given. ``memory_limit``: how many
    micro-batches a device may hold; of V chunks each counts 1/V. Compared with the best named schedule of the same
    sizes where that is quick. Raises TypeError for what are no costs, ValueError for a limit that is no number.
    """
    if memory_limit is not None:
        check_number("memory_limit", memory_limit)
    try:
        if isinstance(rows, Schedule):
            s = rows
        else:
            s = Schedule(rows.strip().splitlines() if isinstance(rows, str) else rows, name=name, pairs=pairs)
        t = simulate(s, costs)
        score = _score(t, costs)
    except ValueError as error:
        return Review(str(error))
    return Review(_broken(t, memory_limit), s, t, score, _waits(t), _best(s, costs, memory_limit))


def _times(score: Score) -> str:
    return "just that" if score.over_bound < 1 + 1e-9 else f"{score.over_bound:.3f} times that"


def _score(t: Timeline, costs: Costs | None) -> Score:
    """Raises ValueError where every op takes no time."""
    return Score(makespan(t), bubble_fraction(t), lower_bound(t.schedule, costs), float(held_microbatches(t).max()))


def _broken(t: Timeline, limit: float | None) -> str | None:
    """Which device holds more than the limit, and what would help."""
    held = held_microbatches(t)
    if limit is None or held.max() <= limit:
        return None
    k = int(np.argmax(held > limit))
    return f"device {k} holds {held[k]:g} micro-batches, over the limit of {limit:g}: run a backward there sooner."


def _waits(t: Timeline) -> tuple[str, ...]:
    """The longest idle times, in words; equal ones in the order of devices."""
    gaps = sorted(idle_gaps(t), key=lambda gap: gap.start - gap.end)
    if not gaps:
        return ("no device ever waits",)
    told = tuple(map(_told, gaps[:_MOST_GAPS]))
    rest = gaps[_MOST_GAPS:]
    more = f"and {len(rest)} more {'waits, none of them' if len(rest) > 1 else 'wait, no'} longer"
    return (*told, more) if rest else told


def _told(gap: IdleGap) -> str:
    where = f"device {gap.device} waits from {gap.start:g} to {gap.end:g}"
    if gap.before is None:
        return f"{where}: it is done, and {gap.waiting_for} ends the step"
    awaited = f" for {gap.waiting_for}" if gap.waiting_for else ""
    return f"{where}, before {gap.before},{awaited}: {_IN_WORDS[gap.reason]}"


def _best(s: Schedule, costs: Costs | None, limit: float | None) -> tuple[str, Score] | None:
    """The quickest named schedule that does the same work within the limit; of equal ones that which holds less."""
    if s.num_ops > _MOST_OPS:
        return None
    found = []
    for name in SCHEDULES:
        other = _named(name, s)
        if other is not None:
            try:
                score = _score(simulate(other, costs), costs)
            except ValueError:  # costs that fit one split of the backward alone
                continue
            if limit is None or score.most_held <= limit:
                found.append((name, score))
    return min(found, key=lambda pair: (pair[1].makespan, pair[1].most_held), default=None)


def _named(name: str, s: Schedule) -> Schedule | None:
    """The named schedule of the same sizes and the same work; None where it does not take them or does other work."""
    chunks, left = divmod(s.num_stages, s.num_devices)
    options = [{"num_chunks": chunks}, {}] if not left else [{}]  # DualPipe has two chunks of as many stages as devices
    for option in options:
        try:
            other = SCHEDULES[name](s.num_devices, s.num_microbatches, **option)
        except ValueError:
            continue
        if _work(other) == _work(s):
            return other
    return None


def _work(s: Schedule) -> tuple[int, int, bool, bool]:
    """Stages, stages on all devices (one that stands on two counts twice), whether it goes backward, and in halves."""
    return s.num_stages, sum(map(len, s.placement)), bool(s.is_kind("BI").any()), bool(s.is_kind("W").any())
