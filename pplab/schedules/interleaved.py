"""Interleaved 1F1B: several chunks of the model on each device (Narayanan et al. 2021, section 2.2)."""

import numpy as np

from pplab.placement import Placement, check_placement
from pplab.schedule import Schedule
from pplab.schedules._sizes import check_schedule_sizes
from pplab.schedules._turns import group_passes, take_turns


def interleaved_1f1b(
    num_devices: int,
    num_microbatches: int,
    num_chunks: int = 2,
    short_warm_up: bool = False,
    placement: Placement = None,
) -> Schedule:
    """1F1B over V chunks a device: the ramp is V times shorter, for V times the messages and more memory.

        device 0   0F0 0F1 2F0 2F1  .  2B0  .  2B1 0B0 0B1
        device 1    .  1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1  .

    Chunk c of device k is stage c · D + k. Micro-batches go in M // D groups of near-equal size, larger ones
    first (one group where M < D): a group passes all chunks before the next one starts. Device k warms up with
    2(D − k − 1) + (V − 1) · G forwards, G the largest group, as Megatron-LM does; ``short_warm_up`` leaves the
    doubling out: less is held, and a hop costs more. Any M; PyTorch's order where it takes M.
    Narayanan et al. 2021, Efficient Large-Scale Language Model Training (SC'21, arXiv 2104.04473), section 2.2.
    Raises ValueError for sizes below 1, too large ones, and a placement that is no wrap.
    """
    num_devices, num_microbatches, num_chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    check_placement("interleaved-1f1b", placement, "wrap", num_devices, num_chunks)
    forward, backward, group = group_passes(num_devices, num_microbatches, num_chunks)
    ahead = (1 if short_warm_up else 2) * np.arange(num_devices)[::-1] + (num_chunks - 1) * group
    return take_turns("interleaved-1f1b", ahead, forward, backward)
