"""One rank: its device, its stages, its runner, and the steps that it runs."""

from __future__ import annotations

import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pplab.distributed import reference, runners
from pplab.distributed.hand_written import HandWritten1F1B
from pplab.distributed.models import build_model
from pplab.distributed.recorder import LiveActivations, Recorder
from pplab.distributed.workloads import Emulated, Workload, from_json
from pplab.schedule import Schedule


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

    def connect(self, meeting: Path | None) -> None:
        """Meet the other ranks: at a file, or where the environment says.

        A store is made of the file's path, since in torch's ``file://`` address a space or # in it would not do.
        """
        options: dict[str, Any] = {"device_id": self.device} if self.backend == "nccl" else {}
        if meeting is None:
            options["init_method"] = "env://"
        else:
            options["store"] = dist.FileStore(str(meeting), self.schedule.num_devices)
        dist.init_process_group(
            self.backend,
            timeout=timedelta(seconds=self.job["timeout"] + 5),  # the launcher, which knows more, is to see it first
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

    def tick(self) -> None:
        """Tell the launcher that something goes on."""
        self.progress[5] += 1

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
