"""Bytes on each device, and when: weights, gradients, optimizer state, and what passes hold for their backwards.

How many micro-batches a device holds is read off the schedule, op by op: F takes bytes at its start, B, or W where
the backward is split, gives them back at its end. What one block keeps is told in pplab.activations. Not counted:
buffers of messages and kernels, the gradient on its way through a pass, fragments that the allocator wastes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pplab.activations import (
    RECOMPUTE,
    layer_activation_bytes,
    layer_tensors,
    recompute_flops,
    weight_pass_bytes,
)
from pplab.asynchronous import check_mode
from pplab.held import changes_of_ops, held_changes, peaks
from pplab.model import TransformerModel
from pplab.parameter_bytes import (
    CONVENTIONS,
    BytesPerParameter,
    bytes_per_parameter,
    device_parameters,
    stage_layers,
)
from pplab.partition import Partition
from pplab.presets import check_whole
from pplab.schedule import Schedule
from pplab.simulate import simulate
from pplab.timeline import Timeline

__all__ = [
    "CONVENTIONS",
    "RECOMPUTE",
    "BytesPerParameter",
    "MemoryEstimate",
    "Trace",
    "bytes_per_parameter",
    "estimate_memory",
    "layer_activation_bytes",
    "layer_tensors",
    "recompute_flops",
    "weight_pass_bytes",
]
PARTS = ("weights", "gradients", "optimizer", "versions", "activations", "logits", "temporary")  # in all, the total


class Trace(NamedTuple):
    """What a device's passes hold over time: from each of ``times`` (n,) on, so many bytes of each part, (n,) each."""

    times: np.ndarray
    activations: np.ndarray
    logits: np.ndarray
    temporary: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """All parts together, (n,), in bytes; ``states`` come on top and do not change."""
        return self.activations + self.logits + self.temporary


