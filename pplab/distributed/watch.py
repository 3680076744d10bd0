"""Watch the ranks of a run, and when one fails find out which did so first, and why."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pplab.distributed.progress import COMPUTING, DONE, STARTING, open_progress, say_where

POLL = 0.01  # seconds between two looks at the ranks
_AFTERMATH = 0.5  # seconds that the other ranks get to say what they saw, once one has failed


class Process(Protocol):
    """What is watched: ``poll()`` gives the exit status, negative for a signal, None while it runs."""

    def poll(self) -> int | None:
        """The exit status, None while it runs."""

    def kill(self) -> None:
        """End it at once."""


class Forked:
    """A process that this one has forked."""

    def __init__(self, pid: int) -> None:
        self.pid, self.status = pid, None

    status: int | None

    def poll(self) -> int | None:
        """The exit status, negative for a signal, None while it runs."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def watch(
    ranks: Sequence[Process],
    folder: Path,
    timeout: float,
    ended: Callable[[], bool] = lambda: False,
    start: float = 0.0,
) -> str | None:
    """Wait for all ranks; None if all went well, else one message on the first that failed. No rank is left alive.

    A rank that does nothing new for ``timeout`` seconds counts as hanging (``start``, if longer, while
    they start). ``ended()``: whether nobody waits any more.
    """
    progress = open_progress(folder, len(ranks))
    last, since = np.array(progress), time.monotonic()
    try:
        while not ended():
            states = [rank.poll() for rank in ranks]
            if all(state == 0 for state in states) and (progress[:, 0] == DONE).all():
                return None
            if any(state is not None and (state or progress[k, 0] != DONE) for k, state in enumerate(states)):
                return _failed(ranks, folder, progress)
            now, limit = time.monotonic(), max(start, timeout) if (progress[:, 0] == STARTING).any() else timeout
            if not np.array_equal(last, progress):
                last, since = np.array(progress), now
            elif now - since > limit:
                return _hangs(progress, now - since)
            time.sleep(POLL)
        return "the run was given up"
    finally:
        for rank in ranks:
            rank.kill()
        del progress


def _failed(ranks: Sequence[Process], folder: Path, progress: np.ndarray) -> str:
    """Once a rank is gone: what was first. The others see only that a connection closed."""
    until = time.monotonic() + _AFTERMATH
    first = [
        k for k, rank in enumerate(ranks) if (state := rank.poll()) is not None and (state or not _done(progress, k))
    ]
    while time.monotonic() < until and any(rank.poll() is None for rank in ranks):
        time.sleep(POLL)
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("error-*.json"))]
    own = sorted((r for r in reports if not r["peer"]), key=lambda r: r["time"])
    if own:
        return _tell(own[0], folder)
    silent = [
        k for k, rank in enumerate(ranks) if rank.poll() is not None and not (folder / f"error-{k}.json").exists()
    ]
    silent = [k for k in silent if ranks[k].poll() or not _done(progress, k)]
    if silent:
        k = silent[0]
        return f"rank {k} {_status(ranks[k].poll())} {say_where(progress[k])}{_last_words(folder, k)}"
    if reports:
        return _tell(min(reports, key=lambda r: r["time"]), folder)
    return f"rank {first[0]} ended {say_where(progress[first[0]])}, nobody knows why{_last_words(folder, first[0])}"


def _done(progress: np.ndarray, rank: int) -> bool:
    return bool(progress[rank, 0] == DONE)


def _tell(report: dict[str, Any], folder: Path) -> str:
    where = f" ({report['line']})" if report["line"] else ""
    text = report["text"].strip().splitlines()
    return f"rank {report['rank']} raised {report['type']} {report['where']}: {' '.join(text)[:500]}{where}"


def _status(status: int | None) -> str:
    if status == 0:
        return "ended of its own accord, with exit status 0,"
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        why = " (by somebody, or by the system for want of memory)" if -status == 9 else ""
        return f"was killed by {name}{why}"
    return f"ended with exit status {status}"


def _last_words(folder: Path, rank: int) -> str:
    path = folder / f"errors-{rank}.txt"
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return f"; its last words: {' '.join(lines[-3:])[-300:]}" if lines else ""


def _hangs(progress: np.ndarray, seconds: float) -> str:
    """Which rank hangs: one that computes; else one that never started; else all wait for one another."""
    for state in (COMPUTING, STARTING):
        stuck = np.flatnonzero(progress[:, 0] == state)
        if len(stuck):
            k = int(stuck[0])
            what = f"rank {k} hangs: nothing new from it for {seconds:.0f} s, {say_where(progress[k])}"
            return f"{what}; give a longer timeout to passes that do take so long"
    where = "; ".join(f"rank {k} {say_where(line)}" for k, line in enumerate(progress))
    return f"all ranks wait for one another, nothing new for {seconds:.0f} s: {where}"
