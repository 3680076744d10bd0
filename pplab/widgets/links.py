"""The explorer of links: which link, how messages go over it, and when they hide behind computing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ipywidgets as w

from pplab.costs import Costs
from pplab.hardware import ACCELERATORS, LINKS, StageAndMessage, stage_and_message_time
from pplab.metrics import bubble_fraction, makespan
from pplab.model import MODELS
from pplab.schedules import one_f_one_b
from pplab.simulate import simulate
from pplab.widgets.controls import choice, first_and_more, number, preset, resetter
from pplab.widgets.player import Player, grid_html
from pplab.widgets.tables import MS, milliseconds, table

SENDING: dict[str, dict[str, bool]] = {
    "overlapped": {},
    "links: one message at a time": {"links": True},
    "blocking": {"blocking": True},
}


class LinkExplorer(w.VBox):
    """A link, how it is used, B, D, and M under "more"; below, 1F1B of a model's blocks over it, and its numbers.

    Set ``link.value``, ``sending.value`` (a key of SENDING), ``micro_batch_size.value``, ``devices.value`` or
    ``microbatches.value`` to move a control from code; ``times`` (seconds), ``timeline`` and ``free`` (the same step
    were messages there at once; both in milliseconds) hold what is shown.
    Raises ValueError for a name that is not known and for sizes that make no sense.
    """

    def __init__(
        self,
        model: str = "GPT-3 175B",
        num_devices: int = 8,
        num_microbatches: int = 16,
        accelerator: str = "A100 80GB",
        link: str = "InfiniBand HDR",
        micro_batch_size: int = 1,
        tensor_parallel: int = 8,
        efficiency: float = 0.5,
    ) -> None:
        self.model, self.accelerator = preset(MODELS, model), preset(ACCELERATORS, accelerator)
        self.tensor_parallel, self.efficiency = tensor_parallel, efficiency
        self.link = choice("link", link, LINKS)
        self.sending = choice("messages are", "overlapped", SENDING)
        rows = {}
        rows["size"], self.micro_batch_size = number("micro-batch size B", micro_batch_size, 1, 64)
        rows["devices"], self.devices = number("devices D", num_devices, 1, 16)
        rows["microbatches"], self.microbatches = number("micro-batches M", num_microbatches, 1, 64)
        self.player, self.numbers = Player(), w.HTML()
        controls = (self.link, self.sending, self.micro_batch_size, self.devices, self.microbatches)
        for control in controls:
            control.observe(self._show, names="value")
        self.player.on_reset(resetter(*controls))
        self._show()
        first = [self.link, self.sending, rows["size"], rows["devices"]]
        super().__init__([*first_and_more(first, [rows["microbatches"]]), self.player, self.numbers])

    def _time(self) -> StageAndMessage:
        return stage_and_message_time(
            self.model, self.accelerator, LINKS[self.link.value], self.devices.value, self.micro_batch_size.value,
            efficiency=self.efficiency, tensor_parallel=self.tensor_parallel,
        )  # fmt: skip

    def _show(self, _change: Any = None) -> None:
        """Time the stage and its message, simulate with and without messages, and show both."""
        self.times = self._time()
        forward, message = self.times.forward * MS, self.times.message * MS
        schedule = one_f_one_b(self.devices.value, self.microbatches.value)
        self.free = simulate(schedule, Costs(forward=forward, backward=2 * forward))
        way: dict[str, Any] = SENDING[self.sending.value]
        self.timeline = simulate(schedule, Costs(forward=forward, backward=2 * forward, hop=message, **way))
        self.player.show(self.timeline, titles=[f"1f1b over {self.link.value}, milliseconds"])
        self.numbers.value = self._table()

    def _table(self) -> str:
        step, free = makespan(self.timeline), makespan(self.free)
        cells = {
            "forward of a stage": milliseconds(self.times.forward * MS),
            "message on the link": milliseconds(self.times.message * MS),
            "message : forward": f"{self.times.ratio:.3g}",
            "shorter than a forward": "yes, it can hide" if self.times.hides else "no, it cannot hide",
            "step time": milliseconds(step),
            "without messages": milliseconds(free),
            "slowdown": f"{step / free:.3f} ×",
            "bubble": f"{bubble_fraction(self.timeline):.1%}",
        }
        return table(cells, [tuple(cells.values())])

    def to_html(
        self,
        micro_batch_size: Iterable[int] = (1, 4),
        num_devices: Iterable[int] = (2, 4, 8),
        num_microbatches: Iterable[int] = (4, 8, 16),
    ) -> str:
        """The explorer as a piece of HTML that needs no kernel: sliders over these sizes, and over its present ones."""
        grid = {
            "micro_batch_size": (self.micro_batch_size, micro_batch_size),
            "num_devices": (self.devices, num_devices),
            "num_microbatches": (self.microbatches, num_microbatches),
        }
        return grid_html(self.player, self.numbers, ["1f1b"], grid)

    def __repr__(self) -> str:
        return "[explorer of links: run this cell to move its sliders]"
