"""The naive schedule: one micro-batch at a time."""

import numpy as np

from pplab.schedule import Schedule
from pplab.schedules._sizes import check_one_chunk


def naive(num_devices: int, num_microbatches: int, num_chunks: int = 1) -> Schedule:
    """Each micro-batch goes forward through all stages and back before the next one starts.

        device 0   F0 .  .  B0 F1 .  .  B1
        device 1   .  F0 B0 .  .  F1 B1 .

    Model parallelism without a pipeline: one device works at a time, the others wait; bubble
    1 − 1/D whatever M is (Huang et al. 2019, GPipe, arXiv 1811.06965, figure 2b).
    Raises ValueError for sizes below 1 and too large ones.
    """
    num_devices, num_microbatches = check_one_chunk("naive", num_devices, num_microbatches, num_chunks)
    device = np.repeat(np.arange(num_devices), 2 * num_microbatches)
    microbatch = np.tile(np.repeat(np.arange(num_microbatches), 2), num_devices)
    kind = np.tile(np.array(["F", "B"]), num_devices * num_microbatches)
    return Schedule.from_columns(device, device, kind, microbatch, name="naive")
