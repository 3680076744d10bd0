"""Start the ranks of a run from a notebook or a script, watch them, and leave none behind. Needs no PyTorch itself."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pplab.distributed.progress import create_progress
from pplab.distributed.watch import watch

# Elsewhere a process that has loaded PyTorch is not safe to fork, or cannot: each rank then starts afresh, in 3–6 s.
FORKS = sys.platform == "linux"
_LATER = 4.0  # seconds that the server gets to end a run, and to say so
_START = 60.0  # seconds that this may take on a busy machine
_RANK = """
import pathlib, sys
from pplab.distributed.worker import run_rank
run_rank(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
"""


class RunError(RuntimeError):
    """A real run that failed: its message names the rank, the op and the cause.

    ``reports``: what each rank that could still speak has said, with its ``traceback``.
    """

    reports: tuple[dict[str, Any], ...] = ()


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Run the ranks of a job; what they measured. Raises RunError; an interrupt ends all ranks before it goes on."""
    with tempfile.TemporaryDirectory(prefix="pplab-run-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        create_progress(folder, len(job["rows"]))
        error = (_forked if FORKS else _spawned)(folder, job)
        _show_output(folder, len(job["rows"]))
        if error:
            failure = RunError(error)
            paths = sorted(folder.glob("error-*.json"))
            failure.reports = tuple(json.loads(path.read_text(encoding="utf-8")) for path in paths)
            raise failure
        result = folder / "result.json"
        return json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}


def _show_output(folder: Path, num_ranks: int, most_lines: int = 20) -> None:
    """Print what the ranks printed: a model of the reader's own may have something to say."""
    for rank in range(num_ranks):
        path = folder / f"output-{rank}.txt"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        for line in lines[:most_lines]:
            print(f"rank {rank}: {line}")
        if len(lines) > most_lines:
            print(f"rank {rank}: … {len(lines) - most_lines} more lines")


class _Server:
    """One fork server: it runs one job at a time, and its process group holds it and its ranks."""

    def __init__(self) -> None:
        self.ready, self.errors = False, tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115, lives as long as the server
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pplab.distributed.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,  # an interrupt reaches this process only, which ends the ranks
            env=_environment(),
        )

    def run(self, folder: Path, timeout: float) -> str | None:
        """Run a job to its end: None, or what went wrong. It is the server that sees a rank hang, after ``timeout``."""
        assert self.process.stdin and self.process.stdout
        if not self.ready and not self.process.stdout.readline():
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()
            raise RunError(f"the ranks could not start: {' '.join(last[-2:]) or 'no reason was given'}")
        self.ready = True
        self.process.stdin.write(json.dumps(str(folder)) + "\n")
        self.process.stdin.flush()
        answer = self._answer(folder / "progress", timeout + _LATER)
        if not answer:
            raise RunError("the process that starts the ranks was ended by somebody: run again")
        return json.loads(answer)["error"]

    def _answer(self, progress: Path, patience: float) -> str:
        """The line that the server says at the end; RunError where for so many seconds nothing goes on."""
        assert self.process.stdout
        last, since = progress.read_bytes(), time.monotonic()
        while not select.select([self.process.stdout], [], [], 0.5)[0]:
            if (now := progress.read_bytes()) != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > patience:
                raise RunError(
                    "the process that starts the ranks does not answer any more: it has been ended, run again"
                )
        return self.process.stdout.readline()

    def end(self) -> None:
        """End the server and its ranks, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            if pipe:
                pipe.close()


_idle: list[_Server] = []
_lock = threading.Lock()


def _forked(folder: Path, job: dict[str, Any]) -> str | None:
    with _lock:
        server = _idle.pop() if _idle else None
    if server is not None and server.process.poll() is not None:
        server.end()
        server = None
    server = server or _Server()
    try:
        error = server.run(folder, job["timeout"])
    except BaseException:
        server.end()
        raise
    with _lock:
        keep = not _idle  # of two runs at once, one server stays
        if keep:
            _idle.append(server)
    if not keep:
        server.end()
    return error


def _spawned(folder: Path, job: dict[str, Any]) -> str | None:
    """Without a fork server: a fresh process a rank, watched from here."""
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(1 if job["task"] == "check" else len(job["rows"])):
            with (
                open(folder / f"output-{rank}.txt", "wb") as output,
                open(folder / f"errors-{rank}.txt", "wb") as errors,
            ):
                ranks.append(
                    subprocess.Popen(
                        [sys.executable, "-c", _RANK, str(folder), str(rank)],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=errors,
                        env=_environment(),
                        **_own_group(),
                    )
                )
        return watch(ranks, folder, job["timeout"], start=_START)
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def _own_group() -> dict[str, Any]:
    """So that an interrupt reaches this process only."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _environment() -> dict[str, str]:
    """This process's environment, with its import path, and without a torchrun's around it."""
    hidden = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {k: v for k, v in os.environ.items() if k not in hidden}
    root = str(Path(__file__).parents[2])
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, (root, kept.get("PYTHONPATH")))), "OMP_NUM_THREADS": "1"}


def start() -> None:
    """Begin to load PyTorch in the background, so that the first run need not wait for it."""
    if FORKS:
        with _lock:
            if not _idle:
                _idle.append(_Server())


@atexit.register
def stop() -> None:
    """End all that is kept alive between runs; the next run starts it again."""
    with _lock:
        while _idle:
            _idle.pop().end()
