"""GPipe: all forwards, then all backwards (Huang et al. 2019, section 2.3)."""

import numpy as np

from pplab.schedule import Schedule
from pplab.schedules._sizes import check_one_chunk


def gpipe(num_devices: int, num_microbatches: int, num_chunks: int = 1, backward_order: str = "reverse") -> Schedule:
    """All micro-batches go forward, then all go backward, and only then are the weights updated.

        device 0   F0 F1 F2 .  .  B2 B1 B0
        device 1   .  F0 F1 F2 B2 B1 B0 .

    ``backward_order``: ``"reverse"`` runs the last micro-batch's backward first, as the paper and the
    chapter do; ``"fifo"`` the first one's, as PyTorch's ScheduleGPipe does. Times are the same.
    Huang et al. 2019, GPipe (arXiv 1811.06965), section 2.3.
    Raises ValueError for sizes below 1, too large ones, another order.
    """
    num_devices, num_microbatches = check_one_chunk("gpipe", num_devices, num_microbatches, num_chunks)
    if backward_order not in ("reverse", "fifo"):
        raise ValueError(f"backward_order is {backward_order!r:.40}: choose 'reverse' or 'fifo'")
    forward = np.arange(num_microbatches)
    backward = forward if backward_order == "fifo" else forward[::-1]
    device = np.repeat(np.arange(num_devices), 2 * num_microbatches)
    kind = np.tile(np.repeat(["F", "B"], num_microbatches), num_devices)
    microbatch = np.tile(np.concatenate([forward, backward]), num_devices)
    return Schedule.from_columns(device, device, kind, microbatch, name="gpipe")
