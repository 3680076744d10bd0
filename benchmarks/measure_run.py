"""Measure a real pipeline: PyTorch's own 1F1B or GPipe, a process a device, whose passes sleep for a given time.

A pass that sleeps takes the same time on every device and needs no processor, so that a small machine can run more
processes than it has cores; schedule, processes and messages are real. From the repository's root::

    python -m benchmarks.measure_run 1f1b --devices 4 --microbatches 8 --forward-ms 20 --backward-ms 40 --out run.json

Other work on the machine disturbs the times: see that the load average is low first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import pplab

RUNNERS = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
WARM_UPS, STEPS = 3, 15


class Asleep(torch.autograd.Function):
    """The identity, which sleeps ``forward`` seconds on the way there and ``backward`` seconds on the way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        ctx.seconds = backward
        time.sleep(forward)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(ctx.seconds)
        return gradient, None, None


class EmulatedLayers(torch.nn.Module):
    """A pass that sleeps, and one weight: without it the first stage would have no gradient to compute."""

    def __init__(self, forward: float, backward: float) -> None:
        super().__init__()
        self.seconds = forward, backward
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Asleep.apply(x * self.weight, *self.seconds)


class TimedStage(PipelineStage):
    """A stage that notes its passes as (kind, micro-batch, start, end); messages and the loss lie outside them."""

    spans: list[tuple[str, int, float, float]]

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        output = super().forward_one_chunk(fwd_chunk_id, *args, **options)
        self.spans.append(("F", fwd_chunk_id, start, time.perf_counter()))
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **options: Any) -> None:
        start = time.perf_counter()
        super().backward_one_chunk(bwd_chunk_id, *args, **options)
        self.spans.append(("B", bwd_chunk_id, start, time.perf_counter()))


def work(rank: int, schedule: pplab.Schedule, forward: float, backward: float, folder: Path) -> None:
    """Run every step as one rank; store what was measured as (STEPS, ops of the rank, start and end)."""
    torch.set_num_threads(1)
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    world, meeting = schedule.num_devices, (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", meeting, timedelta(seconds=60), world_size=world, rank=rank)
    batch = torch.ones(schedule.num_microbatches, 8)
    like = torch.ones(1, 8, requires_grad=True)  # what one micro-batch looks like between two stages
    layers = EmulatedLayers(forward, backward)
    stage = TimedStage(layers, rank, world, torch.device("cpu"), input_args=like, output_args=like)
    runner = RUNNERS[schedule.name](stage, len(batch), loss_fn=torch.nn.functional.mse_loss)
    times = []
    for _ in range(WARM_UPS + STEPS):
        layers.zero_grad()
        stage.spans = []
        dist.barrier()
        runner.step(*[batch] * stage.is_first, **{"target": torch.zeros_like(batch)} if stage.is_last else {})
        if [(rank, *span[:2]) for span in stage.spans] != list(schedule.rows[rank]):
            raise RuntimeError(f"rank {rank} ran another order than {schedule!r}: {stage.spans}")
        times.append([span[2:] for span in stage.spans])
    np.save(folder / f"{rank}.npy", times[WARM_UPS:])
    dist.destroy_process_group()


def measure(schedule: pplab.Schedule, forward: float, backward: float) -> list[pplab.Timeline]:
    """Run a schedule of RUNNERS with these seconds a pass: a measured timeline a step, shortest first, from 0 on."""
    with tempfile.TemporaryDirectory() as name:
        mp.spawn(work, args=(schedule, forward, backward, Path(name)), nprocs=schedule.num_devices, daemon=True)
        times = np.concatenate([np.load(Path(name, f"{rank}.npy")) for rank in range(schedule.num_devices)], axis=1)
    times = np.round(times - times.min(axis=(1, 2), keepdims=True), 6)  # perf_counter is one clock for all processes
    steps = [pplab.Timeline(schedule, start, end, measured=True) for start, end in times.swapaxes(1, 2)]
    return sorted(steps, key=pplab.makespan)


def main() -> None:
    """Measure, print the steps beside the prediction from the nominal times, store the step of median length."""
    parser = argparse.ArgumentParser(description="Measure PyTorch's 1F1B or GPipe with passes that sleep.")
    parser.add_argument("name", choices=RUNNERS)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--forward-ms", type=float, default=20.0)
    parser.add_argument("--backward-ms", type=float, default=40.0)
    parser.add_argument("--out", type=Path, help="JSON file for the step of median length")
    a = parser.parse_args()
    fifo = {"backward_order": "fifo"} if a.name == "gpipe" else {}  # PyTorch's GPipe: first micro-batch first
    schedule = pplab.SCHEDULES[a.name](a.devices, a.microbatches, **fifo)
    predicted = pplab.simulate(schedule, pplab.Costs(forward=a.forward_ms / 1e3, backward=a.backward_ms / 1e3))
    load = os.getloadavg() if hasattr(os, "getloadavg") else "unknown"
    steps = measure(schedule, a.forward_ms / 1e3, a.backward_ms / 1e3)
    median = steps[STEPS // 2]
    shortest, middle, longest, expected = (1e3 * pplab.makespan(t) for t in (steps[0], median, steps[-1], predicted))
    print(f"{schedule!r}, PyTorch {torch.__version__}, {STEPS} steps")
    print(f"step       min {shortest:.1f}, median {middle:.1f}, max {longest:.1f} ms")
    print(f"predicted  {expected:.1f} ms: {expected / middle - 1:+.1%} against the median")
    print(f"bubble     measured {pplab.bubble_fraction(median):.4f}, predicted {pplab.bubble_fraction(predicted):.4f}")
    print(f"load       {load} over 1, 5, 15 minutes before the start, {os.cpu_count()} cores")
    if a.out:
        pplab.write_json(median, a.out)


if __name__ == "__main__":
    main()
