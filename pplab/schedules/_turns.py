"""The row that 1F1B and its kin share: forwards, then one forward and one backward in turn, then backwards."""

import numpy as np

from pplab.schedule import Schedule


def take_turns(
    name: str, warm_up: np.ndarray, forward: np.ndarray, backward: np.ndarray, weight_lag: np.ndarray | None = None
) -> Schedule:
    """One row a device, from what all devices run in common.

    ``warm_up`` (num_devices,): how many forwards each device runs first. ``forward``, ``backward`` (2, n): chunk and
    micro-batch of each pass in order. Chunk c of device k is stage c · num_devices + k. ``weight_lag`` (num_devices,):
    backwards are split, and after each I the oldest W runs once more than so many wait; what is left follows at the
    end. Whole backwards unless given.
    """
    num_devices, count = len(warm_up), forward.shape[1]
    i, ahead = np.arange(count), warm_up[:, None]
    never = np.full((num_devices, 1), count)
    lag = never if weight_lag is None else weight_lag[:, None]
    # Where a pass stands in its row: how many forwards, backwards and Ws stand before it.
    placed = [("F", forward, i + np.maximum(i - ahead, 0) + np.maximum(i - ahead - lag, 0))]
    placed += [("B", backward, np.minimum(ahead + i + 1, count) + i + np.maximum(i - lag, 0))]
    if weight_lag is not None:
        placed[1] = ("I", *placed[1][1:])
        placed += [("W", backward, np.minimum(ahead + i + lag + 1, count) + np.minimum(i + lag + 1, count) + i)]
    shape = num_devices, len(placed) * count
    kind, chunk, microbatch = np.empty(shape, "<U1"), np.empty(shape, int), np.empty(shape, int)
    device = np.arange(num_devices)[:, None]
    for letter, passes, place in placed:
        kind[device, place], chunk[device, place], microbatch[device, place] = letter, passes[0], passes[1]
    devices = np.repeat(np.arange(num_devices), shape[1])
    return Schedule.from_columns(devices, chunk * num_devices + device, kind, microbatch, name=name)


def group_passes(num_devices: int, num_microbatches: int, num_chunks: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The order of interleaved forwards and backwards, chunk and micro-batch (2, n) each, and the largest group's size.

    Micro-batches go in M // D groups of near-equal size, larger ones first (one group where M < D): a group passes
    all chunks before the next one starts, backwards from the last chunk on.
    """
    groups = np.array_split(np.arange(num_microbatches), max(1, num_microbatches // num_devices))
    chunks = np.arange(num_chunks)
    forward, backward = (
        np.concatenate([np.stack([np.repeat(order, len(g)), np.tile(g, num_chunks)]) for g in groups], axis=1)
        for order in (chunks, chunks[::-1])
    )
    return forward, backward, len(groups[0])
