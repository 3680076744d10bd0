"""What a stage does to a micro-batch, forward and backward, on NumPy arrays; and a small model to cut into stages.

The gradients are written by hand, in float64. For layer l with input x, output y = f(x · W) and g, the gradient
of the loss for y::

    δ = g · f′        what I computes (B too); f′ is read off y
    g of layer l − 1 = δ · Wᵀ
    gradient of W   += xᵀ · δ        what W computes (B too)

So a stage has to keep its input and the outputs of its layers from F until B, or until W where the backward is split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pplab.schedules._sizes import check_sizes

# Each activation, and its slope as a function of its output.
ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tanh": (np.tanh, lambda y: 1.0 - y * y),
    "relu": (lambda z: np.maximum(z, 0.0), lambda y: (y > 0).astype(float)),
    "linear": (lambda z: z, lambda y: 1.0),
}


@dataclass
class MicroBatch:
    """One micro-batch on its way: ``activations`` (samples, hidden_size), and ``gradients`` alike on the way back."""

    batch_id: int
    activations: np.ndarray
    gradients: np.ndarray | None = None


class Layer(NamedTuple):
    """``weights`` (inputs, outputs) and the name of the activation that follows them; no bias."""

    weights: np.ndarray
    activation: str


class PipelineStage:
    """One stage: its layers, what it keeps of each micro-batch, its weights' gradients; counts what it has done.

    Without ``layers`` it is the chapter's toy: one linear layer (hidden_size, hidden_size) that keeps nothing and
    computes no weight gradient (E2), with ``weights`` from NumPy's global generator, so ``np.random.seed`` fixes them.

    ``saved``: the input and each layer's output, by micro-batch, from forward until the weights' gradients are
    computed; ``waiting``: the δ of each layer, from ``backward_input`` until then. ``gradients``: one array a layer, a
    sum over micro-batches in the order in which they came. ``forward_count``, ``backward_count`` (B and I),
    ``active_steps`` and ``idle_steps`` count passes.
    """

    def __init__(self, stage_id: int, num_layers: int, hidden_size: int, layers: Sequence[Layer] | None = None) -> None:
        self.stage_id, self.num_layers, self.hidden_size = stage_id, num_layers, hidden_size
        self.keeps = layers is not None
        if layers is None:
            layers = [Layer(0.01 * np.random.randn(hidden_size, hidden_size), "linear")]
        self.layers = list(layers)
        self.gradients = [np.zeros_like(layer.weights) for layer in self.layers] if self.keeps else []
        self.saved: dict[int, list[np.ndarray]] = {}
        self.waiting: dict[int, list[np.ndarray]] = {}
        self.forward_count = self.backward_count = self.idle_steps = self.active_steps = 0

    @property
    def weights(self) -> np.ndarray:
        """The weights of the first layer, which is the toy's only one."""
        return self.layers[0].weights

    @weights.setter
    def weights(self, value: np.ndarray) -> None:
        self.layers[0] = Layer(value, self.layers[0].activation)

    def forward(self, micro_batch: MicroBatch) -> MicroBatch:
        """The layers one after another, as a new micro-batch; keeps a copy of the input and the layers' outputs."""
        self.forward_count += 1
        self.active_steps += 1
        outputs = [micro_batch.activations]
        for layer in self.layers:
            outputs.append(ACTIVATIONS[layer.activation][0](outputs[-1] @ layer.weights))
        if self.keeps:
            self.saved[micro_batch.batch_id] = [np.array(outputs[0]), *outputs[1:]]
        return MicroBatch(micro_batch.batch_id, outputs[-1])

    def backward(self, micro_batch: MicroBatch) -> MicroBatch:
        """B: ``backward_input`` and ``backward_weight`` as one pass; raises ValueError as they do."""
        result = self.backward_input(micro_batch)
        if self.keeps:
            self._add_weight_gradients(micro_batch.batch_id)
        return result

    def backward_input(self, micro_batch: MicroBatch) -> MicroBatch:
        """I: gradients for the stage's output → for its input. Frees nothing: W still needs what was kept, and the δ.

        Raises ValueError where the micro-batch brings no gradients, or has not been forward.
        """
        if micro_batch.gradients is None:
            raise ValueError(
                f"micro-batch {micro_batch.batch_id} brings no gradients to stage {self.stage_id}: run the next stage "
                "backward first, or set its gradients"
            )
        if self.keeps and micro_batch.batch_id not in self.saved:
            raise ValueError(
                f"stage {self.stage_id} keeps nothing of micro-batch {micro_batch.batch_id}: run it forward first, "
                "once for each backward"
            )
        outputs = self.saved[micro_batch.batch_id][1:] if self.keeps else [None]
        self.backward_count += 1
        self.active_steps += 1
        gradients, deltas = micro_batch.gradients, []
        for layer, y in zip(reversed(self.layers), reversed(outputs), strict=True):
            deltas.append(gradients * ACTIVATIONS[layer.activation][1](y))
            gradients = deltas[-1] @ layer.weights.T
        if self.keeps:
            self.waiting[micro_batch.batch_id] = deltas[::-1]
        return MicroBatch(micro_batch.batch_id, micro_batch.activations, gradients)

    def backward_weight(self, batch_id: int) -> None:
        """W: add a micro-batch's part to ``gradients``, and free all that was kept of it.

        Raises ValueError where the micro-batch has not been through ``backward_input``.
        """
        if batch_id not in self.waiting:
            raise ValueError(
                f"stage {self.stage_id} has no gradients of micro-batch {batch_id} that wait: run backward_input on it "
                "first, once for each backward_weight"
            )
        self.active_steps += 1
        self._add_weight_gradients(batch_id)

    def _add_weight_gradients(self, batch_id: int) -> None:
        inputs, deltas = self.saved.pop(batch_id)[:-1], self.waiting.pop(batch_id)
        for total, x, delta in zip(self.gradients, inputs, deltas, strict=True):
            total += x.T @ delta


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


