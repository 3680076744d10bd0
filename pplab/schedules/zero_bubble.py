"""ZB-H1 and ZB-H2: 1F1B with the backward split, so that W fills the bubble (Qi et al. 2024, sections 2 and 3)."""

import numpy as np

from pplab.placement import Placement, check_placement
from pplab.schedule import Schedule
from pplab.schedules._sizes import check_one_chunk, check_schedule_sizes
from pplab.schedules._turns import group_passes, take_turns


def zb_h1(num_devices: int, num_microbatches: int, num_chunks: int = 1, placement: Placement = None) -> Schedule:
    """1F1B with its backward in two: I goes at once, W waits for a time when the device would idle.

        device 0   F0 F1 .  I0 W0 F2 I1 W1 I2 W2
        device 1   .  F0 I0 F1 I1 W0 F2 I2 W1 W2

    Device k warms up with D − k − 1 forwards and keeps k Ws back. By span the bubble is (D − 1)(F + I − W) while
    W ≤ min(F, I) and M ≥ D, against 1F1B's (D − 1)(F + I + W), for 1F1B's memory on the first device. With V chunks
    a device, placed and grouped as in interleaved-1f1b, the warm-up is (V − 1) · G longer, G the largest group. Any M;
    PyTorch's InterleavedZeroBubble where it takes M. Qi et al. 2024, Zero Bubble Pipeline Parallelism (arXiv
    2401.10241), section 2.1. Raises ValueError for sizes below 1, too large ones, and a placement that is no wrap.
    """
    num_devices, num_microbatches, num_chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    check_placement("zb-h1", placement, "wrap", num_devices, num_chunks)
    return _split("zb-h1", num_devices, num_microbatches, num_chunks, ahead=1)


def zb_h2(num_devices: int, num_microbatches: int, num_chunks: int = 1) -> Schedule:
    """ZB-H1 with twice the warm-up and twice the Ws kept back: no bubble between equal passes, for twice the memory.

        device 0   F0 F1 F2 I0 W0 I1 W1 I2 W2 .
        device 1   .  F0 I0 F1 I1 F2 I2 W0 W1 W2

    Device k warms up with 2(D − k − 1) forwards and keeps 2k Ws back. By span the bubble is (D − 1)(F + I − 2W) while
    W ≤ min(F, I) and M ≥ 2D − 1: none where passes are equal. A device's span counts where the next step follows at
    once; the makespan of one step is then still ZB-H1's. With M ≤ D the longer warm-up gains nothing and can lose
    a slot: there the rows are ZB-H1's. Qi et al. 2024, section 2.2.
    Raises ValueError for sizes below 1 and too large ones.
    """
    num_devices, num_microbatches = check_one_chunk("zb-h2", num_devices, num_microbatches, num_chunks)
    return _split("zb-h2", num_devices, num_microbatches, 1, ahead=2 if num_microbatches > num_devices else 1)


def _split(name: str, num_devices: int, num_microbatches: int, num_chunks: int, ahead: int) -> Schedule:
    """Warm-up of ``ahead`` forwards for each device that follows, and as many Ws kept back for each one before."""
    forward, backward, group = group_passes(num_devices, num_microbatches, num_chunks)
    device = np.arange(num_devices)
    return take_turns(name, ahead * device[::-1] + (num_chunks - 1) * group, forward, backward, ahead * device)
