"""Choices: what a planner may choose from; layouts: every choice whose sizes divide, or why none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import numpy as np

from pplab.cluster import Cluster, check_recompute, nearest_multiple
from pplab.layouts import Layout, build, check_schedule
from pplab.model import TransformerModel
from pplab.presets import check_whole

Sizes = int | Sequence[int] | None  # one, some, or all that divide
_MOST_SEQUENCES = 16  # in a micro-batch, unless sizes are given
_ONE_CHUNK, _SEVERAL_CHUNKS = ("naive", "gpipe", "1f1b", "eager-1f1b"), ("interleaved-1f1b", "looped-bfs")


@dataclass(frozen=True)
class Choices:
    """What a planner may choose from; None leaves a size to it. Raises ValueError for what can never be chosen.

    micro_batch_size : up to 16 sequences unless given. across_nodes : tensor parallelism may leave a node.
    """

    tensor: Sizes = None
    pipeline: Sizes = None
    data: Sizes = None
    num_chunks: Sizes = None
    micro_batch_size: Sizes = None
    recompute: str | Sequence[str] = ("none", "selective", "full")
    schedules: str | Sequence[str] = ("gpipe", "1f1b", "interleaved-1f1b")
    across_nodes: bool = False

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "num_chunks", "micro_batch_size"):
            value = getattr(self, name)
            if value is not None:
                sizes = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
                _check_some(name, sizes)
                for size in sizes:
                    check_whole(**{name: size})
                object.__setattr__(self, name, tuple(sorted({int(size) for size in sizes})))
        for name, check in (("recompute", check_recompute), ("schedules", check_schedule)):
            value = getattr(self, name)
            values = (value,) if isinstance(value, str) else tuple(value)
            _check_some(name, values)
            for one in values:
                check(one)
            object.__setattr__(self, name, values)

    def of(self, name: str, legal: Sequence[int]) -> list[int]:
        """Those of the legal sizes that may be chosen."""
        wanted = getattr(self, name)
        return list(legal) if wanted is None else [size for size in wanted if size in legal]


def _check_some(name: str, values: tuple) -> None:
    if not values:
        raise ValueError(f"{name} is empty: give at least one to choose from, or leave it out")


def layouts(
    model: TransformerModel, cluster: Cluster, global_batch: int, seq_len: int, choices: Choices, split_sequence: bool
) -> Iterator[Layout]:
    """Every layout with tensor · pipeline · data = the cluster's devices whose sizes divide evenly.

    Tensor divides heads, key/value heads, ffn_size (and seq_len, if split) and lies in a node; pipeline · num_chunks
    divides the blocks; data · micro_batch_size the global batch. Interleaving has 2 chunks or more, others 1.
    Raises ValueError where there is none, naming what does not divide and the nearest that does.
    """
    devices = cluster.num_devices
    check_divisions(model, cluster, global_batch, seq_len, choices, split_sequence)
    for t, p, d in meshes(model, cluster, seq_len, choices, split_sequence):
        most = global_batch // d
        sizes = choices.of("micro_batch_size", _divisors(most)) if global_batch % d == 0 else []
        sizes = [b for b in sizes if choices.micro_batch_size is not None or b <= _MOST_SEQUENCES]
        for b in sizes:
            for schedule, v in _chunked(choices, model.num_layers // p, p, most // b):
                for recompute in choices.recompute:
                    yield Layout(t, p, devices // (t * p), v, b, most // b, recompute, schedule)


def meshes(
    model: TransformerModel, cluster: Cluster, seq_len: int, choices: Choices, split_sequence: bool
) -> list[tuple[int, int, int]]:
    """Every (tensor, pipeline, data) that makes up all devices, and to which the model can be cut."""
    devices = cluster.num_devices
    sizes = tensor_sizes(model, cluster, seq_len, choices.across_nodes, split_sequence)
    return [
        (t, p, devices // (t * p))
        for t in choices.of("tensor", _divisors(int(np.gcd.reduce(list(sizes.values())))))
        for p in choices.of("pipeline", [p for p in _divisors(devices // t) if model.num_layers % p == 0])
        if choices.of("data", [devices // (t * p)])
    ]


def tensor_sizes(
    model: TransformerModel, cluster: Cluster, seq_len: int, across_nodes: bool, split_sequence: bool
) -> dict[str, int]:
    """What the tensor-parallel degree must divide, by name."""
    sizes = {"devices": cluster.num_devices, "heads": model.num_heads, "key/value heads": model.num_kv_heads}
    sizes |= {"columns of ffn_size": model.ffn_size}
    sizes |= {"tokens of sequence parallelism": seq_len} if split_sequence else {}
    return sizes | ({} if across_nodes else {"devices a node (unless across_nodes=True)": cluster.devices_per_node})


def check_divisions(
    model: TransformerModel, cluster: Cluster, global_batch: int, seq_len: int, choices: Choices, split_sequence: bool
) -> None:
    """Raise ValueError where no layout is left, saying which size does not divide and the nearest that does."""
    sizes = tensor_sizes(model, cluster, seq_len, choices.across_nodes, split_sequence)
    _check_any("tensor", choices.tensor, sizes)
    _check_any("pipeline", choices.pipeline, {"blocks": model.num_layers})
    found = meshes(model, cluster, seq_len, choices, split_sequence)
    if not found:
        _raise_no_mesh(model, cluster.num_devices, choices)
    _check_batch(global_batch, {d * b for _, _, d in found for b in choices.micro_batch_size or (1,)})  # type: ignore[union-attr]
    if not any(_chunked(choices, model.num_layers // p, p, 4 * p) for _, p, _ in found):
        each = sorted({model.num_layers // p for _, p, _ in found})
        if all(p == 1 for _, p, _ in found):
            raise ValueError("interleaving needs a pipeline of 2 devices or more: give another pipeline, or 1f1b")
        raise ValueError(
            f"num_chunks {_list(choices.num_chunks)} with {', '.join(choices.schedules)} cuts no device's blocks "
            f"evenly: there are {_list(each)} a device; num_chunks must divide them and suit the schedule: 1 for most, "
            "2 or more, on 2 devices or more, for interleaved ones, 2 for those placed as a V, an even one for hanayo; "
            f"try {_list(_divisors(each[-1])[1:] or [1])}"
        )


def _check_any(name: str, wanted: Sizes, sizes: dict[str, int]) -> None:
    """Raise ValueError unless one of those wanted divides all sizes."""
    legal = _divisors(int(np.gcd.reduce(list(sizes.values()))))
    if wanted is not None and not set(wanted) & set(legal):  # type: ignore[arg-type]
        first = wanted[0]  # type: ignore[index]
        near = [k for k in legal if k < first][-1:] + [k for k in legal if k > first][:1]
        missed = " and ".join(f"the {size} {what}" for what, size in sizes.items() if size % first)
        raise ValueError(
            f"{name} is {_list(wanted)}, which does not divide {missed}: the nearest that divides all it must is "
            f"{' or '.join(map(str, near))}"
        )


def _raise_no_mesh(model: TransformerModel, devices: int, choices: Choices) -> NoReturn:
    given = {k: getattr(choices, k) for k in ("tensor", "pipeline", "data") if getattr(choices, k)}
    step = int(np.prod([sizes[0] for sizes in given.values()]))
    text = " and ".join(f"{name} {_list(sizes)}" for name, sizes in given.items())
    if len(given) == 3:
        raise ValueError(f"{text} make {step} devices, where there are {devices}: leave one of them out, or change it")
    raise ValueError(
        f"{devices} devices cannot be laid out with {text}: tensor · pipeline · data must be {devices} and pipeline "
        f"must divide the {model.num_layers} blocks; the nearest number of devices that is a multiple of {step} is "
        f"{nearest_multiple(devices, step)}"
    )


def _check_batch(global_batch: int, steps: set[int]) -> None:
    if all(global_batch % step for step in steps):
        near = min((nearest_multiple(global_batch, step) for step in steps), key=lambda x: abs(x - global_batch))
        raise ValueError(
            f"global_batch {global_batch} is not a multiple of data · micro_batch_size, which can be "
            f"{', '.join(map(str, sorted(steps)[:8]))}{' …' * (len(steps) > 8)}: the nearest that is, is {near}"
        )


def _chunked(choices: Choices, blocks: int, pipeline: int, count: int) -> list[tuple[str, int]]:
    """Schedules of so many micro-batches, each with the numbers of chunks that a device of so many blocks can have."""
    return [
        (schedule, v)
        for schedule in choices.schedules
        for v in choices.of("num_chunks", _divisors(blocks))
        if _takes(schedule, pipeline, count, v)
    ]


@lru_cache(maxsize=4096)
def _takes(schedule: str, pipeline: int, count: int, num_chunks: int) -> bool:
    """Whether a schedule can have so many chunks, and cuts the model into pipeline · num_chunks stages then."""
    if schedule in _ONE_CHUNK:
        return num_chunks == 1
    if schedule in _SEVERAL_CHUNKS:
        return num_chunks > 1 and pipeline > 1
    try:
        return build(schedule, pipeline, count, num_chunks).num_stages == pipeline * num_chunks
    except ValueError:
        return False


def _list(sizes: object) -> str:
    return ", ".join(map(str, sizes)) if isinstance(sizes, (tuple, list)) else "any"


def _divisors(number: int) -> list[int]:
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})
