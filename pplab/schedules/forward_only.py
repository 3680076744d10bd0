"""Forward only: inference, a pipeline without backwards."""

import numpy as np

from pplab.placement import Placement, check_placement
from pplab.schedule import Schedule
from pplab.schedules._sizes import check_schedule_sizes
from pplab.schedules._turns import group_passes


def forward_only(num_devices: int, num_microbatches: int, num_chunks: int = 1, placement: Placement = None) -> Schedule:
    """Micro-batches flow through the stages and out: inference. Nothing is kept, since nothing goes backward.

        device 0   F0 F1 F2 .
        device 1   .  F0 F1 F2

    Chunk c of device k is stage c · D + k, and forwards come in interleaved-1f1b's order. For M ≥ D a step takes
    V · M + D − 1 slots of a chunk, a bubble of (D − 1)/(V · M + D − 1): the ramp of Huang et al. 2019 (GPipe, arXiv
    1811.06965, section 2.3) without the way back. It cannot train: pplab.numeric and
    pplab.memory refuse it. Raises ValueError for sizes below 1, too large ones, and a placement that is no wrap.
    """
    num_devices, num_microbatches, num_chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    check_placement("forward-only", placement, "wrap", num_devices, num_chunks)
    (chunk, microbatch), _, _ = group_passes(num_devices, num_microbatches, num_chunks)
    device = np.repeat(np.arange(num_devices), len(chunk))
    stage = np.tile(chunk, num_devices) * num_devices + device
    return Schedule.from_columns(
        device, stage, np.full(len(device), "F"), np.tile(microbatch, num_devices), name="forward-only"
    )
