"""Run a schedule on real numbers: a small model cut into stages, micro-batches that go through it, its gradients.

What a stage computes, and what it has to keep, is told in pplab.stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from pplab.schedule import Schedule
from pplab.stage import ACTIVATIONS, MLP, Layer, MicroBatch, PipelineStage
from pplab.timeline import Timeline

__all__ = [
    "MLP",
    "FullBatch",
    "Layer",
    "MicroBatch",
    "PipelineStage",
    "Run",
    "full_batch",
    "relative_difference",
    "run",
]

Gradients = Sequence[np.ndarray] | Sequence[Sequence[np.ndarray]]


class FullBatch(NamedTuple):
    """The whole batch at once: ``loss``, ``gradients`` (one array a layer), ``outputs`` (samples, sizes[-1])."""

    loss: float
    gradients: tuple[np.ndarray, ...]
    outputs: np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """What came of running a schedule on arrays.

    ``gradients[stage][layer]``; ``outputs`` (samples, sizes[-1]) in the batch's order. Columns, one entry an op in the
    schedule's order, of what the op's device holds while the op runs, in bytes: ``live_bytes``, the activations kept
    for backwards, taken by F and given back by B or W; ``waiting_bytes``, the δ between I and W. A stage that is on
    several devices has its copies' gradients added up.
    """

    schedule: Schedule
    loss: float
    gradients: tuple[tuple[np.ndarray, ...], ...]
    outputs: np.ndarray
    live_bytes: np.ndarray
    waiting_bytes: np.ndarray

    def __post_init__(self) -> None:
        for array in (self.outputs, self.live_bytes, self.waiting_bytes, *chain(*self.gradients)):
            array.flags.writeable = False

    @property
    def peak_bytes(self) -> np.ndarray:
        """The most bytes of activations that each device holds, (num_devices,)."""
        return np.maximum.reduceat(self.live_bytes, self.schedule.first[:-1])


def run(
    schedule: Schedule | Timeline, model: MLP, batch: Any, targets: Any, weighted: bool = True, unequal: bool = False
) -> Run:
    """Take a batch through the model in the order of a schedule, micro-batch by micro-batch, and its gradients back.

    ``batch`` (samples, sizes[0]), ``targets`` (samples, sizes[-1]). The loss is the mean squared error over samples and
    outputs. ``unequal`` allows sizes of ``np.array_split``; each micro-batch counts by its size, or all alike with
    ``weighted=False``, which gives a mean of means: wrong for unequal ones. A Timeline gives the order of its start
    times; results are the same to the last bit, since each device adds up in the order of its row (E32).
    Raises ValueError for sizes that do not fit, numbers that are not finite, a schedule without backwards; TypeError
    for what is no schedule or no model.
    """
    s = schedule.schedule if isinstance(schedule, Timeline) else schedule
    if not isinstance(s, Schedule):
        raise TypeError(f"{s!r:.40} is not a schedule: give a Schedule or a Timeline, such as pplab.one_f_one_b(4, 8)")
    if not s.is_kind("BI").any():
        raise ValueError(f"the schedule {s.name} runs forward only, so there are no gradients: take one that trains")
    x, y = _check_data(model, batch, targets)
    _check_split(len(x), s.num_microbatches, unequal)
    xs, ys = (np.array_split(array, s.num_microbatches) for array in (x, y))
    shares = [len(part) / len(x) if weighted else 1 / len(xs) for part in xs]
    machine = _Machine(s, model.cut(s.num_stages), xs, ys, shares)
    for i in _order(schedule, s):
        machine.step(i)
    outputs = [machine.mail["F", s.num_stages, m].activations for m in range(len(xs))]
    loss = sum(share * float(np.mean((o - t) ** 2)) for share, o, t in zip(shares, outputs, ys, strict=True))
    lead = np.flatnonzero(~np.r_[False, s.paired[:-1]])  # a pair's ops run at the same time, so both see the larger
    held = (np.maximum.reduceat(column, lead)[s.nodes.of_op] for column in machine.held)
    return Run(s, loss, machine.gradients(), np.concatenate(outputs), *held)


class _Machine:
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


def _nbytes(arrays: Iterable[np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays)


def _order(given: Schedule | Timeline, s: Schedule) -> list[int]:
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


def full_batch(model: MLP, batch: Any, targets: Any) -> FullBatch:
    """The same loss and gradients from the whole batch at once, without stages; raises ValueError as ``run`` does."""
    x, y = _check_data(model, batch, targets)
    function, slope = ACTIVATIONS[model.activation]
    outputs, gradients = [x], []
    for w in model.weights[:-1]:
        outputs.append(function(outputs[-1] @ w))
    result = outputs[-1] @ model.weights[-1]
    delta = 2 * (result - y) / result.size
    for w, inputs in zip(reversed(model.weights), reversed(outputs), strict=True):
        gradients.append(inputs.T @ delta)
        delta = (delta @ w.T) * slope(inputs)
    return FullBatch(float(np.mean((result - y) ** 2)), tuple(reversed(gradients)), result)


def relative_difference(gradients: Gradients, others: Gradients) -> float:
    """The largest |difference| of two sets of gradients over the largest |gradient| of ``others``, the worst layer's.

    Each per layer, or per stage and layer. Raises ValueError for other shapes.
    """
    a, b = ([w for part in g for w in ([part] if isinstance(part, np.ndarray) else part)] for g in (gradients, others))
    if [w.shape for w in a] != [w.shape for w in b]:
        raise ValueError(f"gradients of {len(a)} and {len(b)} layers have other shapes: compare runs of the same model")
    pairs = ((np.abs(x - y).max(), np.abs(y).max()) for x, y in zip(a, b, strict=True))
    return max(float(difference / (scale or 1.0)) for difference, scale in pairs)


def _check_data(model: MLP, batch: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
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


def _check_split(samples: int, parts: int, unequal: bool) -> None:
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
