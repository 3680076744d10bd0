"""Schedules made of one building block: the passes of one micro-batch at fixed times, repeated every 6 slots.

Qi et al. 2024, Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), sections 3 and 4. On the V of
pplab.placement a micro-batch is one chain of 4D passes, of a slot each: forward down the devices (F0) and up again
(F1), backward down (I1) and up (I0). A block says how long each of these four lines takes from a device to the next,
its ``steps``, and how long the chain waits at each turn, its ``gaps``. Device k runs::

    F0 at  a·k                      steps (a, b, c, d)
    F1 at  f + b·(D − 1 − k)        f = a·(D − 1) + 1 + gap 0
    I1 at  i + c·k                  i = f + b·(D − 1) + 1 + gap 1
    I0 at  j + d·(D − 1 − k)        j = i + c·(D − 1) + 1 + gap 2

*It repeats* if no device has two of the four in the same slot modulo 6. Two slots stay free for W0 and W1, so a device
works without a pause. *It holds* a chunk from its F to its W. From F to I the two chunks of device k take

    (I0 − F0) + (I1 − F1) = (a + b + c + d)(D − 1) + 4 + gap 0 + 2 · gap 1 + gap 2     if a + d = b + c

slots, on every device: k cancels, so all hold alike. A new one of each comes every 6 slots, so a sixth of this many
are held, and those that wait for their W. Steps that add up to 4 make it 2D/3 chunks, to 6 D, to 12 2D: a third, a
half and all of the D micro-batches, of two chunks each, of 1F1B's first device. The shortest steps are 1, 1, 1, 1.
"""

import numpy as np

from pplab.schedule import Schedule

_PERIOD = 6  # slots: 3 passes of 2 chunks


def block_times(num_devices: int, steps: tuple[int, ...], gaps: tuple[int, ...]) -> np.ndarray:
    """The slots of F0, F1, I1 and I0 of micro-batch 0, (num_devices, 4)."""
    times = np.zeros((num_devices, 4), int)
    for line, step in enumerate(steps):
        down = line % 2 == 0
        turn = 0 if line == 0 else times[-1 if line % 2 else 0, line - 1] + 1 + gaps[line - 1]
        times[:, line] = turn + step * np.arange(num_devices)[:: 1 if down else -1]
    return times


def repeat_block(name: str, times: np.ndarray, num_microbatches: int, most_held: int) -> Schedule:
    """Every device's F and I in the block's order, as early as they can; a W where it would wait, or be too full.

    ``times`` (num_devices, 4): of ``block_times``. ``most_held``: chunks that a device may hold, a number of them that
    the block's order, in which every W could come right after its I, needs at least.
    """
    devices, m = len(times), num_microbatches
    order = np.argsort((times[:, :, None] + _PERIOD * np.arange(m)).reshape(devices, 4 * m), axis=1)
    line, microbatch = order // m, order % m
    k = np.arange(devices)[:, None]
    stage = np.where((line == 0) | (line == 3), k, 2 * devices - 1 - k)
    forward = line < 2
    runs = _squeeze(np.where(forward, stage, 4 * devices - 1 - stage), microbatch, forward, most_held)
    device, slot = np.nonzero(runs.T)
    weights = runs[slot, device] == 2
    columns = np.empty((2, len(device)), int)
    for column, of_pass in zip(columns, (stage, microbatch), strict=True):
        column[~weights], column[weights] = of_pass.ravel(), of_pass[~forward]  # Ws come in the order of the Is
    kind = np.full(len(device), "W")
    kind[~weights] = np.where(forward, "F", "I").ravel()
    return Schedule.from_columns(device, columns[0], kind, columns[1], name=name)


def _squeeze(link: np.ndarray, microbatch: np.ndarray, forward: np.ndarray, most_held: int) -> np.ndarray:
    """What each device runs in each slot, (slots, num_devices): 0 nothing, 1 the next pass of its row, 2 a W.

    ``link`` (num_devices, 4M): how many passes the pass's micro-batch has behind it. It never stands still: where
    a forward has no room, a W waits to be run, since those that only wait for their I are fewer than ``most_held``.
    """
    devices, count = link.shape
    m = count // 4
    done = np.zeros(m * (4 * devices + 1) + 1, bool)
    done[:m] = True  # what a first pass needs; the last entry is what a device at its row's end waits for
    need = np.pad(link * m + microbatch, ((0, 0), (0, 1)), constant_values=len(done) - 1).ravel()
    takes = np.pad(forward, ((0, 0), (0, 1))).ravel()
    here = np.arange(devices) * (count + 1)
    held, waiting = np.zeros((2, devices), int)
    slots = []
    left = 6 * m * devices
    while left:
        take = takes[here]
        ready = done[need[here]] & ~(take & (held == most_held))
        weight = ~ready & (waiting > 0)
        done[need[here[ready]] + m] = True
        here = here + ready
        held += (ready & take).astype(int) - weight
        waiting += (ready & ~take).astype(int) - weight
        slots.append(ready + 2 * weight)
        left -= int(np.count_nonzero(slots[-1]))
    return np.array(slots)
