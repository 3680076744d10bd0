"""The explorer: sizes and costs on sliders, one picture and one line of numbers for each schedule."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import ipywidgets as w
import numpy as np

from pplab.chapter import bubble_formula
from pplab.costs import Costs
from pplab.idle import idle_by_reason
from pplab.metrics import bubble_fraction, held_microbatches, makespan, messages_sent
from pplab.presets import is_size
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate
from pplab.timeline import Timeline
from pplab.widgets.controls import first_and_more, number, switch
from pplab.widgets.player import Player, grid_html
from pplab.widgets.tables import table

_MOST_DEVICES = 16


class Explorer(w.VBox):
    """Sliders for D, M, V or backward : forward, and the hop; below, a player of the timelines, and their numbers.

    V is there where a schedule shown leaves it free; it begins as theirs unless ``num_chunks`` is given. What is rarer
    stands under "more". Set ``devices.value``, ``microbatches.value``, ``chunks.value``, ``ratio.value``,
    ``hop.value``, ``blocking.value``, ``recompute.value`` or ``weight_share.value`` (of a backward that is split in I
    and W) to move a control from code; ``timelines`` holds what is shown, in forward passes of a device, without the
    schedules that refuse the sizes: their reasons stand in place of their pictures. ``reset()`` goes back to how it
    opened, and ``code`` is the line that repeats it. ``over="span"`` gives the bubble over the longest span too, as the
    table does by itself where the two differ. Raises ValueError for an unknown schedule and for sizes that the controls
    do not reach.
    """

    def __init__(
        self,
        *schedules: str,
        num_devices: int = 4,
        num_microbatches: int = 8,
        num_chunks: int | None = None,
        ratio: float = 2.0,
        hop: float = 0.0,
        recompute: bool | None = None,
        blocking: bool = False,
        weight_share: float = 0.5,
        over: str = "makespan",
    ) -> None:
        _check_names(schedules, over)
        self.schedules, self.over, self._shows_recompute = schedules, over, recompute is not None
        rows: dict[str, w.Widget] = {}
        rows["devices"], self.devices = number("devices D", num_devices, 1, _MOST_DEVICES)
        rows["microbatches"], self.microbatches = number("micro-batches M", num_microbatches, 1, 128)
        if num_chunks is not None and not any(map(leaves_chunks_free, schedules)):
            names = ", ".join(schedules)
            raise ValueError(f"num_chunks is {num_chunks!r:.40}, but {names} leave no choice: leave it out")
        chunks = usual_chunks(schedules) if num_chunks is None else num_chunks
        rows["chunks"], self.chunks = number("chunks V", chunks, 1, 8)
        rows["ratio"], self.ratio = number("backward : forward", float(ratio), 0.5, 4.0, 0.5)
        rows["hop"], self.hop = number("hop : forward", float(hop), 0.0, 2.0, 0.05)
        rows["share"], self.weight_share = number("weight share of backward", float(weight_share), 0.0, 1.0, 0.05)
        rows["recompute"] = self.recompute = switch(
            "recompute: run each forward again before its backward", bool(recompute)
        )
        rows["blocking"] = self.blocking = switch("a hop keeps both devices busy", bool(blocking))
        self.player, self.numbers = Player(), w.HTML()
        self.player.on_reset(self.reset)
        self.timelines: list[Timeline] = []
        self._controls = {
            "num_devices": self.devices,
            "num_microbatches": self.microbatches,
            "num_chunks": self.chunks,
            "ratio": self.ratio,
            "hop": self.hop,
            "weight_share": self.weight_share,
            "recompute": self.recompute,
            "blocking": self.blocking,
        }
        self._opened = {name: control.value for name, control in self._controls.items()}
        self._waits = False
        for control in self._controls.values():
            control.observe(self._show, names="value")
        self._show()
        first, more = _arranged(rows, schedules, self._shows_recompute)
        super().__init__([*first_and_more(first, more), self.player, self.numbers])

    def _simulate(self, name: str) -> Timeline | str:
        """What the controls say under a schedule, or why it refuses the sizes."""
        free = {"num_chunks": self.chunks.value} if leaves_chunks_free(name) else {}
        try:
            s = SCHEDULES[name](self.devices.value, self.microbatches.value, **free)
        except ValueError as error:
            return f"{name}: {error}"
        weight = self.ratio.value * self.weight_share.value
        for_input = self.ratio.value - weight + (1.0 if self.recompute.value else 0.0)
        passes = {"forward": 1.0, "backward_input": for_input, "backward_weight": weight}
        return simulate(s, Costs.per_device(s, **passes, hop=self.hop.value, blocking=self.blocking.value))

    def _show(self, _change: Any = None) -> None:
        """Simulate what the controls say, and put the pictures and numbers in place."""
        if self._waits:
            return
        shown = [self._simulate(name) for name in self.schedules]
        self.timelines = [t for t in shown if isinstance(t, Timeline)]
        self.player.show(*shown, code=self.code, over=self.over)
        self.numbers.value = numbers_table(self.timelines, self.over) if self.timelines else ""

    def set(self, **values: Any) -> None:
        """Move several controls at once, by the names of the constructor's arguments; TypeError for another name."""
        unknown = set(values) - set(self._controls)
        if unknown:
            raise TypeError(f"no control is called {', '.join(sorted(unknown))}: there are {', '.join(self._controls)}")
        self._waits = True
        try:
            for name, value in values.items():
                self._controls[name].value = value
        finally:
            self._waits = False
        self._show()

    def reset(self) -> None:
        """Put every control back to where it was at first."""
        self.set(**self._opened)

    @property
    def code(self) -> str:
        """A line of Python that gives the explorer as it stands."""
        usual = {"ratio": 2.0, "hop": 0.0, "weight_share": 0.5, "blocking": False, "over": "makespan"}
        usual |= {"num_chunks": usual_chunks(self.schedules), "recompute": None if self._shows_recompute else False}
        values = {name: control.value for name, control in self._controls.items()} | {"over": self.over}
        given = [f"{name}={value!r}" for name, value in values.items() if name not in usual or value != usual[name]]
        return f"pplab.widgets.explore({', '.join([*map(repr, self.schedules), *given])})".replace("'", '"')

    def to_html(
        self,
        num_devices: Iterable[int] = (2, 4, 8),
        num_microbatches: Iterable[int] = (1, 2, 4, 8, 16),
        num_chunks: Iterable[int] = (1, 2),
    ) -> str:
        """The explorer as a piece of HTML that needs no kernel: sliders over these sizes, and over its present ones.

        The other controls stay as they are. Two schedules take about 80 kB, three with V about 180 kB.
        Raises ValueError for sizes that the controls do not reach.
        """
        grid = {"num_devices": num_devices, "num_microbatches": num_microbatches}
        if any(map(leaves_chunks_free, self.schedules)):
            grid["num_chunks"] = num_chunks
        controls = {name: (self._controls[name], _within(name, self._controls[name], v)) for name, v in grid.items()}
        return grid_html(self.player, self.numbers, self.schedules, controls)

    def __repr__(self) -> str:
        return f"[explorer of {', '.join(self.schedules)}: run this cell to move its sliders]"


