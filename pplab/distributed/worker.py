"""One rank of a run: ``python -m pplab.distributed.worker``, under torchrun or a launcher of pplab's.

torchrun --nnodes N --nproc-per-node G -m pplab.distributed.worker 1f1b --microbatches 8 --save run.json
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pplab.distributed import reference, runners
from pplab.distributed.hand_written import HandWritten1F1B
from pplab.distributed.models import build_model, check_boundaries
from pplab.distributed.progress import DONE, open_progress, say_where
from pplab.distributed.recorder import LiveActivations, Recorder
from pplab.distributed.workloads import Emulated, Workload, from_json
from pplab.schedule import Schedule

PEER_ERRORS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Timed out waiting",
    "Broken pipe",
    "Socket Timeout",
)


def choose_device(rank: int, local_rank: int, local_world: int, engine: str) -> tuple[torch.device, str, str]:
    """The device of a rank, the backend, and why, in words."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if engine == "by-hand" and count:
        return (
            torch.device("cpu"),
            "gloo",
            "CPU, gloo: the worker written by hand matches messages by tags, NCCL does not",
        )
    if count and count >= local_world:
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank), "nccl", f"a GPU a rank ({torch.cuda.get_device_name()}), NCCL"
    if count:
        return (
            torch.device("cpu"),
            "gloo",
            f"CPU, gloo: {local_world} ranks, but {count} GPU, and NCCL wants one a rank",
        )
    return torch.device("cpu"), "gloo", "CPU, gloo: no GPU is there"


class Rank:
    """One rank: its stages, its runner, and the steps that it runs."""

    def __init__(self, job: dict[str, Any], rank: int, local_rank: int, local_world: int, progress: np.ndarray) -> None:
        self.job, self.rank, self.progress = job, rank, progress
        self.schedule = Schedule(job["rows"], name=job["name"], pairs=job["pairs"])
        self.workload: Workload = from_json(job["workload"])
        self.engine: str = job["engine"]
        self.device, self.backend, self.device_text = choose_device(rank, local_rank, local_world, self.engine)

    def connect(self, init_method: str) -> None:
        """Meet the other ranks."""
        options: dict[str, Any] = {"device_id": self.device} if self.backend == "nccl" else {}
        dist.init_process_group(
            self.backend,
            init_method,
            timedelta(seconds=self.job["timeout"] + 5),  # the launcher, which knows more, is to see it first
            world_size=self.schedule.num_devices,
            rank=self.rank,
            **options,
        )

    def build(self) -> None:
        """The stages of this rank, the batch, the runner."""
        s, model = self.schedule, build_model(self.workload)
        self.model, mine = model, s.placement[self.rank]
        self.modules = {k: model.stage(k, s.num_stages).to(self.device) for k in mine}
        self.batch, self.targets = (t.to(self.device) for t in model.batch(s.num_microbatches))
        counted = reference.count_tokens(self.targets)
        seconds = {k: self.workload.seconds(k) for k in mine} if isinstance(self.workload, Emulated) else {}
        self.recorder = Recorder(self.device, self.progress, seconds)
        like = {k: model.boundary(k, s.num_stages).to(self.device) for k in (*mine, *(k + 1 for k in mine))}

        def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return model.loss(output, target, counted)

        if self.engine == "by-hand":
            k = mine[0]
            self.runner: Any = HandWritten1F1B(self.modules[k], (like[k], like[k + 1]), loss, self.recorder)
            return
        self.stages = [
            runners.TimedStage(
                self.recorder,
                self.modules[k],
                k,
                s.num_stages,
                self.device,
                input_args=like[k],
                output_args=like[k + 1],
            )
            for k in mine
        ]
        self.runner = runners.build_runner(self.engine, s, self.stages, loss)

    def step(self, number: int) -> tuple[list[tuple[int, str, int, float, float]], list[float] | None]:
        """Run one step from no gradients; its spans and losses."""
        for module in self.modules.values():
            module.zero_grad()
        dist.barrier()
        self.recorder.begin_step(number)
        if self.engine == "by-hand":
            losses = self.runner.step(self.batch, self.targets, self.schedule.num_microbatches)
        else:
            losses = runners.step(self.runner, self.stages, self.batch, self.targets)
        return self.recorder.spans(), losses

    def run(self) -> dict[str, Any]:
        """All steps; what this rank has measured, ready to be gathered."""
        out: dict[str, Any] = {"host": socket.gethostname(), "device": self.device_text}
        if self.job["check"]:
            out |= self.check()
        parameters = [p for module in self.modules.values() for p in module.parameters()]
        optimizer = torch.optim.SGD(parameters, self.workload.learning_rate)
        out["spans"], out["losses"] = [], []
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        for number in range(self.job["warm_ups"] + self.job["steps"]):
            if number == self.job["warm_ups"]:
                before = _used()
            spans, losses = self.step(number)
            optimizer.step()
            if number >= self.job["warm_ups"]:
                out["spans"].append(spans)
                out["losses"].append(losses and sum(losses))
        dist.barrier()
        out["used"] = [b - a for a, b in zip(before, _used(), strict=True)]
        out["clock"] = time.perf_counter()  # read at the same moment by all ranks, nearly
        out["allocator"] = torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None
        return out

    def check(self) -> dict[str, Any]:
        """Two steps from the same weights: gradients, their bits, what was alive, what crossed the boundaries."""
        kept = [p for module in self.modules.values() for p in module.parameters()]
        self.recorder.live = LiveActivations([*kept, self.batch, self.targets])
        self.recorder.kept = {}
        self.step(-2)
        live, self.recorder.live = self.recorder.live, None
        first = reference.gradients_of(self.modules)
        between, self.recorder.kept = self.recorder.kept, None
        self.step(-1)
        return {
            "gradients": first,
            "between": {key: t.cpu() for key, t in between.items()},
            "same_bits": reference.digest(first) == reference.digest(reference.gradients_of(self.modules)),
            "live": (live.peak_chunks, live.peak_bytes, dict(live.chunk_bytes)),
        }


