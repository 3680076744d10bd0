"""The explorer of real runs: a schedule and its passes, predicted at once, and measured when the reader says so."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ipywidgets as w
import numpy as np

from pplab import svg
from pplab.distributed import Emulated, RunError, RunResult, run
from pplab.distributed.refusals import check_schedule
from pplab.idle import idle_by_reason
from pplab.metrics import bubble_fraction, makespan, peak_in_flight
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate
from pplab.timeline import Timeline
from pplab.widgets.controls import choice, first_and_more, number, set_range
from pplab.widgets.tables import MS, milliseconds, note, table

_HEAD = (
    "",
    "step",
    "error, and its band over the steps",
    "bubble",
    "alive on device 0, 1, …, at most",
    "other work",
    "idle, all devices",
)
_STEPS = {"steps": 4, "warm_ups": 1}


class RunExplorer(w.VBox):
    """A schedule, D, M, how long passes sleep, a slower stage; below, the prediction, and what a real run measured.

    Nothing runs until ``go`` is clicked; then a few steps run on real processes, a device each, with passes that sleep,
    while the buttons wait. The kernel's interrupt, ■ in JupyterLab, ends a run early. Moving a control puts the
    measured picture away, since it belongs to other sizes. Set ``schedule.value``, ``devices.value``,
    ``microbatches.value``, ``forward.value`` and ``backward.value`` (milliseconds of a device's pass), ``slow.value``
    (a stage) or ``percent.value`` to move a control from code, and call ``go.click()``; ``predicted`` (seconds; None
    where the schedule refuses the sizes) and ``result`` (None before a run) hold what is shown. What goes wrong
    is said in place of the numbers. Raises ValueError for a schedule that processes cannot run, and for sizes that the
    controls do not reach.
    """

    def __init__(
        self,
        schedule: str = "1f1b",
        num_devices: int = 4,
        num_microbatches: int = 8,
        forward_ms: float = 20.0,
        backward_ms: float = 40.0,
        slow_stage: int = 0,
        percent_slower: int = 0,
    ) -> None:
        self.schedule = choice("schedule", schedule, runnable())
        rows = {}
        rows["devices"], self.devices = number("devices D", num_devices, 1, 8)
        rows["microbatches"], self.microbatches = number("micro-batches M", num_microbatches, 1, 16)
        rows["forward"], self.forward = number("forward, ms", float(forward_ms), 5.0, 50.0, 5.0)
        rows["backward"], self.backward = number("backward, ms", float(backward_ms), 5.0, 100.0, 5.0)
        self._slow_row, self.slow = number("slower stage", slow_stage, 0, 15)
        rows["percent"], self.percent = number("slower by, %", percent_slower, 0, 100, 5)
        self.go = w.Button(description="run it", tooltip="run it for real, a process a device")
        self.status = w.HTML()
        self.pictures, self.numbers = [w.HTML(), w.HTML()], w.HTML()
        self.predicted: Timeline | None = None
        self.result: RunResult | None = None
        sizes = (self.schedule, self.devices, self.microbatches)
        for control in (*sizes, self.forward, self.backward, self.slow, self.percent):
            control.observe(self._predict, names="value")
        self.go.on_click(self._run)
        self._predict()
        first = [self.schedule, rows["devices"], rows["microbatches"], rows["percent"]]
        above = first_and_more(first, [rows["forward"], rows["backward"], self._slow_row])
        super().__init__([*above, w.HBox([self.go, self.status]), *self.pictures, self.numbers])

    @property
    def workload(self) -> Emulated:
        """Passes as the controls say: a device's pass, shared out over its stages, and one stage slower."""
        s = self._schedule()
        times = np.full(s.num_stages, s.num_devices / s.num_stages)
        times[self.slow.value] *= 1 + self.percent.value / 100
        forward, half = (tuple((x * times).tolist()) for x in (self.forward.value, self.backward.value / 2))
        return Emulated(forward, half, half)

    def _schedule(self) -> Schedule:
        return SCHEDULES[self.schedule.value](self.devices.value, self.microbatches.value)

    def _predict(self, _change: Any = None) -> None:
        """Simulate what the controls say; a run of other sizes is put away."""
        self.result, self.predicted, self.status.value = None, None, ""
        try:
            s = self._schedule()
        except ValueError as error:
            self.go.disabled = True
            self._show(str(error))
            return
        self.go.disabled = False
        if self.slow.max != s.num_stages - 1:
            set_range(self._slow_row, 0, s.num_stages - 1, min(self.slow.value, s.num_stages - 1))
        self.predicted = simulate(s, self.workload.costs())
        self._show()

    def _run(self, _button: Any = None) -> None:
        """Run what the controls say, and show it below the prediction; or say why there is nothing to show."""
        if self.go.disabled:  # a second click, while the first one's run was going on
            return
        self.go.disabled, self.status.value = True, note("running … (■ interrupts)")
        said = ""
        try:
            self.result = run(self._schedule(), self.workload, **_STEPS)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            said = "interrupted: all processes of the run have ended"
        except (ValueError, ImportError, RunError) as error:
            said = f"no run: {error}"
        finally:
            self.go.disabled, self.status.value = False, ""
        self._show(said)

    def _show(self, said: str = "") -> None:
        """Both pictures on one axis, and their numbers, or what there is to say instead."""
        lines = {"predicted": self.predicted, "measured": self.result.timeline if self.result else None}
        shown = {name: t for name, t in lines.items() if t is not None}
        until = max(map(makespan, shown.values()), default=0.0)
        for html, (name, t) in zip(self.pictures, lines.items(), strict=True):
            title = "" if t is None else f"{t.schedule.name}, {name}, seconds"
            html.value = "" if t is None else svg.timeline(t, until=until, title=title)
        rows = [self._numbers(name, t) for name, t in shown.items()]
        self.numbers.value = (note(said) if said else "") + (table(_HEAD, rows) if rows else "")

    def _numbers(self, name: str, t: Timeline) -> tuple[str, ...]:
        r = self.result if t.measured else None
        error, alive, load = "", peak_in_flight(t).tolist(), ""
        if r is not None:
            off = r.prediction_error()
            error = f"{off['median']:+.1%}, {off['slowest']:+.1%} to {off['fastest']:+.1%}"
            alive = list(r.live_chunks or ())
            load = "unknown" if r.load is None else f"{r.load:.2f} of {r.cores} cores"
        reasons = {reason: time.sum() for reason, time in idle_by_reason(t).items()}
        idle = ", ".join(f"{reason} {milliseconds(MS * x)}" for reason, x in reasons.items() if x > 5e-4)
        step = milliseconds(MS * makespan(t))
        return (name, step, error, f"{bubble_fraction(t):.1%}", ", ".join(map(str, alive)), load, idle or "none")

    def __repr__(self) -> str:
        return "[explorer of real runs: run this cell to move its sliders; nothing runs before you press its button]"


@lru_cache
def runnable() -> tuple[str, ...]:
    """The schedules that real processes can run."""
    return tuple(name for name in SCHEDULES if _runs(name))


def _runs(name: str) -> bool:
    try:
        check_schedule(SCHEDULES[name](2, 8), "rows")
    except ValueError:
        return False
    return True
