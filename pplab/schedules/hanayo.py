"""Hanayo: micro-batches that go through the devices in waves (Liu et al. 2023)."""

import numpy as np

from pplab.placement import Placement, check_placement
from pplab.schedule import Schedule
from pplab.schedules._sizes import check_even, check_schedule_sizes
from pplab.schedules._slots import run_in_slots


def hanayo(num_devices: int, num_microbatches: int, num_chunks: int = 2, placement: Placement = None) -> Schedule:
    """Chimera's small bubble with one copy of the weights: each micro-batch goes down and back, W = V/2 waves.

        device 0   0F0 0F1  .  3F0 3B0 3F1 3B1 0B0  .  0B1
        device 1    .  1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1  .

    The stages stand in a wave, so that a micro-batch turns back at the last device and at the first, and goes W waves
    forward and W backward. They go in M // D groups of near-equal size (one group where M < D). If a pass takes a
    slot, the micro-batches of a group of G ≥ D enter 2 slots apart, a wave lasts 2G slots, and no two passes meet:
    those of one leg run in even slots of a device, those of the other in odd ones. So for F = B and M ≥ D a step
    takes 2VM + 2(D − 1) slots of a chunk, the least that there is, and the bubble is (D − 1)/(VM + D − 1). For B > F
    it takes VM(F + B) + 2(D − 1)(B + (K − 1)(B − F)) with K groups: each further one leaves a gap. So with M = D and
    B = 2F the bubble is (2D − 2)/(3DW + 2D − 2). A device holds up to V · G chunks, G the largest group. Any M. After
    Liu et al. 2023, Hanayo (SC'23, arXiv 2308.15762). Raises ValueError for sizes below 1, too large ones, an odd
    number of chunks, and a placement that is no wave.
    """
    num_devices, num_microbatches, num_chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    check_even("hanayo", "each wave is two chunks of a device, on the way down and back", num_chunks=num_chunks)
    stages = check_placement("hanayo", placement, "v", num_devices, num_chunks)
    groups = np.array_split(np.arange(num_microbatches), max(1, num_microbatches // num_devices))
    wave_slots = 2 * np.concatenate([np.full(len(g), max(len(g), num_devices)) for g in groups])
    enters = np.concatenate([2 * num_chunks * g[0] + 2 * (g - g[0]) for g in groups])

    def slot(step: np.ndarray) -> np.ndarray:
        """The slot of each micro-batch's pass number so and so, (num_stages, num_microbatches)."""
        wave, place = np.divmod(step[:, None], 2 * num_devices)
        return enters + wave * wave_slots + place

    stage = np.arange(stages.size)
    device = np.argsort(stages, axis=None) // num_chunks
    device = np.broadcast_to(device[:, None], (stages.size, num_microbatches))
    return run_in_slots("hanayo", device, slot(stage), slot(2 * stages.size - 1 - stage))