@dataclass(frozen=True, eq=False)
class MemoryEstimate:
    """Bytes on each device, one array (num_devices,) a part; the seven of PARTS add up to ``total``.

    weights, gradients, optimizer : of all parameters on the device, two copies of a stage that stands on two devices.
    versions : older weights that a pipeline without a flush keeps for micro-batches in flight; 0 where there is one.
    activations, logits, temporary : at the moment when the device holds most. ``logits`` has what the head keeps:
        logits, its input and that of the final norm. ``temporary``: activations recomputed in the pass under way.
    embedding : how much of weights, gradients and optimizer belongs to the embedding and the head; not added again.
    source : the Schedule, or the Timeline, that it was made from. changes (kind, start or end, stage, part): what an
        op of a kind in F, B, I, W adds, in bytes · divisor: whole numbers, which add up without rounding.

    Raises ValueError for arrays of another length, negative bytes or bytes that are not finite.
    """

    source: Schedule | Timeline
    weights: np.ndarray
    gradients: np.ndarray
    optimizer: np.ndarray
    versions: np.ndarray
    activations: np.ndarray
    logits: np.ndarray
    temporary: np.ndarray
    embedding: np.ndarray
    changes: np.ndarray = field(repr=False)
    divisor: int = field(default=1, repr=False)

    def __post_init__(self) -> None:
        for name in (*PARTS, "embedding"):
            array = np.array(getattr(self, name), float)
            if array.shape != (self.schedule.num_devices,) or not ((array >= 0) & (array < np.inf)).all():
                raise ValueError(
                    f"{name} is {array!r:.60}: give {self.schedule.num_devices} finite numbers of bytes, one a device"
                )
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def schedule(self) -> Schedule:
        """The schedule whose devices these are."""
        return self.source.schedule if isinstance(self.source, Timeline) else self.source

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline of the traces; of a Schedule, the one that F = I = W = 1 and B = 2 give. Peaks need none."""
        return self.source if isinstance(self.source, Timeline) else simulate(self.source)

    @property
    def states(self) -> np.ndarray:
        """Weights, gradients, optimizer state and older versions of the weights together, (num_devices,)."""
        return self.weights + self.gradients + self.optimizer + self.versions

    @property
    def total(self) -> np.ndarray:
        """Bytes of each device at its fullest moment, (num_devices,)."""
        return self.states + self.activations + self.logits + self.temporary

    @property
    def fullest(self) -> int:
        """The device that holds most; the first of them, where several do."""
        return int(np.argmax(self.total))

    def trace(self, device: int) -> Trace:
        """What the passes of a device hold over time, in the timeline's unit.

        Two entries can share a time: what one op gives back goes before the next one takes. So its largest total is
        the peak, also where a device is never without a pass. Raises ValueError for a device that there is not.
        """
        count = self.schedule.num_devices
        if device not in range(count):
            raise ValueError(f"there is no device {device!r:.40}: they are numbered 0 to {count - 1}")
        a, b = self.schedule.row_slices[device]
        change = np.concatenate(list(changes_of_ops(self.schedule, self.changes)[:, a:b]))
        times = np.concatenate([self.timeline.start[a:b], self.timeline.end[a:b]])
        start = 2 * self.schedule.nodes.of_op[a:b]
        order = np.lexsort((np.concatenate([start, start + 1]), times))
        order = order[change[order].any(axis=1)]
        return Trace(times[order], *(np.cumsum(change[order], axis=0).T / self.divisor))

    def __str__(self) -> str:
        names = [name for name in (*PARTS, "total") if name != "versions" or self.versions.any()]
        rows = zip(*(getattr(self, name) / 1e9 for name in names), strict=True)
        lines = [f"{d:>6}" + "".join(f"{value:>12.4g}" for value in row) for d, row in enumerate(rows)]
        return "\n".join(["device" + "".join(f"{name:>12}" for name in names) + "  GB", *lines])


def estimate_memory(
    model: TransformerModel,
    schedule: Schedule | Timeline,
    *,
    micro_batch_size: int = 1,
    seq_len: int | None = None,
    convention: str | int | BytesPerParameter = "megatron",
    recompute: str = "none",
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    data_parallel: int = 1,
    sharded_optimizer: bool = False,
    activation_bytes: int = 2,
    logits_bytes: int = 4,
    dropout: bool = True,
    input_frees: bool = False,
    sizes: Sequence[int] | Partition | None = None,
    mode: str | None = None,
) -> MemoryEstimate:
    """Bytes on each device of a pipeline that trains a model by a schedule; a Timeline adds when they are held.

    Parameters
    ----------
    micro_batch_size, seq_len : sequences, and tokens in each; the model's seq_len unless given.
    convention, data_parallel, sharded_optimizer : as in ``bytes_per_parameter``; replicas share nothing else.
    recompute : "none", "selective", "full" (each block keeps its input, and a backward recomputes block by block) or
        "stage" (the first block's input, all blocks of the stage recomputed at once, as GPipe does).
    tensor_parallel, sequence_parallel : devices that share each block; all parameters, norms and biases too, in equal
        shares. ``num_devices`` counts pipeline devices: each stands for tensor_parallel equal ones.
    activation_bytes, dropout : as in ``layer_tensors``. logits_bytes : of a logit, 0 for a loss that keeps none.
    input_frees : I frees what W has no use for, which leaves 32sbh a block; otherwise it frees nothing.
    sizes : layers of each stage, embedding and head included, or a Partition; as many blocks in each, the embedding
        in the first and the head in the last, unless given. A tied head away from the embedding keeps a copy of it.
    mode : how "pipedream" goes without a flush, as in ``pplab.numeric.train``. "stashed", unless given: device k keeps
        D − k versions of its weights, D − k − 1 beside the newest; "vertical": D on each; "2bw": two on each.

    Raises
    ------
    ValueError : sizes that are not positive, do not divide, or do not add up to the layers; an unknown convention,
        recompute or mode (the known are listed); a mixture of experts; a schedule without backwards; a mode that keeps
        versions, for a schedule with a flush.
    TypeError : no Schedule or Timeline, no TransformerModel, a switch that is neither True nor False.

    Korthikanti et al. 2022 (arXiv 2205.05198), section 4.3 for embedding and head; Narayanan et al. 2019, PipeDream,
    section 3.3, and 2021, PipeDream-2BW (arXiv 2006.09503), section 3.1, for versions of weights.
    """
    s = _check_schedule(schedule)
    if not isinstance(model, TransformerModel):
        raise TypeError(f"model is {model!r:.40}: give a TransformerModel, such as pplab.model.MODELS['GPT-3 175B']")
    flags = dict(sequence_parallel=sequence_parallel, sharded_optimizer=sharded_optimizer, dropout=dropout)
    for name, flag in (flags | dict(input_frees=input_frees)).items():
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name} must be True or False, not {flag!r:.40}")
    each = bytes_per_parameter(convention, data_parallel, sharded_optimizer)
    shape = dict(micro_batch_size=micro_batch_size, seq_len=seq_len, activation_bytes=activation_bytes)
    shape |= dict(tensor_parallel=tensor_parallel, sequence_parallel=sequence_parallel)
    if logits_bytes != 0:
        check_whole(logits_bytes=logits_bytes)
    sizes = stage_layers(model, s.num_stages, sizes)
    held = held_changes(model, sizes, recompute, dropout, int(logits_bytes), input_frees, shape)
    t = int(tensor_parallel)
    changes = np.rint(held * t)
    all_, ends = device_parameters(model, s, sizes) / t
    states = (all_ * each.weights, all_ * each.gradients, all_ * each.optimizer)
    versions = states[0] * _older_versions(s, mode)
    activations, logits, temporary = peaks(s, changes) / t
    return MemoryEstimate(schedule, *states, versions, activations, logits, temporary, ends * each.total, changes, t)


def _older_versions(s: Schedule, mode: str | None) -> np.ndarray:
    """How many versions of its weights each device keeps beside the newest, (num_devices,)."""
    if mode is None:
        mode = "stashed" if s.name == "pipedream" else "synchronous"
    check_mode(mode)
    devices, most = np.arange(s.num_devices), min(s.num_devices, s.num_microbatches)
    if mode in ("synchronous", "unstashed"):
        return 0 * devices
    if s.name != "pipedream":
        raise ValueError(
            f"mode is {mode!r}, but {s.name} has a flush and one version of its weights: leave the mode out, or take "
            "the schedule pplab.SCHEDULES['pipedream']"
        )
    kept = {
        "stashed": np.minimum(most, s.num_devices - devices),
        "vertical": most + 0 * devices,
        "2bw": 2 + 0 * devices,
    }
    return kept[mode] - 1


def _check_schedule(schedule: Schedule | Timeline) -> Schedule:
    s = schedule.schedule if isinstance(schedule, Timeline) else schedule
    if not isinstance(s, Schedule):
        raise TypeError(f"{s!r:.40} is not a schedule: give a Schedule or a Timeline, such as pplab.one_f_one_b(4, 8)")
    if not s.is_kind("BI").any():
        raise ValueError(
            f"the schedule {s.name} runs forward only, so nothing is held for backwards: take one that trains"
        )
    return s
