"""1F1B: one forward, one backward (PipeDream 2019; with a flush as PipeDream-Flush and in Megatron-LM)."""

import numpy as np

from pplab.schedule import Schedule
from pplab.schedules._sizes import check_one_chunk
from pplab.schedules._turns import take_turns


def one_f_one_b(num_devices: int, num_microbatches: int, num_chunks: int = 1) -> Schedule:
    """After a warm-up of forwards each device alternates one forward and one backward, then drains.

        device 0   F0 F1 .  B0 F2 B1 .  B2
        device 1   .  F0 B0 F1 B1 F2 B2 .

    Device k warms up with min(M, D − k − 1) forwards (Narayanan et al. 2021, section 2.2), so it never
    holds more than min(M, D − k) micro-batches; the time is GPipe's. Any M ≥ 1.
    Raises ValueError for sizes below 1 and too large ones.
    """
    return _warmed_up("1f1b", num_devices, num_microbatches, num_chunks, ahead=1)


def eager_1f1b(num_devices: int, num_microbatches: int, num_chunks: int = 1) -> Schedule:
    """1F1B with twice the warm-up: messages get time to travel, for more activations held.

        device 0   F0 F1 F2 B0 .  B1 .  B2
        device 1   .  F0 B0 F1 B1 F2 B2 .

    Device k warms up with min(M, 2(D − k − 1)) forwards, one more for each of the two messages that a
    micro-batch sends between it and each later device, so a hop up to the length of a pass costs what it
    costs GPipe; it holds up to min(M, 2(D − k) − 1) micro-batches. The idea is the eager 1F1B of Zhuang et al.
    2023, On Optimizing the Communication of Model Parallelism (arXiv 2211.05322).
    Raises ValueError for sizes below 1 and too large ones.
    """
    return _warmed_up("eager-1f1b", num_devices, num_microbatches, num_chunks, ahead=2)


def pipedream(num_devices: int, num_microbatches: int, num_chunks: int = 1) -> Schedule:
    """1F1B without a flush: weights are updated after every backward, and the next micro-batch follows at once.

        device 0   F0 F1 .  B0 F2 B1 F3 B2 .  B3
        device 1   .  F0 B0 F1 B1 F2 B2 F3 B3 .

    A whole run of ``num_microbatches`` in one go: its rows are 1F1B's over so many, with at most D micro-batches in
    flight (NOAM), so the ramp and the drain are paid once a run instead of once a step. A forward and its backward
    meet other weights unless versions of them are kept: pplab.asynchronous tells which, and how stale they are.
    Narayanan et al. 2019, PipeDream (SOSP), sections 3.2 and 3.3. Raises ValueError for sizes below 1, too large ones.
    """
    return _warmed_up("pipedream", num_devices, num_microbatches, num_chunks, ahead=1)


def _warmed_up(name: str, num_devices: int, num_microbatches: int, num_chunks: int, ahead: int) -> Schedule:
    """Warm-up of ``ahead`` forwards for each device that follows."""
    num_devices, num_microbatches = check_one_chunk(name, num_devices, num_microbatches, num_chunks)
    microbatches = np.arange(num_microbatches)
    passes = np.stack([0 * microbatches, microbatches])
    return take_turns(name, ahead * np.arange(num_devices)[::-1], passes, passes)
