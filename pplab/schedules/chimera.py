"""Chimera: two pipelines in opposite directions, each in the gaps of the other (Li and Hoefler 2021)."""

import numpy as np

from pplab.schedule import Schedule
from pplab.schedules._sizes import check_even, check_two_chunks
from pplab.schedules._slots import run_in_slots


def chimera(num_devices: int, num_microbatches: int, num_chunks: int = 2) -> Schedule:
    """Half of the micro-batches go down from device 0, the others up from the last device, in each other's gaps.

        device 0   0F0 0F1  .  3F2 3B2 3F3 3B3 0B0  .  0B1
        device 1    .  1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1  .
        device 2    .  1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3  .
        device 3   0F2 0F3  .  3F0 3B0 3F1 3B1 0B2  .  0B3

    Stage k stands on devices k and D − 1 − k: two copies of all weights, whose gradients have to be added up after
    the last pass, which no time here includes. Micro-batches M/2 to M − 1 go up. All go in units of D, the last one
    smaller where D does not divide M: if a pass takes a slot, the micro-batches of either direction enter 2 slots
    apart, a unit 2D slots after the one before, and no two passes meet, since D is even. So for F = B a step takes
    M + (⌈M/D⌉ + 1)D − 2 slots; with K whole units the bubble is (D − 2)/(2M + D − 2), less than half of 1F1B's. For
    B > F they take M(F + B) + (D − 2)(B + (K − 1)(B − F)): each further unit leaves a gap. With M ≥ D a device holds
    D/2 + 1 to D micro-batches. Li and Hoefler 2021, Chimera (SC'21, arXiv 2107.06925), section 3.
    Raises ValueError for sizes below 1, too large ones and odd ones.
    """
    num_devices, num_microbatches = check_two_chunks("chimera", num_devices, num_microbatches, num_chunks)
    check_even("chimera", "stage k stands on devices k and D − 1 − k", num_devices=num_devices)
    check_even("chimera", "half of them go each way", num_microbatches=num_microbatches)
    stage, microbatch = np.indices((num_devices, num_microbatches))
    goes_up, i = np.divmod(microbatch, num_microbatches // 2)
    unit, place = np.divmod(i, num_devices // 2)
    forward = 2 * num_devices * unit + 2 * place + stage
    backward = forward + 2 * (num_devices - stage) - 1
    device = np.where(goes_up, num_devices - 1 - stage, stage)
    return run_in_slots("chimera", device, forward, backward)
