"""Schedules told by a slot for each pass: where F and B take one slot each, who runs what when is a formula."""

import numpy as np

from pplab.schedule import Schedule


def run_in_slots(name: str, device: np.ndarray, forward: np.ndarray, backward: np.ndarray) -> Schedule:
    """Each device's passes in the order of their slots.

    ``device``, ``forward``, ``backward`` (num_stages, num_microbatches): where a stage runs a micro-batch, and in
    which slots.
    """
    count = device.size
    stage, microbatch = (np.tile(column.ravel(), 2) for column in np.indices(device.shape))
    device, slot = np.tile(device.ravel(), 2), np.concatenate([forward.ravel(), backward.ravel()])
    order = np.lexsort((slot, device))
    kind = np.repeat(["F", "B"], count)
    return Schedule.from_columns(device[order], stage[order], kind[order], microbatch[order], name=name)
