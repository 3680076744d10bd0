"""The explorer: sizes and costs on sliders, one picture and one line of numbers for each schedule."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from pplab import svg
from pplab.chapter import bubble_formula
from pplab.costs import Costs
from pplab.idle import idle_by_reason
from pplab.metrics import bubble_fraction, makespan, peak_in_flight
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate
from pplab.timeline import Timeline
from pplab.widgets.controls import number, switch
from pplab.widgets.tables import table


class Explorer(w.VBox):
    """Sliders for D, M, backward : forward and the hop; below, timelines on one time axis, and their numbers.

    Set ``devices.value``, ``microbatches.value``, ``ratio.value``, ``hop.value`` or ``blocking.value`` to move a
    control from code; ``timelines`` holds what is shown, in forward passes. Raises ValueError for an unknown schedule
    and for sizes that the controls do not reach.
    """

    def __init__(
        self,
        *schedules: str,
        num_devices: int = 4,
        num_microbatches: int = 8,
        ratio: float = 2.0,
        hop: float = 0.0,
        recompute: bool | None = None,
    ) -> None:
        unknown = [name for name in schedules if name not in SCHEDULES]
        if unknown or not schedules:
            raise ValueError(f"explore needs schedules out of {', '.join(SCHEDULES)}; not {unknown or 'none'}")
        self.schedules = schedules
        rows = {}
        rows["devices"], self.devices = number("devices D", num_devices, 1, 16)
        rows["microbatches"], self.microbatches = number("micro-batches M", num_microbatches, 1, 128)
        rows["ratio"], self.ratio = number("backward : forward", float(ratio), 0.5, 4.0, 0.5)
        rows["hop"], self.hop = number("hop : forward", float(hop), 0.0, 2.0, 0.05)
        self.blocking = switch("a hop keeps both devices busy", False)
        self.recompute = switch("recompute: run each forward again before its backward", bool(recompute))
        switches = [self.blocking] if recompute is None else [self.blocking, self.recompute]
        self.pictures = [w.HTML() for _ in schedules]
        self.numbers = w.HTML()
        self.timelines: list[Timeline] = []
        for control in (self.devices, self.microbatches, self.ratio, self.hop, self.blocking, self.recompute):
            control.observe(self._show, names="value")
        self._show()
        super().__init__([*rows.values(), *switches, *self.pictures, self.numbers])

    def _show(self, _change: Any = None) -> None:
        """Simulate what the controls say, and put the pictures and numbers in place."""
        backward = self.ratio.value + (1.0 if self.recompute.value else 0.0)
        built = [SCHEDULES[name](self.devices.value, self.microbatches.value) for name in self.schedules]
        messages = {"hop": self.hop.value, "blocking": self.blocking.value}
        self.timelines = [simulate(s, Costs.per_device(s, 1.0, backward, **messages)) for s in built]
        until = max(map(makespan, self.timelines))
        for html, t in zip(self.pictures, self.timelines, strict=True):
            html.value = svg.timeline(t, until=until)
        self.numbers.value = numbers_table(self.timelines)

    def __repr__(self) -> str:
        return f"[explorer of {', '.join(self.schedules)}: run this cell to move its sliders]"


def numbers_table(timelines: list[Timeline]) -> str:
    """Each timeline's numbers as an HTML table: time, bubble, what is held, why devices wait."""
    head = (
        "schedule",
        "time",
        "bubble, simulated",
        "bubble, formula",
        "most in flight on device 0, 1, …",
        "idle, all devices",
    )
    return table(head, map(_numbers, timelines))


def _numbers(t: Timeline) -> tuple[str, ...]:
    s = t.schedule
    held = peak_in_flight(t).tolist()
    idle = ", ".join(f"{reason} {time.sum():.4g}" for reason, time in idle_by_reason(t).items() if time.any())
    formula = bubble_formula(s.num_devices, s.num_microbatches, s.name, s.num_stages // s.num_devices)
    return (
        s.name,
        f"{makespan(t):.5g}",
        f"{bubble_fraction(t):.1%}",
        f"{formula:.1%}",
        ", ".join(map(str, held[:16])),
        idle or "none",
    )
