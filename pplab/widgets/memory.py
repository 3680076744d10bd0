"""The explorer of memory: what each device holds under some schedules, and whether an accelerator has room for it."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from pplab.hardware import ACCELERATORS, Accelerator
from pplab.memory import CONVENTIONS, RECOMPUTE, MemoryEstimate, bytes_per_parameter, estimate_memory
from pplab.memory_bars import memory_bars
from pplab.model import MODELS
from pplab.schedules import SCHEDULES
from pplab.widgets.controls import choice, first_and_more, number, switch
from pplab.widgets.tables import note, table

TENSOR_PARALLEL = ("1", "2", "4", "8")
_COUNTED = [name for name, model in MODELS.items() if model.num_experts == 1]  # estimate_memory refuses mixtures
_NAMED = [name for name in CONVENTIONS if not name.isdigit()]  # each number has a name too


class MemoryExplorer(w.VBox):
    """D, M, recomputation, sequence parallelism; below, bars of each schedule on one axis, and their numbers.

    Under "more": the model, B, tensor parallelism, the bytes kept a parameter, and the accelerator.

    Set ``model.value``, ``devices.value``, ``microbatches.value``, ``micro_batch_size.value``,
    ``tensor_parallel.value`` ("1", "2", "4" or "8"), ``sequence_parallel.value``, ``recompute.value``,
    ``convention.value`` (a name, such as "megatron") or ``accelerator.value`` to move a control from code;
    ``estimates`` holds what is shown, one a schedule, and nothing where estimate_memory refuses the sizes: its reason
    then stands in the table's place. Raises ValueError for a name that is not known and for sizes that the controls do
    not reach.
    """

    def __init__(
        self,
        *schedules: str,
        model: str = "GPT-3 175B",
        num_devices: int = 8,
        num_microbatches: int = 16,
        micro_batch_size: int = 1,
        tensor_parallel: int = 8,
        recompute: str = "none",
        convention: str | int = "megatron",
        accelerator: str = "A100 80GB",
    ) -> None:
        self.schedules = schedules or ("gpipe", "1f1b")
        unknown = [name for name in self.schedules if name not in SCHEDULES]
        if unknown:
            raise ValueError(f"explore_memory needs schedules out of {', '.join(SCHEDULES)}; not {unknown}")
        self.model = choice("model", model, _COUNTED)
        rows = {}
        rows["devices"], self.devices = number("devices D", num_devices, 1, 64)
        rows["microbatches"], self.microbatches = number("micro-batches M", num_microbatches, 1, 128)
        rows["size"], self.micro_batch_size = number("micro-batch size B", micro_batch_size, 1, 64)
        self.tensor_parallel = choice("tensor parallel", str(tensor_parallel), TENSOR_PARALLEL)
        self.sequence_parallel = switch("sequence parallel: they share norms and dropouts too", False)
        self.recompute = choice("recomputation", recompute, RECOMPUTE)
        self.convention = _conventions(convention)
        self.accelerator = choice("accelerator", accelerator, ACCELERATORS)
        self.pictures, self.numbers = [w.HTML() for _ in self.schedules], w.HTML()
        self.estimates: list[MemoryEstimate] = []
        choices = [self.tensor_parallel, self.convention, self.accelerator]
        sliders = (self.devices, self.microbatches, self.micro_batch_size)
        for control in (*sliders, self.recompute, self.sequence_parallel, self.model, *choices):
            control.observe(self._show, names="value")
        self._show()
        first = [rows["devices"], rows["microbatches"], self.recompute, self.sequence_parallel]
        controls = first_and_more(first, [self.model, rows["size"], *choices])
        super().__init__([*controls, *self.pictures, self.numbers])

    def _estimate(self, schedule: str) -> MemoryEstimate:
        return estimate_memory(
            MODELS[self.model.value],
            SCHEDULES[schedule](self.devices.value, self.microbatches.value),
            micro_batch_size=self.micro_batch_size.value,
            tensor_parallel=int(self.tensor_parallel.value),
            sequence_parallel=self.sequence_parallel.value,
            recompute=self.recompute.value,
            convention=self.convention.value,
        )

    def _show(self, _change: Any = None) -> None:
        """Estimate what the controls say, and put the pictures and numbers in place; or say why there are none."""
        limit = ACCELERATORS[self.accelerator.value]
        try:
            self.estimates = [self._estimate(name) for name in self.schedules]
        except ValueError as error:
            self.estimates = []
            for html in self.pictures:
                html.value = ""
            self.numbers.value = note(str(error))
            return
        until = max(limit.memory_bytes, *(float(e.total.max()) for e in self.estimates))
        for html, estimate in zip(self.pictures, self.estimates, strict=True):
            title = f"{self.model.value}, {estimate.schedule.name}: each device at its fullest"
            html.value = memory_bars(estimate, limit, until, title=title)
        self.numbers.value = memory_table(self.estimates, limit)

    def __repr__(self) -> str:
        return "[explorer of memory: run this cell to move its sliders]"


def memory_table(estimates: list[MemoryEstimate], limit: Accelerator) -> str:
    """The fullest device under each schedule: what it holds, in GB of 10⁹ bytes, and whether it fits."""
    versions = any(e.versions.any() for e in estimates)
    head = (
        "schedule",
        "fullest device",
        "weights, versions, gradients, optimizer (GB)" if versions else "weights, gradients, optimizer (GB)",
        "activations (GB)",
        "logits (GB)",
        "temporary (GB)",
        "total (GB)",
        f"share of the {limit.name}",
        "fits",
    )
    return table(head, [_numbers(estimate, limit) for estimate in estimates])


def _numbers(e: MemoryEstimate, limit: Accelerator) -> tuple[str, ...]:
    k = e.fullest
    total, room = float(e.total[k]), limit.memory_bytes
    parts = (e.states[k], e.activations[k], e.logits[k], e.temporary[k], total)
    fits = "yes" if total <= room else f"no, {gigabytes(total - room)} GB too much"
    return (e.schedule.name, str(k), *map(gigabytes, parts), f"{total / room:,.1%}", fits)


def gigabytes(size: float) -> str:
    """Bytes in GB of 10⁹: four digits, and from 1,000 on all those before the point."""
    return f"{size / 1e9:.4g}" if size < 1e12 else f"{size / 1e9:,.0f}"


def _conventions(convention: str | int) -> w.Widget:
    """A dropdown of the conventions by name, with the bytes that each adds up to; a number stands for its name."""
    each = bytes_per_parameter(convention)
    given = [name for name in _NAMED if CONVENTIONS[name] == each]
    control = choice("bytes a parameter", given[0] if given else str(convention), _NAMED)
    control.options = [(f"{CONVENTIONS[name].total:g}, as {name}", name) for name in _NAMED]
    control.value = given[0]
    return control
