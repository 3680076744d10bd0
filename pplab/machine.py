"""What runs an order of passes on arrays: stages on devices, messages between them; and checks of the data they get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pplab.schedule import Schedule
from pplab.stage import MLP, Layer, MicroBatch, PipelineStage
from pplab.timeline import Timeline


class Machine:
    """Stages on devices, and the messages between them: ``mail[kind, stage, micro-batch]``."""

    def __init__(
        self, s: Schedule, cut: list[list[Layer]], xs: list[np.ndarray], ys: list[np.ndarray], shares: list[float]
    ) -> None:
        self.schedule, self.targets, self.shares = s, ys, shares
        places = sorted(set(zip(s.device.tolist(), s.stage.tolist(), strict=True)))
        self.stages = {(d, k): PipelineStage(k, len(cut[k]), len(cut[k][0].weights), cut[k]) for d, k in places}
        self.mail = {("F", 0, m): MicroBatch(m, x) for m, x in enumerate(xs)}
        self.now = np.zeros((2, s.num_devices), int)
        self.held = np.zeros((2, s.num_ops), int)

    def step(self, i: int) -> None:
        """Run op i: take its message, compute, send, and count what the device holds meanwhile."""
        device, (k, kind, m) = int(self.schedule.device[i]), self.schedule.op(i)
        stage, now = self.stages[device, k], self.now[:, device]
        if kind == "F":
            self.mail["F", k + 1, m] = stage.forward(self.mail.pop(("F", k, m)))
            now[0] += _nbytes(stage.saved[m])
        elif kind == "I":
            self.mail["B", k - 1, m] = stage.backward_input(self._gradient(k, m))
            now[1] += _nbytes(stage.waiting[m])
        self.held[:, i] = now
        if kind in "BW":
            now -= _nbytes(stage.saved[m]), _nbytes(stage.waiting.get(m, []))
            if kind == "W":
                stage.backward_weight(m)
            else:
                self.mail["B", k - 1, m] = stage.backward(self._gradient(k, m))

    def _gradient(self, k: int, m: int) -> MicroBatch:
        """What the next stage has sent back; after the last one, the gradient of the loss for its outputs."""
        if k < self.schedule.num_stages - 1:
            return self.mail.pop(("B", k, m))
        outputs = self.mail["F", k + 1, m].activations
        return MicroBatch(m, outputs, 2 * self.shares[m] / outputs.size * (outputs - self.targets[m]))

    def gradients(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """Per stage and layer, the copies of a stage added up in the order of their devices."""
        copies = [
            [s.gradients for (_, at), s in self.stages.items() if at == k] for k in range(self.schedule.num_stages)
        ]
        return tuple(tuple(sum(parts[1:], parts[0]) for parts in zip(*stage, strict=True)) for stage in copies)


def order_of(given: Schedule | Timeline, s: Schedule) -> list[int]:
    """Indices of the ops in an order in which all can run: by slot, or by a timeline's start times.

    A pair's ops stand together, and what takes memory before what gives it back, since they run at the same time.
    """
    start = np.full(len(s.nodes.needs[0]), -np.inf)
    np.maximum.at(start, s.nodes.of_op, given.start if isinstance(given, Timeline) else s.slot)
    index = np.arange(s.num_ops)
    order = np.lexsort((index, ~s.is_kind("FI"), s.nodes.of_op, s.slot, start[s.nodes.of_op]))
    place = np.empty(s.num_ops, int)
    place[order] = index
    needed = np.c_[s.needs, np.where(np.isin(index, s.first) | np.r_[False, s.paired[:-1]], -1, index - 1)]
    late = ((needed >= 0) & (place[needed] > place[:, None])).any(1)
    if late.any():
        raise ValueError(
            f"{s.op(int(np.argmax(late)))} starts before what it needs, or stands before it in its row, has started: "
            "give a Timeline of times at which the schedule can run, or the Schedule itself"
        )
    return order.tolist()


def check_data(model: MLP, batch: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(model, MLP):
        raise TypeError(f"{model!r:.40} is not a model: give an MLP, such as pplab.numeric.MLP([16, 32, 4])")
    checked = []
    for name, values, width in (("batch", batch, model.sizes[0]), ("targets", targets, model.sizes[-1])):
        try:
            if np.iscomplexobj(values):  # NumPy would only warn, and drop the imaginary part
                raise TypeError
            array = np.array(values, float)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name} is not an array of numbers: give one of shape (samples, {width})") from None
        if array.ndim != 2 or array.shape[1] != width:
            raise ValueError(f"{name} has shape {array.shape}, but the model needs (samples, {width}): reshape it")
        if not np.isfinite(array).all():
            sample, column = np.argwhere(~np.isfinite(array))[0].tolist()
            value = array[sample, column]
            raise ValueError(f"{name} holds {value} in sample {sample}, column {column}: give finite numbers only")
        checked.append(array)
    x, y = checked
    if len(x) != len(y) or not len(x):
        raise ValueError(f"batch has {len(x)} samples and targets {len(y)}: give as many of both, and at least one")
    return x, y


def check_split(samples: int, parts: int, unequal: bool) -> None:
    below, rest = samples // parts * parts, samples % parts
    if samples < parts:
        raise ValueError(
            f"a batch of {samples} samples is too small for {parts} micro-batches: give {parts} samples or more, or a "
            f"schedule with {samples} micro-batches or fewer"
        )
    if rest and not unequal:
        raise ValueError(
            f"a batch of {samples} samples does not split into {parts} equal micro-batches: the nearest that do have "
            f"{below} and {below + parts}; or ask for unequal ones with unequal=True"
        )


def _nbytes(arrays: Iterable[np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays)
