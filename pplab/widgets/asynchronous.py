"""The explorer of asynchronous training: how loss, staleness and memory answer to D, the learning rate and the mode."""

from __future__ import annotations

from typing import Any

import ipywidgets as w
import numpy as np

from pplab.asynchronous import MODES, Training, flushed, train
from pplab.loss_curves import OVER, loss_curves
from pplab.machine import check_data
from pplab.metrics import bubble_fraction, steady_window
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate
from pplab.stage import MLP
from pplab.widgets.controls import choice, first_and_more, number, resetter, switch
from pplab.widgets.player import Player
from pplab.widgets.tables import note, table

_HEAD = (
    "mode",
    "updates",
    "time",
    "bubble",
    "loss at the end",
    "time to the target",
    "staleness of stage 0, 1, …",
    "versions kept by stage 0, 1, …",
)


class AsynchronousExplorer(w.VBox):
    """D, the learning rate, what losses are drawn over; below, each mode's loss and numbers, two passes as timelines.

    Under "more": a switch a mode.

    The model and its data are the caller's, cut into ``num_microbatches`` that go through ``passes`` times; synchronous
    and 2bw update once for all of them. Costs are a forward of 1 and a backward of 2 on each stage of D.
    Set ``devices.value``, ``rate.value``, ``over.value`` or ``modes["stashed"].value`` to move a control from code;
    ``runs`` holds what is shown, by mode. ``target``: the table says when the mean loss of a pass first was so low.
    The timelines, with a flush after each of the two passes and without, share one axis; ``timelines`` holds them.
    Raises ValueError as ``train`` does, and for sizes that the controls do not reach.
    """

    def __init__(
        self,
        model: MLP,
        batch: Any,
        targets: Any,
        num_devices: int = 4,
        num_microbatches: int = 8,
        passes: int = 40,
        learning_rate: float = 0.1,
        target: float | None = None,
    ) -> None:
        check_data(model, batch, targets)
        self.target, self._data = target, (model, batch, targets)
        self._sizes = {"num_microbatches": num_microbatches, "passes": passes}
        rows = {}
        most = min(num_microbatches, len(model.weights))
        rows["devices"], self.devices = number("devices D", num_devices, 1, most)
        rows["rate"], self.rate = number("learning rate", float(learning_rate), 0.05, 2.0, 0.05)
        self.over = choice("loss over", "time", OVER)
        self.modes = {mode: switch(mode, mode != "2bw") for mode in MODES}
        self.runs: dict[str, Training] = {}
        self.picture, self.numbers, self.player = w.HTML(), w.HTML(), Player()
        controls = (self.devices, self.rate, self.over, *self.modes.values())
        for control in controls:
            control.observe(self._show, names="value")
        self.player.on_reset(resetter(*controls))
        self._show()
        above = first_and_more([*rows.values(), self.over], [w.HBox(list(self.modes.values()))])
        super().__init__([*above, self.picture, self.numbers, self.player])

    def _show(self, _change: Any = None) -> None:
        """Train in every mode that is switched on, and show the curves and numbers; or say that there is none."""
        self._show_timelines()
        chosen = [mode for mode, control in self.modes.items() if control.value]
        options = self._sizes | {"learning_rate": self.rate.value, "num_devices": self.devices.value}
        self.runs = {mode: train(*self._data, mode, **options) for mode in chosen}
        if not self.runs:
            self.picture.value, self.numbers.value = "", note("no mode is switched on: tick one or more")
            return
        self.picture.value = loss_curves(self.runs, self.over.value)
        self.numbers.value = table(_HEAD, [self._numbers(mode, run) for mode, run in self.runs.items()])

    def _show_timelines(self) -> None:
        """Two passes with a flush behind each, and without; the title has the bubble between first ramp and drain."""
        sizes = self.devices.value, self._sizes["num_microbatches"]
        both = flushed(*sizes, 2), SCHEDULES["pipedream"](sizes[0], 2 * sizes[1])
        self.timelines = [simulate(s) for s in both]
        titles = []
        for t in self.timelines:
            first, last = steady_window(t)
            steady = f"bubble {bubble_fraction(t, window=(first, last)):.1%} from {first:g} to {last:g}"
            titles.append(f"{t.schedule.name}: {steady}")
        self.player.show(*self.timelines, titles=titles)

    def _numbers(self, mode: str, run: Training) -> tuple[str, ...]:
        reached = np.inf if self.target is None else run.time_to(self.target, self._sizes["num_microbatches"])
        return (
            mode,
            str(len(run.losses) - 1),
            f"{run.times[-1]:.5g}",
            f"{bubble_fraction(run.timeline):.1%}",
            "diverges" if run.diverged else f"{run.losses[-1]:.3g}",
            f"{reached:.5g}" if reached < np.inf else "not reached",
            ", ".join(map(str, run.staleness.max(axis=1))),
            ", ".join(map(str, run.versions_held)),
        )

    def __repr__(self) -> str:
        return "[explorer of asynchronous training: run this cell to move its sliders]"
