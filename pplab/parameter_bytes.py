"""Bytes that belong to parameters, by the conventions' names; and which parameters a device of a pipeline holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

import numpy as np

from pplab.hardware import naive_split
from pplab.model import TransformerModel
from pplab.partition import Partition
from pplab.presets import check_number, check_whole
from pplab.schedule import Schedule


@dataclass(frozen=True)
class BytesPerParameter:
    """Bytes of each parameter: the weight, its gradient, the optimizer's state. Raises ValueError for negative ones."""

    weights: float
    gradients: float
    optimizer: float

    def __post_init__(self) -> None:
        for f in fields(self):
            check_number(f.name, getattr(self, f.name))

    @property
    def total(self) -> float:
        """Bytes of a parameter with all that belongs to it."""
        return self.weights + self.gradients + self.optimizer


# 12 bytes of optimizer state: an fp32 copy of the weight and Adam's two moments; ``fp32`` needs no copy.
_14, _16, _18 = BytesPerParameter(2, 0, 12), BytesPerParameter(2, 2, 12), BytesPerParameter(2, 4, 12)
CONVENTIONS: dict[str, BytesPerParameter] = {
    "14": _14, "chapter": _14,  # bf16 weights, gradients left out
    "16": _16, "zero": _16,  # bf16 gradients: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 3.1
    "18": _18, "megatron": _18,  # fp32 gradients
    "fp32": BytesPerParameter(4, 4, 8),
}  # fmt: skip


def bytes_per_parameter(
    convention: str | int | BytesPerParameter = "megatron", data_parallel: int = 1, sharded_optimizer: bool = False
) -> BytesPerParameter:
    """What a parameter takes by a convention's name, its optimizer state shared out over the replicas if asked.

    convention : a name in CONVENTIONS ("14" or "chapter", "16" or "zero", "18" or "megatron", "fp32"), or bytes of
        your own. Sharded over d replicas, Megatron's 18 become 6 + 12/d.

    Raises ValueError for an unknown name, which lists the known, and for data_parallel below 1.
    """
    check_whole(data_parallel=data_parallel)
    if not isinstance(convention, BytesPerParameter):
        if str(convention) not in CONVENTIONS:
            known = ", ".join(map(repr, CONVENTIONS))
            raise ValueError(f"convention is {convention!r:.40}: choose one of {known}, or give BytesPerParameter(…)")
        convention = CONVENTIONS[str(convention)]
    shared = data_parallel if sharded_optimizer else 1
    return BytesPerParameter(convention.weights, convention.gradients, convention.optimizer / shared)


def stage_layers(model: TransformerModel, num_stages: int, sizes: Sequence[int] | Partition | None) -> tuple[int, ...]:
    """Layers of each stage, embedding and head included: those given, checked, or as many blocks in each.

    Raises ValueError for sizes of another count than the stages, or that do not add up to the model's layers.
    """
    if sizes is None:
        return naive_split(model, num_stages)
    sizes = sizes.sizes if isinstance(sizes, Partition) else sizes
    check_whole(**{f"sizes[{k}]": size for k, size in enumerate(sizes)})
    sizes = tuple(map(int, sizes))
    if len(sizes) != num_stages:
        raise ValueError(f"sizes has {len(sizes)} entries, but the schedule has {num_stages} stages: give one a stage")
    if sum(sizes) != model.num_layers + 2:
        raise ValueError(
            f"sizes add up to {sum(sizes)} layers, but {model.name or 'the model'} has {model.num_layers + 2}: the "
            f"embedding, {model.num_layers} blocks and the head; each goes to one stage"
        )
    return sizes


def device_parameters(model: TransformerModel, schedule: Schedule, sizes: Sequence[int]) -> np.ndarray:
    """Parameters on each device, (2, num_devices): all of them, and those of the embedding and the head.

    A stage on two devices counts on both. A tied head keeps a copy of the embedding's matrix on each of its devices
    that does not hold the embedding.
    """
    layers, bounds = model.layers(), list(accumulate(sizes, initial=0))
    parameters = np.array([layer.parameters for layer in layers], float)
    at_end = np.array([layer.kind != "block" for layer in layers])
    of_stage = np.stack([np.add.reduceat(p, bounds[:-1]) for p in (parameters, parameters * at_end)])
    last = schedule.num_stages - 1
    stands = np.zeros((schedule.num_devices, schedule.num_stages))
    stands[schedule.device, schedule.stage] = 1
    copies = stands[:, last] * (1 - stands[:, 0]) * layers[-1].shared_parameters
    return of_stage @ stands.T + copies
