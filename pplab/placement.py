"""Placements: which stages stand on which device, as data: a row a device, a column a chunk.

    wrap, 4 devices, 2 chunks        V, a wave of 2 chunks
        device 0   0 4                   device 0   0 7
        device 1   1 5                   device 1   1 6
        device 2   2 6                   device 2   2 5
        device 3   3 7                   device 3   3 4

With a wrap the model goes round and round; with a wave it turns back at the last device, so stages D − 1 and D are
neighbours on one device, and so are the first stage and, with an even number of chunks, the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Placement = Any  # a name of PLACEMENTS, or a table of stages: anything that NumPy reads as one


def wrap(num_devices: int, num_chunks: int = 2) -> np.ndarray:
    """Chunk c of device k is stage c · D + k (Narayanan et al. 2021, section 2.2): (num_devices, num_chunks)."""
    return np.arange(num_devices)[:, None] + num_devices * np.arange(num_chunks)


def wave(num_devices: int, num_chunks: int = 2) -> np.ndarray:
    """As wrap, but odd chunks go back up: with two of them the V of Qi et al. 2024 (section 6) and of ZB-V."""
    stages = wrap(num_devices, num_chunks)
    stages[:, 1::2] = stages[::-1, 1::2]
    return stages


PLACEMENTS: dict[str, Callable[..., np.ndarray]] = {"wrap": wrap, "v": wave}


def check_placement(schedule: str, given: Placement, needed: str, num_devices: int, num_chunks: int) -> np.ndarray:
    """The placement that a schedule needs, as a table; raises ValueError, which names it, where another is given.

    ``given``: None for the right one, a name, or a table.
    """
    right = PLACEMENTS[needed](num_devices, num_chunks)
    if given is None:
        return right
    word = {"wrap": "a wrap", "v": "a V" if num_chunks == 2 else "a wave"}[needed]
    way = (
        f'{schedule} needs {word}, placement="{needed}": device 0 with stages {_stages(right[0])}, and the last device '
        f"with {_stages(right[-1])}"
    )
    if isinstance(given, str):
        if given not in PLACEMENTS:
            raise ValueError(f"placement is {given!r:.40}: there are {', '.join(PLACEMENTS)}, or a table; {way}")
        table = PLACEMENTS[given](num_devices, num_chunks)
    else:
        table = read_placement(given)
    if table.shape != right.shape:
        raise ValueError(
            f"the placement has {table.shape[0]} devices with {table.shape[1]} stages each, but D is {num_devices} and "
            f"V is {num_chunks}: {way}"
        )
    if (table != right).any():
        k = int(np.argmax((table != right).any(1)))
        raise ValueError(f"the placement has stages {_stages(table[k])} on device {k}: {way}")
    return right


def read_placement(given: Any) -> np.ndarray:
    """A table as an array (num_devices, num_chunks); raises ValueError where it is empty or misses a stage."""
    shape = "give a row a device, a stage number a chunk, such as [[0, 3], [1, 2]]"
    try:
        table = np.array(given)
    except ValueError:
        raise ValueError(f"the placement's rows differ in length: {shape}") from None
    if not table.size:
        raise ValueError(f"the placement is empty, so no stage stands anywhere: {shape}")
    if table.ndim != 2 or table.dtype.kind not in "iu":
        raise ValueError(f"the placement is {given!r:.40}: {shape}")
    if not np.array_equal(np.sort(table, axis=None), np.arange(table.size)):
        raise ValueError(f"the placement must hold each of the stages 0 to {table.size - 1} once: {shape}")
    return table


def _stages(row: np.ndarray) -> str:
    *first, last = map(str, row.tolist())
    return f"{', '.join(first)} and {last}" if first else last
