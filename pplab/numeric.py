"""Run a schedule on real numbers: a small model cut into stages, micro-batches that go through it, its gradients.

What a stage computes, and what it has to keep, is told in pplab.stage; training, with and without a flush, in
pplab.asynchronous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from pplab.asynchronous import MODES, Training, train
from pplab.machine import Machine, check_data, check_split, order_of
from pplab.schedule import Schedule
from pplab.stage import ACTIVATIONS, MLP, Layer, MicroBatch, PipelineStage
from pplab.timeline import Timeline

__all__ = [
    "MLP",
    "MODES",
    "FullBatch",
    "Layer",
    "MicroBatch",
    "PipelineStage",
    "Run",
    "Training",
    "full_batch",
    "relative_difference",
    "run",
    "train",
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
    x, y = check_data(model, batch, targets)
    check_split(len(x), s.num_microbatches, unequal)
    xs, ys = (np.array_split(array, s.num_microbatches) for array in (x, y))
    shares = [len(part) / len(x) if weighted else 1 / len(xs) for part in xs]
    machine = Machine(s, model.cut(s.num_stages), xs, ys, shares)
    for i in order_of(schedule, s):
        machine.step(i)
    outputs = [machine.mail["F", s.num_stages, m].activations for m in range(len(xs))]
    loss = sum(share * float(np.mean((o - t) ** 2)) for share, o, t in zip(shares, outputs, ys, strict=True))
    lead = np.flatnonzero(~np.r_[False, s.paired[:-1]])  # a pair's ops run at the same time, so both see the larger
    held = (np.maximum.reduceat(column, lead)[s.nodes.of_op] for column in machine.held)
    return Run(s, loss, machine.gradients(), np.concatenate(outputs), *held)


def full_batch(model: MLP, batch: Any, targets: Any) -> FullBatch:
    """The same loss and gradients from the whole batch at once, without stages; raises ValueError as ``run`` does."""
    x, y = check_data(model, batch, targets)
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
