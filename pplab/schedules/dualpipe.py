"""DualPipe and DualPipeV: micro-batches from both ends, forwards overlapped with backwards (DeepSeek-V3 2024)."""

import numpy as np

from pplab.placement import Placement, check_placement
from pplab.schedule import Schedule
from pplab.schedules._sizes import check_even, check_two_chunks


def dualpipe(num_devices: int, num_microbatches: int, num_chunks: int = 2) -> Schedule:
    """Half of the micro-batches go down from device 0, the others up from the last device, past one another.

        device 0   0F0 1F2 0F1 1B2 1F3&0B0 1B3 0I1 0W1
        device 1   0F2 1F0 0F3 1B0 1F1&0B2 1B1 0I3 0W3

    Stage k stands on devices k and D − 1 − k: two copies of all weights, whose gradients have to be added up after
    the last pass, which no time here includes. Micro-batches M/2 to M − 1 go up. A forward of one direction and a
    backward of the other run as one (``pairs``), so that each hides the other's messages; near the ends backwards
    are split, and Ws fill the bubble. With F = I = W the device that idles most idles (D/2 − 1)(F&B + B − 3W), F&B a
    pair; each holds up to D + 1 micro-batches. DeepSeek-AI 2024, DeepSeek-V3 Technical Report (arXiv 2412.19437),
    section 3.2.1. Raises ValueError for sizes below 1, too large ones, odd ones, and less than 2D micro-batches.
    """
    num_devices, num_microbatches = check_two_chunks("dualpipe", num_devices, num_microbatches, num_chunks)
    near = _nearest(num_devices, num_microbatches)
    check_even("dualpipe", "stage k stands on devices k and D − 1 − k", near, num_devices=num_devices)
    _check_enough("dualpipe", num_devices, num_microbatches)
    check_even("dualpipe", "half of them go each way", near, num_microbatches=num_microbatches)
    half, each_way = num_devices // 2, num_microbatches // 2
    rows = [_row(rank, half, each_way) for rank in range(half)]
    device, kind, leg, microbatch, paired = _join(rows + rows[::-1])
    # Device D − 1 − k runs what device k does, with the other direction's micro-batches.
    mirrored = device >= half
    rank = np.where(mirrored, num_devices - 1 - device, device)
    stage = np.where(leg == 0, rank, num_devices - 1 - rank)
    microbatch = microbatch + each_way * ((leg == 1) != mirrored)
    return Schedule.from_columns(device, stage, kind, microbatch, paired, name="dualpipe")


def dualpipe_v(num_devices: int, num_microbatches: int, num_chunks: int = 2, placement: Placement = None) -> Schedule:
    """DualPipe folded in the middle: one copy of the weights, each device with a stage of both legs of a V.

        device 0   0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1 3F2&0B0     3B2 3F3&0B1 3B3 0I2 0W2 0I3 0W3
        device 1    .  1F0 2F0 1F1 2F1 1F2 2B0 2F2&1B0 1F3&2B1 2F3&1B1     2B2 1B2 2I3 1I3 2W3 1W3

    Device k has stages k and 2D − 1 − k and runs what DualPipe's device k of 2D runs: the leg down here is the
    direction down there, and the leg back the direction up. So with F = I = W of a stage the device that idles most
    idles (D − 1)(F&B + B − 3W), and each holds up to 2D + 1 chunks. The orders are those of PyTorch's
    ScheduleDualPipeV. README of the DualPipe repository (DeepSeek-AI 2025), after Sea AI Lab's cut-in-half.
    Raises ValueError for sizes below 1, too large ones, less than 2D micro-batches, and a placement that is no V.
    """
    num_devices, num_microbatches = check_two_chunks("dualpipe-v", num_devices, num_microbatches, num_chunks)
    check_placement("dualpipe-v", placement, "v", num_devices, num_chunks)
    _check_enough("dualpipe-v", num_devices, num_microbatches)
    rows = [_row(rank, num_devices, num_microbatches) for rank in range(num_devices)]
    device, kind, leg, microbatch, paired = _join(rows)
    stage = np.where(leg == 0, device, 2 * num_devices - 1 - device)
    return Schedule.from_columns(device, stage, kind, microbatch, paired, name="dualpipe-v")


def _nearest(num_devices: int, num_microbatches: int) -> str:
    """The nearest sizes that DualPipe takes: each even D beside the one given, with the next M that it takes."""
    devices = sorted({max(2, num_devices - num_devices % 2), num_devices + num_devices % 2})
    even = num_microbatches + num_microbatches % 2
    return " or ".join(f"num_devices={d} with num_microbatches={max(2 * d, even)}" for d in devices)


def _check_enough(name: str, num_devices: int, num_microbatches: int) -> None:
    least = 2 * num_devices
    if num_microbatches < least:
        raise ValueError(
            f"num_microbatches is {num_microbatches}: {name} needs 2 · num_devices = {least} or more, so that "
            f"forwards meet backwards to overlap with; take {least}, or fewer devices"
        )


def _row(rank: int, num_ranks: int, num_microbatches: int) -> tuple[np.ndarray, ...]:
    """What a rank runs: kind, leg (0 from the rank's end on, 1 back to it), micro-batch, paired.

    Rank k of R, with n = k + 1 and r = R − n, f and B side by side being a pair::

        F0 · 2r,  F0 F1 · n,  I1 W F1 · r,  f0 B1 f1 B0 · (M − 2R + n),  B1 f1 B0 · r,
        B1 B0 · n of which the last n are I,  W I0 · r,  W · n

    Passes of a leg and kind run in the order of the micro-batches, and each W is that of the oldest I left.
    """
    n, r = rank + 1, num_ranks - rank - 1
    main = "f0B1f1B0" * (num_microbatches - 2 * num_ranks + n)
    if not r:  # where the legs meet, the first forward would have to wait for the backward that it runs with
        main = "F0" + main[2:]
    last = "".join(kind + leg for kind, leg in zip("B" * n + "I" * n, "10" * n, strict=True))
    text = "F0" * 2 * r + "F0F1" * n + "I1W0F1" * r + main + "B1f1B0" * r + last + "W0I0" * r + "W0" * n
    letter, leg = np.array(list(text)).reshape(-1, 2).T
    leg, kind, microbatch = leg.astype(int), np.where(letter == "f", "F", letter), np.empty(len(leg), int)
    for kinds in ("F", "BI"):
        for which in (0, 1):
            microbatch[(leg == which) & np.isin(kind, list(kinds))] = np.arange(num_microbatches)
    for column in (leg, microbatch):
        column[kind == "W"] = column[kind == "I"]
    return kind, leg, microbatch, letter == "f"


def _join(rows: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """The rows' columns end to end, after the device of each entry."""
    device = np.repeat(np.arange(len(rows)), [len(row[0]) for row in rows])
    return device, *map(np.concatenate, zip(*rows, strict=True))
