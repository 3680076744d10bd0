"""The chapter's own examples, with the numbers that it prints, faults included; and what is true beside each.

Functions without ``true_`` in their name compute what the chapter computes. Two of its errata live here:

E2: ``simulate_gpipe`` and ``simulate_1f1b`` count passes one after another, as if one device did them all.
    GPipe therefore always reads 100%, and 1F1B leaves most of its warm-up out and so passes 100%.
E3: ``estimate_activation_memory`` sets GPipe's activations on all stages against those of 1F1B on one
    stage; per device GPipe holds M micro-batches and 1F1B min(M, D − k), a ratio of M/D, not M.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from pplab.costs import Costs
from pplab.metrics import peak_in_flight, utilization
from pplab.numeric import MicroBatch, PipelineStage
from pplab.presets import check_number
from pplab.schedules import SCHEDULES
from pplab.schedules._sizes import check_sizes
from pplab.simulate import simulate

__all__ = [
    "MicroBatch",
    "PipelineStage",
    "bubble_formula",
    "comparison_table",
    "estimate_activation_memory",
    "message_bytes",
    "simulate_1f1b",
    "simulate_gpipe",
    "stage_bytes",
    "transfer_time",
    "true_activation_memory",
    "true_utilization",
]
_SAMPLES = 8  # sequences in a micro-batch of the chapter's simulation


def message_bytes(micro_batch_size: int, seq_len: int, hidden_size: int, bytes_per_element: int = 2) -> int:
    """Bytes that cross a cut for one micro-batch, one way: B · T · H · bytes_per_element (2 for bf16)."""
    sizes = dict(micro_batch_size=micro_batch_size, seq_len=seq_len, hidden_size=hidden_size)
    return prod(check_sizes(**sizes, bytes_per_element=bytes_per_element))


def transfer_time(num_bytes: float, bandwidth: float) -> float:
    """Seconds that a message takes at a bandwidth in bytes a second. Raises ValueError for senseless ones.

    The chapter takes NVLink's 600 GB/s, which adds both directions: a message goes one way, at half of it (E1).
    """
    check_number("num_bytes", num_bytes)
    check_number("bandwidth", bandwidth, positive=True)
    return num_bytes / bandwidth


def stage_bytes(num_parameters: float, num_stages: int, bytes_per_parameter: float = 2) -> float:
    """Bytes that each of equal stages stores: bytes_per_parameter · P / D (2 bf16 weights, 14 with Adam's states)."""
    check_sizes(num_stages=num_stages)
    check_number("num_parameters", num_parameters)
    check_number("bytes_per_parameter", bytes_per_parameter)
    return bytes_per_parameter * num_parameters / num_stages


def bubble_formula(num_devices: int, num_microbatches: int, schedule: str = "1f1b", num_chunks: int = 1) -> float:
    """(D − 1) / (V · M + D − 1): the bubble fraction with equal stages and no hop; naive's is 1 − 1/D.

    GPipe's and 1F1B's with one chunk a device; with V = ``num_chunks`` and M ≥ D that of interleaved 1F1B, looped BFS
    and forward only; pipedream's over a whole run of M. Raises ValueError for other schedules.
    """
    num_devices, num_microbatches, num_chunks = check_sizes(
        num_devices=num_devices, num_microbatches=num_microbatches, num_chunks=num_chunks
    )
    known = ("naive", "gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs", "forward-only", "pipedream")
    if schedule not in known:
        raise ValueError(f"there is a formula for {', '.join(known)}, not for {schedule!r:.40}")
    at_once = 1 if schedule == "naive" else num_chunks * num_microbatches
    return (num_devices - 1) / (at_once + num_devices - 1)


class _Log:
    """The chapter's bookkeeping: stages, and a step for each pass, one after another."""

    def __init__(self, schedule: str, num_stages: int, num_microbatches: int, hidden_size: int) -> None:
        check_sizes(num_stages=num_stages, num_microbatches=num_microbatches, hidden_size=hidden_size)
        self.schedule = schedule
        self.stages = [PipelineStage(k, 4, hidden_size) for k in range(num_stages)]
        self.batches = [MicroBatch(m, np.random.randn(_SAMPLES, hidden_size)) for m in range(num_microbatches)]
        self.passes: list[tuple[str, int, int]] = []

    def forward(self, stages: Iterable[int], m: int) -> None:
        """Run a micro-batch forward through some stages, a step each."""
        for k in stages:
            self.batches[m].activations = self.stages[k].forward(self.batches[m]).activations
            self.passes.append(("F", k, m))

    def backward(self, stages: Iterable[int], m: int) -> None:
        """Run a micro-batch backward through some stages, a step each, from a gradient of ones."""
        batch = self.batches[m]
        if batch.gradients is None:
            batch.gradients = np.ones_like(batch.activations)
        for k in stages:
            batch.gradients = self.stages[k].backward(batch).gradients
            self.passes.append(("B", k, m))

    def result(self) -> dict[str, Any]:
        """The chapter's result: its steps, and its utilisation, useful passes over steps."""
        steps, useful = len(self.passes), 2 * len(self.stages) * len(self.batches)
        return {
            "schedule": self.schedule,
            "total_time_steps": steps,
            "bubble_steps": max(0, steps - useful),
            "utilization": useful / steps,
            "stages": self.stages,
            "schedule_log": self.passes,
        }


def simulate_gpipe(num_stages: int, num_microbatches: int, hidden_size: int) -> dict[str, Any]:
    """The chapter's GPipe simulation, with its result keys; its utilisation is 100% whatever the sizes (E2).

    Passes are counted one after another, so no device ever waits. ``true_utilization`` gives M / (M + D − 1).
    """
    log = _Log("GPipe", num_stages, num_microbatches, hidden_size)
    for k in range(num_stages):
        for m in range(num_microbatches):
            log.forward([k], m)
    for k in reversed(range(num_stages)):
        for m in reversed(range(num_microbatches)):
            log.backward([k], m)
    return log.result()


def simulate_1f1b(num_stages: int, num_microbatches: int, hidden_size: int) -> dict[str, Any]:
    """The chapter's 1F1B simulation, with its result keys; its utilisation passes 100% (E2).

    The first w = min(D, M) micro-batches run w(w + 1)/2 forwards instead of w · D, so there are fewer steps than
    useful passes, and the bubble, negative, is cut off at 0. ``true_utilization`` gives M / (M + D − 1).
    """
    log = _Log("1F1B", num_stages, num_microbatches, hidden_size)
    warm_up = min(num_stages, num_microbatches)
    for m in range(warm_up):
        log.forward(range(m + 1), m)
    for m in range(num_microbatches):
        if m + warm_up < num_microbatches:
            log.forward(range(num_stages), m + warm_up)
        log.backward(reversed(range(num_stages)), m)
    return log.result()


def true_utilization(schedule: str, num_devices: int, num_microbatches: int) -> float:
    """The share of device time in which a schedule computes, simulated with equal passes: M / (M + D − 1) for both."""
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r:.40}: choose one of {', '.join(SCHEDULES)}")
    return utilization(simulate(SCHEDULES[schedule](num_devices, num_microbatches), Costs(backward=1.0)))


