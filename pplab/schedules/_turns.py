"""The row that 1F1B and its kin share: forwards, then one forward and one backward in turn, then backwards."""

import numpy as np

from pplab.schedule import Schedule


def take_turns(name: str, warm_up: np.ndarray, forward: np.ndarray, backward: np.ndarray) -> Schedule:
    """One row a device, from what all devices run in common.

    ``warm_up`` (num_devices,): how many forwards each device runs first. ``forward``, ``backward`` (2, n): chunk and
    micro-batch of each pass in order. Chunk c of device k is stage c · num_devices + k.
    """
    num_devices, count = len(warm_up), forward.shape[1]
    device, i = np.arange(num_devices)[:, None], np.arange(count)
    ahead = np.minimum(warm_up, count)[:, None]
    forward_at = np.where(i < ahead, i, 2 * i - ahead)  # a forward's place in the row …
    backward_at = np.minimum(ahead + 2 * i + 1, count + i)  # … and a backward's
    kind = np.full((num_devices, 2 * count), "B")
    kind[device, forward_at] = "F"
    chunk, microbatch = np.empty((2, *kind.shape), int)
    for column, passes in ((chunk, 0), (microbatch, 1)):
        column[device, forward_at], column[device, backward_at] = forward[passes], backward[passes]
    stage = chunk * num_devices + device
    devices = np.repeat(np.arange(num_devices), 2 * count)
    return Schedule.from_columns(devices, stage, kind, microbatch, name=name)
