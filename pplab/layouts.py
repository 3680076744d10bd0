"""Layout: one way to run a model on a cluster; Conditions: what holds for every layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real

import numpy as np

from pplab.cluster import check_recompute
from pplab.memory import BytesPerParameter, bytes_per_parameter
from pplab.presets import check_whole
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES

_ONE_COPY = {"dualpipe": "dualpipe-v", "chimera": "hanayo"}  # two copies of each stage → the same idea with one
Efficiency = float | Callable[[int, int], float]  # a share of the peak, or that of (micro_batch_size, tensor)


@dataclass(frozen=True)
class Layout:
    """How a cluster runs a model: tensor × pipeline × data devices, and how a pipeline works through a batch.

    num_chunks : V, stages a device. num_microbatches : M, of each replica's step. recompute : "none", "selective"
    (attention over its scores) or "full" (whole blocks). schedule : a name of SCHEDULES. Raises ValueError for sizes
    below 1, names that are not known, and schedules of two copies, dualpipe and chimera.
    """

    tensor: int
    pipeline: int
    data: int
    num_chunks: int
    micro_batch_size: int
    num_microbatches: int
    recompute: str = "none"
    schedule: str = "1f1b"

    def __post_init__(self) -> None:
        sizes = ("tensor", "pipeline", "data", "num_chunks", "micro_batch_size", "num_microbatches")
        check_whole(**{name: getattr(self, name) for name in sizes})
        check_recompute(self.recompute)
        check_schedule(self.schedule)

    @property
    def num_devices(self) -> int:
        """tensor · pipeline · data."""
        return self.tensor * self.pipeline * self.data

    @property
    def num_stages(self) -> int:
        """pipeline · num_chunks."""
        return self.pipeline * self.num_chunks

    def __str__(self) -> str:
        name = self.schedule + (f" V={self.num_chunks}" if self.num_chunks > 1 else "")
        sizes = f"{self.tensor} × {self.pipeline} × {self.data}"
        return f"{sizes}, {name}, micro-batch {self.micro_batch_size}, recompute {self.recompute}"


@dataclass(frozen=True)
class Conditions:
    """What holds for every layout.

    efficiency : share of the accelerator's peak that kernels reach while they compute, above 0 and at most 1, or a
        function of (micro_batch_size, tensor) that gives it: a measured profile. seq_len : tokens.
    scatter_gather : tensor ranks share a message between nodes instead of each sending all of it (Narayanan et al.
        2021, section 4.1). overlap_data : gradients are reduced while the last micro-batch runs backward.
    convention, sharded_optimizer, sequence_parallel : of memory, as in ``estimate_memory``. reserved_bytes : of each
        device, what nobody may plan with.

    Raises ValueError for values that make no sense.
    """

    efficiency: Efficiency
    seq_len: int
    scatter_gather: bool = True
    overlap_data: bool = False
    convention: str | int | BytesPerParameter = "megatron"
    sharded_optimizer: bool = False
    sequence_parallel: bool = False
    reserved_bytes: float = 0.0

    def __post_init__(self) -> None:
        check_whole(seq_len=self.seq_len)
        if not callable(self.efficiency):
            _check_efficiency(self.efficiency)
        for name in ("scatter_gather", "overlap_data", "sharded_optimizer", "sequence_parallel"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r:.40}")
        bytes_per_parameter(self.convention)
        if not isinstance(self.reserved_bytes, Real) or not 0 <= self.reserved_bytes < np.inf:
            raise ValueError(f"reserved_bytes is {self.reserved_bytes!r:.40}: give a finite number of 0 or more")

    @property
    def gradient_bytes(self) -> float:
        """Bytes of a gradient as it is reduced: what the convention keeps, 2 where it keeps none."""
        return bytes_per_parameter(self.convention).gradients or 2.0

    def efficiency_of(self, layout: Layout) -> float:
        """The efficiency under a layout. Raises ValueError where a function gives none that makes sense."""
        if callable(self.efficiency):
            return _check_efficiency(self.efficiency(layout.micro_batch_size, layout.tensor))
        return self.efficiency


def check_schedule(value: object) -> None:
    """Raise ValueError for a name that SCHEDULES does not have, and for schedules that hold each stage twice."""
    if value not in SCHEDULES:
        raise ValueError(f"schedule is {value!r:.40}: choose one of {', '.join(SCHEDULES)}")
    if value in _ONE_COPY:
        raise ValueError(
            f"schedule is {value!r}, which holds each stage on two devices: layouts have one copy of a pipeline's "
            f"stages, so choose {_ONE_COPY[value]!r}, which came of it and has one"
        )


def _check_efficiency(value: object) -> float:
    """The value, if it is a share above 0 and at most 1; raises ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (Real, np.number)) or not 0 < value <= 1:  # type: ignore[operator]
        raise ValueError(f"efficiency is {value!r:.40}: give the share of the peak, above 0 and at most 1")
    return float(value)


@lru_cache(maxsize=64)
def build(schedule: str, num_devices: int, num_microbatches: int, num_chunks: int) -> Schedule:
    """A named schedule, kept for the next layouts of the same sizes."""
    return SCHEDULES[schedule](num_devices, num_microbatches, num_chunks=num_chunks)


@lru_cache(maxsize=512)
def stage_devices(schedule: str, num_devices: int, num_chunks: int) -> np.ndarray:
    """The device of each stage, (num_stages), read from the schedule of few micro-batches."""
    s = build(schedule, num_devices, 2 * num_devices, num_chunks)
    devices = s.device[np.unique(s.stage, return_index=True)[1]]
    devices.flags.writeable = False
    return devices
