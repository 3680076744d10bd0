"""Batch arithmetic: what makes up a batch, the ways to a global batch, and how fast a matmul of so many rows is."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from pplab.costs import Costs
from pplab.metrics import bubble_fraction, peak_in_flight
from pplab.presets import check_whole
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate

_MOST_PASSES = 2**18  # D · M that is simulated: less than a second
_MOST_SAMPLES = 10**9  # in a global batch: beyond, its divisors take too long
_MOST_BYTES = 2**30  # of the arrays of a matmul


class BatchLayout(NamedTuple):
    """One way to a global batch: R replicas of the pipeline, each with M micro-batches of B samples.

    ``bubble``: the idle share, 0 to 1. ``in_flight``: micro-batches (chunks of them, where a device has several stages)
    on the device that holds most. ``activation_bytes``: what their input tensors take there, one a stage.
    """

    num_microbatches: int
    micro_batch_size: int
    num_replicas: int
    bubble: float
    in_flight: int
    activation_bytes: int


class MatmulSpeed(NamedTuple):
    """A product of (rows × hidden_size) and (hidden_size × hidden_size): median ``seconds``, and FLOP/s achieved."""

    rows: int
    seconds: float
    flops_per_second: float


def total_batch(num_microbatches: int, micro_batch_size: int, num_replicas: int = 1) -> int:
    """Samples in one step: M · B of one pipeline, R · M · B of R replicas. Raises ValueError for sizes below 1."""
    check_whole(num_microbatches=num_microbatches, micro_batch_size=micro_batch_size, num_replicas=num_replicas)
    return int(num_replicas) * int(num_microbatches) * int(micro_batch_size)


def batch_layouts(
    global_batch: int,
    num_devices: int,
    total_devices: int | None = None,
    micro_batch_size: int | None = None,
    num_replicas: int | None = None,
    schedule: str = "1f1b",
    costs: Costs | None = None,
    seq_len: int = 1,
    hidden_size: int = 1,
    bytes_per_element: int = 2,
) -> list[BatchLayout]:
    """Every (M, B, R) with R · M · B = global_batch on pipelines of num_devices, the smallest bubble first.

    ``total_devices``: D · R may not be more. ``micro_batch_size`` and ``num_replicas`` fix B and R. Bubble and
    ``in_flight`` are those of the simulated ``schedule`` (a name of SCHEDULES), at F = 1, B = 2 unless ``costs`` says
    otherwise: for 1F1B without ``costs`` by (D − 1)/(M + D − 1) and min(M, D). Bytes are in_flight · B · T · H ·
    bytes_per_element; with T and H left at 1 they count samples. Sizes that the schedule refuses are left out.
    Raises ValueError where there is no layout, naming the nearest global batch that has one, and for sizes below 1.
    """
    given = {"total_devices": total_devices, "micro_batch_size": micro_batch_size, "num_replicas": num_replicas}
    check_whole(global_batch=global_batch, num_devices=num_devices, **{k: v for k, v in given.items() if v is not None})
    global_batch, num_devices = int(global_batch), int(num_devices)
    if global_batch > _MOST_SAMPLES:
        raise ValueError(f"global_batch is {global_batch!r:.40}: give at most {_MOST_SAMPLES:,} samples")
    check_whole(seq_len=seq_len, hidden_size=hidden_size, bytes_per_element=bytes_per_element)
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r:.40}: choose one of {', '.join(SCHEDULES)}")
    most = _most_replicas(num_devices, total_devices, num_replicas)
    _check_divides(global_batch, micro_batch_size, num_replicas)
    divisors = _divisors(global_batch)
    sizes = [
        (m, b, global_batch // (m * b))
        for m in divisors
        for b in divisors
        if global_batch // m % b == 0
        and (micro_batch_size or b) == b
        and (num_replicas or global_batch // (m * b)) == global_batch // (m * b) <= most
    ]
    traits = _simulate_each(schedule, costs, num_devices, sorted({m for m, _, _ in sizes}))
    tensor = seq_len * hidden_size * bytes_per_element
    layouts = [BatchLayout(m, b, r, *traits[m], traits[m][1] * b * tensor) for m, b, r in sizes if m in traits]
    return sorted(layouts, key=lambda row: (row.bubble, row.activation_bytes, row.num_replicas))


def frontier(layouts: Iterable[BatchLayout]) -> list[BatchLayout]:
    """The layouts worth a choice, the smallest bubble first: none has both a smaller bubble and fewer activation bytes.

    Of those that tie in one of the two, a layout drops out where another with no fewer replicas, so no slower for want
    of devices, is as good in both and better in something.
    """
    kept: list[BatchLayout] = []
    for row in sorted(set(layouts), key=lambda row: (row.bubble, row.activation_bytes, -row.num_replicas)):
        if not any(_beats(other, row) for other in kept):  # what beats a row is ahead of it, and one such is kept
            kept.append(row)
    return kept


def _beats(a: BatchLayout, b: BatchLayout) -> bool:
    """Whether a is better in both bubble and memory; or as good in both, with no fewer replicas, and better in one."""
    if a.bubble < b.bubble and a.activation_bytes < b.activation_bytes:
        return True
    no_worse = a.bubble <= b.bubble and a.activation_bytes <= b.activation_bytes and a.num_replicas >= b.num_replicas
    return no_worse and a[2:4] + a[5:] != b[2:4] + b[5:]


def measure_matmul(
    rows: Iterable[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    hidden_size: int = 512,
    repeats: int = 9,
    seed: int = 0,
    most_seconds: float = 1.5,
) -> list[MatmulSpeed]:
    """Time (rows × hidden_size) · (hidden_size × hidden_size) in float32 on this machine, for each number of rows.

    A micro-batch of B sequences of T tokens gives a layer's product B · T rows, so that one long sequence can fill it
    (E14, E15). Seconds are the median of ``repeats``, fewer where ``most_seconds`` for all would not do; one product is
    2 · rows · hidden_size² FLOP. Raises ValueError for sizes below 1, no rows, or arrays of more than 1 GiB.
    """
    counts = list(rows)
    check_whole(hidden_size=hidden_size, repeats=repeats)
    for count in counts:
        check_whole(rows=count)
    if not counts:
        raise ValueError("rows is empty: give one number of rows or more, such as [1, 16, 256]")
    if 4 * hidden_size * (hidden_size + 2 * max(counts)) > _MOST_BYTES:
        raise ValueError(
            f"{max(counts)} rows at hidden_size {hidden_size} need over 1 GiB: give fewer, or a smaller one"
        )
    draw = np.random.default_rng(seed)
    weights = draw.standard_normal((hidden_size, hidden_size), np.float32)
    share = most_seconds / len(counts)
    speeds = []
    for count in counts:
        seconds = _time_product(draw.standard_normal((count, hidden_size), np.float32), weights, repeats, share)
        speeds.append(MatmulSpeed(count, seconds, 2 * count * hidden_size**2 / seconds))
    return speeds


def _time_product(x: np.ndarray, weights: np.ndarray, repeats: int, most_seconds: float) -> float:
    out = np.empty_like(x)
    began = perf_counter()
    np.matmul(x, weights, out=out)  # the first one fills caches and starts threads, and is not counted
    times: list[float] = []
    while len(times) < repeats and (not times or perf_counter() - began < most_seconds):
        start = perf_counter()
        np.matmul(x, weights, out=out)
        times.append(perf_counter() - start)
    return max(median(times), 1e-9)  # a clock may be too coarse to see one row


def _simulate_each(
    schedule: str, costs: Costs | None, num_devices: int, counts: list[int]
) -> dict[int, tuple[float, int]]:
    """Bubble and most micro-batches in flight for each number of micro-batches that the schedule takes."""
    if num_devices * counts[-1] > _MOST_PASSES:
        raise ValueError(
            f"{counts[-1]} micro-batches on {num_devices} devices are too many to simulate: fix a larger "
            "micro_batch_size or num_replicas"
        )
    if schedule == "1f1b" and costs is None:  # as simulated, which the tests check, but quick enough for a slider
        return {m: (1.0 - m / (m + num_devices - 1), min(m, num_devices)) for m in counts}
    traits: dict[int, tuple[float, int]] = {}
    refusal = ""
    for count in counts:
        try:
            built = SCHEDULES[schedule](num_devices, count)
        except ValueError as error:
            refusal = str(error)
            continue
        t = simulate(built, costs)
        traits[count] = bubble_fraction(t), int(peak_in_flight(t).max())
    if not traits:
        raise ValueError(f"{schedule} takes none of {counts} micro-batches on {num_devices} devices: {refusal}")
    return traits


def _most_replicas(num_devices: int, total_devices: int | None, num_replicas: int | None) -> float:
    """How many replicas the devices are enough for; raises ValueError where that is less than asked for, or none."""
    most = float("inf") if total_devices is None else total_devices // num_devices
    wanted = num_replicas or 1
    if most < wanted:
        raise ValueError(
            f"{total_devices} devices in all are too few for {wanted} pipeline{'s' * (wanted > 1)} of {num_devices}: "
            f"give {wanted * num_devices} or more, or shorter pipelines"
        )
    return most


def _check_divides(global_batch: int, micro_batch_size: int | None, num_replicas: int | None) -> None:
    step = (micro_batch_size or 1) * (num_replicas or 1)
    if global_batch % step:
        below, above = global_batch // step * step, -(-global_batch // step) * step
        nearest = below if below and global_batch - below <= above - global_batch else above
        fixed = " and ".join(
            f"{name} {value}"
            for name, value in (("num_replicas", num_replicas), ("micro_batch_size", micro_batch_size))
            if value
        )
        raise ValueError(
            f"no layout gives a global batch of {global_batch} with {fixed}, since it must be a multiple of {step}: "
            f"the nearest that does is {nearest}"
        )


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
