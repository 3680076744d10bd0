"""Where each rank is just now: a small table in a file that the ranks write and their launcher reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pplab.op import Op

STARTING, WAITING, COMPUTING, DONE = range(4)
_COLUMNS = 6  # state, step, stage, kind, micro-batch, ops done


def create_progress(folder: Path, num_ranks: int) -> np.ndarray:
    """The table for a run, (num_ranks, 6), all ranks starting."""
    table = np.memmap(folder / "progress", np.int64, "w+", shape=(num_ranks, _COLUMNS))
    table[:, 1:4] = -1
    return table


def open_progress(folder: Path, num_ranks: int) -> np.ndarray:
    """The table of a run that is under way."""
    return np.memmap(folder / "progress", np.int64, "r+", shape=(num_ranks, _COLUMNS))


def say_where(line: np.ndarray) -> str:
    """A rank's line as words: ``in 1F3 of step 2``."""
    state, step, stage, kind, microbatch, _ = line.tolist()
    if state == STARTING:
        return "while it started"
    if state == DONE:
        return "after its last step"
    if kind < 0:
        return f"before its first op of step {step}"
    op = Op(stage, chr(kind), microbatch)
    return f"in {op} of step {step}" if state == COMPUTING else f"after {op} of step {step}, waiting for a message"
