"""What the ranks compute, as plain values: neither needs PyTorch until it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pplab.costs import Costs, check_costs

_SIZES = ("layers", "hidden_size", "num_heads", "seq_len", "micro_batch_size", "vocab_size")


@dataclass(frozen=True)
class Transformer:
    """A small decoder, cut into stages of near-equal numbers of layers, float32, with tokens masked unevenly.

    The sizes are such that a pass of half the layers over one micro-batch takes tens of milliseconds on one core.
    ``loss``: ``"mean"`` over all the tokens of the batch that count, or their ``"sum"``.
    Raises ValueError for sizes that are no positive whole numbers, heads that do not divide the hidden size.
    """

    layers: int = 8
    hidden_size: int = 256
    num_heads: int = 4
    seq_len: int = 160
    micro_batch_size: int = 2
    vocab_size: int = 256
    loss: str = "mean"
    learning_rate: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _check_sizes(self, _SIZES)
        _check_loss(self.loss)
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}, which does not divide hidden_size, {self.hidden_size}: "
                "each head takes an equal part of it"
            )

    @property
    def model_bytes(self) -> int:
        """What its weights and gradients take in all, and the copy that they are checked against: float32."""
        return 3 * 4 * (12 * self.layers * self.hidden_size**2 + 2 * self.vocab_size * self.hidden_size)

    def check_stages(self, num_stages: int) -> None:
        """Raise ValueError where a stage would hold no layer."""
        if num_stages > self.layers:
            raise ValueError(
                f"the schedule has {num_stages} stages, but the transformer only {self.layers} layers: "
                f"give Transformer(layers={num_stages}) or more"
            )


@dataclass(frozen=True)
class Emulated:
    """Passes that last the given milliseconds, mostly asleep, then give the right tensor: a tiny model flows through.

    A pass that sleeps needs no core, so 4 or 8 devices run truthfully on two. Times: a number for every stage, or
    one value a stage. A whole backward takes ``backward_input_ms + backward_weight_ms``. ``model``: names a class
    ``"module:Class"`` to compute with instead (see pplab.distributed.models.Model).
    Raises ValueError for times that are not finite and positive.
    """

    forward_ms: float | Sequence[float] = 20.0
    backward_input_ms: float | Sequence[float] = 20.0
    backward_weight_ms: float | Sequence[float] = 20.0
    loss: str = "mean"
    learning_rate: float = 0.1
    seed: int = 0
    model: str | None = None

    def __post_init__(self) -> None:
        _check_loss(self.loss)
        self.costs()

    def costs(self) -> Costs:
        """The nominal times as Costs, in seconds, without a hop."""
        parts = (self.forward_ms, self.backward_input_ms, self.backward_weight_ms)
        seconds = []
        for name, value in zip(("forward_ms", "backward_input_ms", "backward_weight_ms"), parts, strict=True):
            array = np.asarray(value)
            if array.dtype.kind not in "iuf" or array.ndim > 1 or not np.isfinite(array).all() or (array < 0).any():
                raise ValueError(f"{name} must be milliseconds, one number or one a stage, not {value!r:.60}")
            seconds.append(array / 1e3)
        return Costs(forward=seconds[0], backward_input=seconds[1], backward_weight=seconds[2])

    model_bytes = 0  # too small to count

    def check_stages(self, num_stages: int) -> None:
        """Raise ValueError where times are given for another number of stages."""
        for name in ("forward_ms", "backward_input_ms", "backward_weight_ms"):
            value = getattr(self, name)
            if np.ndim(value) and len(value) != num_stages:
                raise ValueError(f"{name} has {len(value)} values, but the schedule has {num_stages} stages")

    def seconds(self, stage: int) -> dict[str, float]:
        """How long each kind of pass lasts on a stage."""
        check_costs(self.costs())
        f, i, w = (
            float(value[stage] if isinstance(value, Sequence) else value) / 1e3
            for value in (self.forward_ms, self.backward_input_ms, self.backward_weight_ms)
        )
        return {"F": f, "I": i, "W": w, "B": i + w}


Workload = Transformer | Emulated
WORKLOADS: dict[str, type[Workload]] = {"transformer": Transformer, "emulated": Emulated}


def read_workload(workload: Any) -> Workload:
    """A workload from its name or itself; raises ValueError that lists the names."""
    if isinstance(workload, Transformer | Emulated):
        return workload
    if isinstance(workload, str) and workload in WORKLOADS:
        return WORKLOADS[workload]()
    raise ValueError(
        f"workload is {workload!r:.60}: give 'transformer' or 'emulated', or one with sizes of your own, "
        "Transformer(layers=8) or Emulated(forward_ms=10)"
    )


def to_json(workload: Workload) -> dict[str, Any]:
    """The workload as JSON takes it."""
    name = next(name for name, kind in WORKLOADS.items() if isinstance(workload, kind))
    plain = {
        k: v if isinstance(v, int | float | str | None) else list(map(float, v)) for k, v in asdict(workload).items()
    }
    return {"name": name} | plain


def from_json(data: dict[str, Any]) -> Workload:
    """What to_json wrote."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "name"}
    return WORKLOADS[data["name"]](**values)


def _check_sizes(workload: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(workload, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} is {value!r:.40}: give a whole number, 1 or more")
        object.__setattr__(workload, name, int(value))


def _check_loss(loss: str) -> None:
    if loss not in ("mean", "sum"):
        raise ValueError(f"loss is {loss!r:.40}: give 'mean', over all tokens of the batch that count, or 'sum'")
