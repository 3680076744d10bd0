"""One rank as a process: started by a launcher of pplab's, or ``python -m pplab.distributed.worker`` under torchrun.

torchrun --nnodes N --nproc-per-node G -m pplab.distributed.worker 1f1b --microbatches 8 --save run.json
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pplab.distributed.gather import gather
from pplab.distributed.models import build_model, check_boundaries
from pplab.distributed.progress import DONE, open_progress, say_where
from pplab.distributed.rank import Rank

PEER_ERRORS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Timed out waiting",
    "Broken pipe",
    "Socket Timeout",
)


def run_rank(folder: Path, rank: int) -> None:
    """Be one rank of a job in a folder: ``job.json`` in, ``result.json`` or ``error-<rank>.json`` out."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    world = len(job["rows"])
    progress = open_progress(folder, world)[rank]
    try:
        sys.path[:0] = [path for path in job["sys_path"] if path not in sys.path]
        torch.set_num_threads(1)
        if sys.platform in ("linux", "darwin"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        me = Rank(job, rank, rank, world, progress)
        if job["task"] == "check":
            check_boundaries(build_model(me.workload), me.schedule.num_stages, me.schedule.num_microbatches)
            progress[0] = DONE
            return
        me.connect(folder / "rendezvous")
        me.build()
        result = gather(me, me.run())
        if result:
            write_whole(folder / "result.json", result)
        progress[0] = DONE
    except BaseException as error:
        report(folder, rank, say_where(progress), error)
        raise SystemExit(1) from None


def write_whole(path: Path, data: Any) -> None:
    """Write JSON so that nobody reads half of it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data), encoding="utf-8")
    part.replace(path)


def report(folder: Path, rank: int, where: str, error: BaseException) -> None:
    """Tell the launcher what happened: the error that PyTorch's wrapping hides, and whether a peer caused it."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    frames = traceback.extract_tb(root.__traceback__)
    outside = [frame for frame in frames if f"{os.sep}torch{os.sep}" not in frame.filename] or frames
    write_whole(
        folder / f"error-{rank}.json",
        {
            "rank": rank,
            "where": where,
            "type": type(root).__name__,
            "text": str(root),
            "line": f"{Path(outside[-1].filename).name}, line {outside[-1].lineno}" if outside else "",
            "peer": any(text in str(error) for text in PEER_ERRORS),
            "time": time.time(),
            "traceback": "".join(traceback.format_exception(error)),
        },
    )


def main(arguments: list[str] | None = None) -> int:
    """A rank under torchrun: reads RANK, WORLD_SIZE and the others that it sets; rank 0 prints and saves."""
    from pplab.distributed import prepare
    from pplab.distributed.options import read_options
    from pplab.distributed.result import RunResult

    env = {name: int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1))}
    local = int(os.environ.get("LOCAL_RANK", env["RANK"])), int(os.environ.get("LOCAL_WORLD_SIZE", env["WORLD_SIZE"]))
    options = read_options(arguments, devices=env["WORLD_SIZE"])
    if options.schedule.num_devices != env["WORLD_SIZE"]:
        needed, there = options.schedule.num_devices, env["WORLD_SIZE"]
        sys.exit(
            f"{options.schedule.name} has {needed} devices, but there are {there} ranks: start {needed} of them, nodes "
            "times processes a node, or give another schedule"
        )
    job = prepare(options.schedule, **options.settings)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        progress = np.memmap(Path(folder, "progress"), np.int64, "w+", shape=(6,))
        me = Rank(job, env["RANK"], *local, progress)
        if env["RANK"] == 0:
            print(f"device: {me.device_text}", flush=True)
        me.connect(None if "RANK" in os.environ else Path(folder, "rendezvous"))
        me.build()
        found = gather(me, me.run())
        del progress
    if found:
        result = RunResult.from_run(job, found)
        print(result.summary())
        if options.save:
            result.save(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