def _within(name: str, control: w.Widget, values: Iterable[int]) -> list[int]:
    """Values that a control can take, as a list; raises ValueError for others."""
    found = list(values)
    for value in found:
        if not is_size(value) or not control.min <= value <= control.max:
            raise ValueError(f"{name} is {value!r:.40}: give whole numbers from {control.min} to {control.max}")
    return found


def _check_names(schedules: tuple[str, ...], over: str) -> None:
    unknown = [name for name in schedules if not isinstance(name, str) or name not in SCHEDULES]
    if unknown or not schedules:
        raise ValueError(f"explore needs schedules out of {', '.join(SCHEDULES)}; not {unknown or 'none'}")
    if over not in ("makespan", "span"):
        raise ValueError(f"over is {over!r:.40}: choose 'makespan' or 'span'")


def _arranged(rows: dict[str, w.Widget], schedules: tuple[str, ...], recompute: bool) -> tuple[list[w.Widget], ...]:
    """Four controls for first sight, and the others that change something."""
    free = any(map(leaves_chunks_free, schedules))
    third = "chunks" if free else "recompute" if recompute else "ratio"
    wanted = {"ratio": True, "share": any(map(splits_backward, schedules)), "recompute": recompute, "blocking": True}
    more = [rows[key] for key, shown in wanted.items() if shown and key != third]
    return [rows[key] for key in ("devices", "microbatches", third, "hop")], more


@lru_cache
def leaves_chunks_free(name: str) -> bool:
    """Whether a schedule takes more than one number of chunks, found by asking it."""
    return len([s for s in map(lambda v: _small(name, v), range(1, 5)) if s]) > 1


def usual_chunks(schedules: tuple[str, ...]) -> int:
    """The most chunks a device that the schedules which leave V free take unless told."""
    small = [_small(name, None) for name in schedules if leaves_chunks_free(name)]
    return max((s.num_stages // s.num_devices for s in small if s is not None), default=1)


@lru_cache
def splits_backward(name: str) -> bool:
    """Whether a schedule runs W apart from I."""
    s = _small(name, None)
    return s is not None and bool(s.is_kind("W").any())


def _small(name: str, num_chunks: int | None) -> Schedule | None:
    """A schedule of sizes that all can take: an even number of devices, and enough micro-batches."""
    try:
        return SCHEDULES[name](2, 8, **({} if num_chunks is None else {"num_chunks": num_chunks}))
    except ValueError:
        return None


def numbers_table(timelines: list[Timeline], over: str = "makespan") -> str:
    """Each timeline's numbers as an HTML table: time, bubble, what is held and sent, why devices wait."""
    spans = over == "span" or any(f"{bubble_fraction(t, 'span'):.1%}" != f"{bubble_fraction(t):.1%}" for t in timelines)
    rows = [_numbers(t) for t in timelines]
    if not spans:
        rows = [{name: cell for name, cell in row.items() if name != _SPAN} for row in rows]
    return table(rows[0], [tuple(row.values()) for row in rows])


_SPAN = "bubble over the longest span"


def _numbers(t: Timeline) -> dict[str, str]:
    s, sent = t.schedule, messages_sent(t.schedule)
    idle = ", ".join(f"{reason} {time.sum():.4g}" for reason, time in idle_by_reason(t).items() if time.any())
    return {
        "schedule": s.name,
        "time": f"{makespan(t):.5g}",
        "bubble, simulated": f"{bubble_fraction(t):.1%}",
        _SPAN: f"{bubble_fraction(t, 'span'):.1%}",
        "bubble, formula": _formula(s),
        "micro-batches in flight on device 0, 1, …, at most": _listed(held_microbatches(t)),
        "messages, and how many device 0, 1, … sends": f"{sent.sum()}: {_listed(sent)}",
        "idle, all devices": idle or "none",
    }


def _formula(s: Schedule) -> str:
    """The closed form, a dash where there is none."""
    try:
        return f"{bubble_formula(s.num_devices, s.num_microbatches, s.name, s.num_stages // s.num_devices):.1%}"
    except ValueError:
        return "–"


def _listed(numbers: np.ndarray) -> str:
    return ", ".join(f"{x:.4g}" for x in numbers[:_MOST_DEVICES])
