"""A process with PyTorch loaded that forks the ranks of one run after another: a launch then takes a moment.

It reads a job's folder a line from its standard input and answers with a line of JSON. When its input
closes, because whoever started it is gone, it ends its ranks and itself.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import sys
from pathlib import Path

from pplab.distributed import worker
from pplab.distributed.watch import Forked, watch


def main() -> None:
    """Serve until the input closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    gc.freeze()  # what is loaded stays shared with the ranks
    _answer(answers, {"ready": True})
    for line in iter(sys.stdin.readline, ""):
        folder = Path(json.loads(line))
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        world = 1 if job["task"] == "check" else len(job["rows"])
        ranks = [Forked(_fork(folder, rank)) for rank in range(world)]
        _answer(answers, {"error": watch(ranks, folder, job["timeout"], _input_closed)})


def _answer(answers: object, what: dict[str, object]) -> None:
    print(json.dumps(what), file=answers, flush=True)  # type: ignore[call-overload]


def _input_closed() -> bool:
    """Nothing is sent while a job runs, so a readable input is a closed one."""
    return bool(select.select([0], [], [], 0)[0])


def _fork(folder: Path, rank: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _die_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is interrupted ends the ranks
        written = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for target, path, how in (
            (0, os.devnull, os.O_RDONLY),
            (1, folder / f"output-{rank}.txt", written),
            (2, folder / f"errors-{rank}.txt", written),
        ):
            os.dup2(os.open(path, how), target)
        worker.run_rank(folder, rank)
        status = 0
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _die_with(parent: int) -> None:
    """Be killed when the server goes, even if it is killed itself (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)


if __name__ == "__main__":
    main()