@dataclass(frozen=True, eq=False)
class MLP:
    """A multi-layer perceptron for trying things out: ``sizes`` are its widths, one more than it has layers.

    ``activation`` ("tanh" or "relu") follows every layer but the last; no biases. ``weights``: one read-only array
    (inputs, outputs) a layer, float64, drawn from ``seed`` unless given; ``dataclasses.replace(model, weights=…)``
    makes the model after a step. Raises ValueError where these do not fit together.
    """

    sizes: Sequence[int]
    activation: str = "tanh"
    seed: int = 0
    weights: Sequence[np.ndarray] = ()

    def __post_init__(self) -> None:
        sizes = tuple(self.sizes) if isinstance(self.sizes, Iterable) else ()
        if len(sizes) < 2 or not all(map(_is_size, sizes)):
            raise ValueError(
                f"sizes is {self.sizes!r:.50}: give two widths or more, whole numbers from 1, like [16] * 9"
            )
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r:.40}: choose one of {', '.join(ACTIVATIONS)}")
        draw, shapes = np.random.default_rng(self.seed), list(pairwise(sizes))
        drawn = self.weights if len(self.weights) else [draw.normal(0.0, n**-0.5, (n, m)) for n, m in shapes]
        weights = tuple(np.array(w, float) for w in drawn)
        if [w.shape for w in weights] != shapes:
            raise ValueError(f"weights have shapes {[w.shape for w in weights]}, but sizes ask for {shapes}")
        for k, w in enumerate(weights):
            if not np.isfinite(w).all():
                raise ValueError(f"weights[{k}] holds {w[~np.isfinite(w)][0]}: give finite numbers only")
            w.flags.writeable = False
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def equal(cls, num_layers: int, hidden_size: int, activation: str = "tanh", seed: int = 0) -> MLP:
        """All layers hidden_size wide: stages of as many layers are equal. Raises ValueError for sizes below 1."""
        if not _is_size(num_layers):
            raise ValueError(f"num_layers is {num_layers!r:.40}: give a whole number of 1 or more")
        return cls((hidden_size,) * (num_layers + 1), activation, seed)

    def cut(self, num_stages: int) -> list[list[Layer]]:
        """The layers of each stage, spread evenly, larger stages first. Raises ValueError for too few layers."""
        check_sizes(num_stages=num_stages)
        count = len(self.weights)
        if count < num_stages:
            raise ValueError(
                f"the model has {count} layers, too few for {num_stages} stages: give it {num_stages} layers or more, "
                "or take fewer devices or chunks"
            )
        layers = [Layer(w, self.activation if i < count - 1 else "linear") for i, w in enumerate(self.weights)]
        return [[layers[i] for i in part] for part in np.array_split(np.arange(count), num_stages)]
