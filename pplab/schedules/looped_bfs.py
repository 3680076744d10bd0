"""Looped BFS: breadth-first, a chunk for all micro-batches at a time (Lamy-Poirier 2023)."""

import numpy as np

from pplab.placement import Placement, check_placement
from pplab.schedule import Schedule
from pplab.schedules._sizes import check_schedule_sizes


def looped_bfs(num_devices: int, num_microbatches: int, num_chunks: int = 2, placement: Placement = None) -> Schedule:
    """All micro-batches go through a device's first chunk, then all through its next one; backwards in reverse.

        device 0   0F0 0F1 2F0 2F1  .   .  2B1 2B0 0B1 0B0
        device 1    .  1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0  .

    Chunk c of device k is stage c · D + k. GPipe over V chunks: the bubble is interleaved 1F1B's, everything is held,
    V · M chunks, and each stage's weights are needed in one go forward and one go back, which suits sharded ones.
    Any M; PyTorch's order. Lamy-Poirier 2023, Breadth-First Pipeline Parallelism (arXiv 2211.05953).
    Raises ValueError for sizes below 1, too large ones, and a placement that is no wrap.
    """
    num_devices, num_microbatches, num_chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    stages = check_placement("looped-bfs", placement, "wrap", num_devices, num_chunks)
    forward = np.repeat(stages, num_microbatches, axis=1)  # a row a device
    microbatch = np.tile(np.arange(num_microbatches), (num_devices, num_chunks))
    stage, microbatch = (np.concatenate([x, x[:, ::-1]], axis=1) for x in (forward, microbatch))
    kind = np.tile(np.repeat(["F", "B"], forward.shape[1]), num_devices)
    device = np.repeat(np.arange(num_devices), stage.shape[1])
    return Schedule.from_columns(device, stage, kind, microbatch, name="looped-bfs")
