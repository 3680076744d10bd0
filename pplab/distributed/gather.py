"""What all ranks have measured, brought together on rank 0 and held against one process."""

from __future__ import annotations

import platform
from typing import Any

import torch
import torch.distributed as dist

from pplab.distributed import reference
from pplab.distributed.rank import Rank


def gather(rank: Rank, own: dict[str, Any]) -> dict[str, Any] | None:
    """Everything that the ranks have measured, on rank 0, as plain JSON; None on the others."""
    everybody: list[Any] | None = [None] * rank.schedule.num_devices if rank.rank == 0 else None
    dist.gather_object(own, everybody)
    dist.barrier()
    dist.destroy_process_group()  # the others may go, and leave their memory to the comparison
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
    one = reference.OneProcess(rank.model, rank.schedule, rank.device, rank.tick)
    mine: reference.Gradients = {k: g for part in everybody for k, g in part["gradients"].items()}
    # PyTorch's own classes choose their order, so it is read from what ran.
    accumulated = one.accumulated(reference.orders(part["spans"][0] for part in everybody))
    between = {key: t for part in everybody for key, t in part["between"].items()}
    boundaries = {
        f"{k}{kind}": float((between[k, kind] - one.between[k, kind].cpu()).abs().max()) for k, kind in sorted(between)
    }
    found = {
        "gradient_error": reference.largest_difference(mine, accumulated),
        "bit_equal": reference.digest(mine) == reference.digest(accumulated),
    }
    del accumulated  # the whole batch needs the room
    return found | {
        "whole_batch_error": reference.relative_difference(mine, one.whole()),
        "same_bits_twice": all(part["same_bits"] for part in everybody),
        "boundary_errors": boundaries,
        "live_chunks": [part["live"][0] for part in everybody],
        "live_bytes": [part["live"][1] for part in everybody],
        "chunk_bytes": [size for _, size in sorted({k: v for p in everybody for k, v in p["live"][2].items()}.items())],
    }


def _load(everybody: list[dict[str, Any]]) -> float | None:
    """How many cores other work kept busy meanwhile, on the machine of rank 0."""
    wall, _, total = everybody[0]["used"]
    ours = sum(one["used"][1] for one in everybody if one["host"] == everybody[0]["host"])
    return max(0.0, (total - ours) / wall) if total else None