def _used() -> tuple[float, float, float]:
    """The time, and the seconds of cores that this process, and everybody on the machine, has used (Linux, else 0)."""
    everybody = 0.0
    if sys.platform == "linux":
        fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
        idle, waiting = int(fields[3]), int(fields[4])
        everybody = (sum(map(int, fields[:8])) - idle - waiting) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), time.process_time(), everybody


def _load(everybody: list[dict[str, Any]]) -> float | None:
    """How many cores other work kept busy meanwhile, on the machine of rank 0."""
    wall, _, total = everybody[0]["used"]
    ours = sum(one["used"][1] for one in everybody if one["host"] == everybody[0]["host"])
    return max(0.0, (total - ours) / wall) if total else None


def gather(rank: Rank, own: dict[str, Any]) -> dict[str, Any] | None:
    """Everything that the ranks have measured, on rank 0, as plain JSON; None on the others."""
    everybody: list[Any] | None = [None] * rank.schedule.num_devices if rank.rank == 0 else None
    dist.gather_object(own, everybody)
    if everybody is None:
        return None
    offset = [0.0] * len(everybody)
    if len({one["host"] for one in everybody}) > 1:  # each machine has its own clock
        offset = [everybody[0]["clock"] - one["clock"] for one in everybody]
    result: dict[str, Any] = {
        "spans": [
            [[(*a[:3], a[3] + shift, a[4] + shift) for a in step] for step in one["spans"]]
            for one, shift in zip(everybody, offset, strict=True)
        ],
        "losses": next(one["losses"] for one in everybody if one["losses"] and one["losses"][0] is not None),
        "device": everybody[0]["device"],
        "hosts": len({one["host"] for one in everybody}),
        "load": _load(everybody),
        "allocator": [one["allocator"] for one in everybody],
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    return result | (compare(rank, everybody) if rank.job["check"] else {})


def compare(rank: Rank, everybody: list[dict[str, Any]]) -> dict[str, Any]:
    """The gradients and boundary tensors of the run against one process."""
    one = reference.OneProcess(rank.model, rank.schedule, rank.device)
    mine: reference.Gradients = {k: g for part in everybody for k, g in part["gradients"].items()}
    # PyTorch's own classes choose their order, so it is read from what ran.
    accumulated = one.accumulated(reference.orders(part["spans"][0] for part in everybody))
    between = {key: t for part in everybody for key, t in part["between"].items()}
    boundaries = {
        f"{k}{kind}": float((between[k, kind] - one.between[k, kind].cpu()).abs().max()) for k, kind in sorted(between)
    }
    return {
        "gradient_error": reference.largest_difference(mine, accumulated),
        "bit_equal": reference.digest(mine) == reference.digest(accumulated),
        "whole_batch_error": reference.relative_difference(mine, one.whole()),
        "same_bits_twice": all(part["same_bits"] for part in everybody),
        "boundary_errors": boundaries,
        "live_chunks": [part["live"][0] for part in everybody],
        "live_bytes": [part["live"][1] for part in everybody],
        "chunk_bytes": [size for _, size in sorted({k: v for p in everybody for k, v in p["live"][2].items()}.items())],
    }


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
        me.connect((folder / "rendezvous").as_uri())
        me.build()
        result = gather(me, me.run())
        if result:
            write_whole(folder / "result.json", result)
        progress[0] = DONE
        dist.barrier()
        dist.destroy_process_group()
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
    job = prepare(options.schedule, **options.settings)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        progress = np.memmap(Path(folder, "progress"), np.int64, "w+", shape=(6,))
        me = Rank(job, env["RANK"], *local, progress)
        if env["RANK"] == 0:
            print(f"device: {me.device_text}", flush=True)
        me.connect("env://" if "RANK" in os.environ else Path(folder, "rendezvous").as_uri())
        me.build()
        found = gather(me, me.run())
        del progress
    if found:
        result = RunResult.from_run(job, found)
        print(result.summary())
        if options.save:
            result.save(options.save)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
