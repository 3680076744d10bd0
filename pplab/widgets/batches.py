"""The explorer of batches: the ways (M, B, R) to a global batch, their bubbles and memory, and which are worth it."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from pplab.bars import batch_scatter
from pplab.batching import BatchLayout, batch_layouts, frontier
from pplab.presets import check_whole
from pplab.widgets.controls import number
from pplab.widgets.tables import note, table

_MOST_ROWS = 20
_HEAD = (
    "micro-batches M",
    "size B",
    "replicas R",
    "bubble",
    "most in flight",
    "activations on the fullest device",
    "worth a choice",
)


class BatchExplorer(w.VBox):
    """The global batch, D and the devices there are; below, a scatter of every layout, and a table of up to 20.

    Set ``global_batch.value``, ``devices.value`` or ``total_devices.value`` to move a control from code; ``layouts``
    and ``frontier`` hold what is shown, empty where the devices are too few, which the table's place then says.
    Raises ValueError for sizes that the controls do not reach, or below 1.
    """

    def __init__(
        self,
        global_batch: int = 512,
        num_devices: int = 8,
        total_devices: int = 64,
        seq_len: int = 2048,
        hidden_size: int = 12288,
    ) -> None:
        check_whole(seq_len=seq_len, hidden_size=hidden_size)
        self.seq_len, self.hidden_size = seq_len, hidden_size
        rows = {}
        rows["batch"], self.global_batch = number("global batch", global_batch, 8, 4096, 8)
        rows["devices"], self.devices = number("devices a pipeline D", num_devices, 1, 32)
        rows["total"], self.total_devices = number("devices in all", total_devices, 1, 4096)
        self.layouts: list[BatchLayout] = []
        self.frontier: list[BatchLayout] = []
        self.picture, self.numbers = w.HTML(), w.HTML()
        for control in (self.global_batch, self.devices, self.total_devices):
            control.observe(self._show, names="value")
        self._show()
        super().__init__([*rows.values(), self.picture, self.numbers])

    def _show(self, _change: Any = None) -> None:
        """List the layouts and show them, or say why there are none."""
        sizes = self.global_batch.value, self.devices.value, self.total_devices.value
        try:
            self.layouts = batch_layouts(*sizes, seq_len=self.seq_len, hidden_size=self.hidden_size)
        except ValueError as error:
            self.layouts, self.frontier = [], []
            self.picture.value, self.numbers.value = "", note(str(error))
            return
        self.frontier = frontier(self.layouts)
        self.picture.value = batch_scatter(self.layouts)
        self.numbers.value = layouts_table(self.layouts, self.frontier)

    def __repr__(self) -> str:
        return "[explorer of batches: run this cell to move its sliders]"


def layouts_table(layouts: list[BatchLayout], best: list[BatchLayout]) -> str:
    """How many layouts there are, in a line; then a table of up to 20, first those on the frontier, in bold."""
    marked = set(best)
    shown = [*best, *(row for row in layouts if row not in marked)][:_MOST_ROWS]
    rest = "" if len(shown) == len(layouts) else f"; the first {len(shown)} are listed"
    line = note(f"{len(layouts)} layouts, {len(best)} of them on the frontier{rest}")
    return line + table(_HEAD, map(_cells, shown, (row in marked for row in shown)), range(len(best)), role="")


def _cells(row: BatchLayout, best: bool) -> tuple[str, ...]:
    return (
        str(row.num_microbatches),
        str(row.micro_batch_size),
        str(row.num_replicas),
        f"{row.bubble:.1%}",
        str(row.in_flight),
        f"{row.activation_bytes / 1e9:.4g} GB",
        "on the frontier" if best else "",
    )