def comparison_table(num_stages: int = 4, hidden_size: int = 64, counts: Iterable[int] = (1, 2, 4, 8, 16, 32)) -> str:
    """The chapter's printed comparison, with a column that it lacks: the true utilisation."""
    lines = [f"{'M':>3} | {'GPipe util':>10} | {'1F1B util':>9} | {'bubble formula':>14} | {'true utilisation':>16}"]
    lines.append("-" * len(lines[0]))
    for m in counts:
        gpipe, one = (f(num_stages, m, hidden_size)["utilization"] for f in (simulate_gpipe, simulate_1f1b))
        true = true_utilization("1f1b", num_stages, m)
        lines.append(f"{m:3} | {gpipe:10.1%} | {one:9.1%} | {bubble_formula(num_stages, m):14.1%} | {true:16.1%}")
    return "\n".join(lines)


def estimate_activation_memory(
    num_stages: int,
    num_microbatches: int,
    micro_batch_size: int,
    seq_len: int,
    hidden_size: int,
    bytes_per_element: int = 2,
) -> dict[str, float]:
    """The chapter's estimate in GiB, with its result keys (it writes GB), and its "M times cheaper" (E3).

    One boundary tensor a stage and micro-batch; GPipe summed over all stages, 1F1B on one of them.
    ``true_activation_memory`` compares like with like.
    """
    num_stages, num_microbatches = check_sizes(num_stages=num_stages, num_microbatches=num_microbatches)
    tensor = message_bytes(micro_batch_size, seq_len, hidden_size, bytes_per_element) / 2**30
    return {
        "gpipe_gb": num_microbatches * num_stages * tensor,
        "fb1b_gb": num_stages * tensor,
        "reduction_factor": num_microbatches,
    }


def true_activation_memory(
    num_stages: int,
    num_microbatches: int,
    micro_batch_size: int,
    seq_len: int,
    hidden_size: int,
    bytes_per_element: int = 2,
) -> dict[str, np.ndarray]:
    """The same tensors counted device by device, in GiB at each device's peak: keys gpipe and 1f1b, (num_stages,) each.

    In-flight counts are read off the simulated schedules. The tensors are still the chapter's one a stage;
    what a backward really needs is much more (E4).
    """
    tensor = message_bytes(micro_batch_size, seq_len, hidden_size, bytes_per_element) / 2**30
    return {
        name: peak_in_flight(simulate(SCHEDULES[name](num_stages, num_microbatches))) * tensor
        for name in ("gpipe", "1f1b")
    }
