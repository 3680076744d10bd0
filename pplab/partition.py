"""Layers → stages: the uniform split, and the contiguous split whose slowest stage is fastest.

Layers keep their order, so this is chains-on-chains, not bin packing (which is NP-hard, and another problem). The
textbook programme over (stage, cut) takes O(L²·D), with a monotone split pointer O(L·D). Here the slowest stage's
time T is found by bisection; whether a T can be met is O(L·D) work in D NumPy steps, also where each stage has a
memory limit of its own, which a monotone pointer cannot follow. Pinar & Aykanat 2004 (JPDC 64) survey the methods.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np

from pplab.presets import check_whole

Numbers = Any  # anything that NumPy reads as numbers


@dataclass(frozen=True)
class Partition:
    """A model's layers cut into contiguous stages, each of at least one layer.

    sizes : layers of each stage. times : what each layer takes, in seconds or slots; results come in the same unit.
    So ``Costs(forward=p.stage_times, backward=2 * p.stage_times)`` runs it. Raises ValueError where the two disagree.
    """

    sizes: tuple[int, ...]
    times: tuple[float, ...] = field(repr=False)

    def __post_init__(self) -> None:
        times = _numbers("times", self.times)
        if isinstance(self.sizes, str) or not isinstance(self.sizes, Iterable):
            raise ValueError(f"sizes is {self.sizes!r:.60}: give the number of layers of each stage, such as (8, 8, 7)")
        object.__setattr__(self, "sizes", tuple(self.sizes))
        check_whole(**{f"sizes[{k}]": size for k, size in enumerate(self.sizes)})
        if sum(self.sizes) != len(times):
            raise ValueError(
                f"sizes add up to {sum(self.sizes)} layers, but times has {len(times)}: each layer goes to one stage"
            )
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        object.__setattr__(self, "times", tuple(times.tolist()))

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.sizes)

    @property
    def bounds(self) -> tuple[int, ...]:
        """Where stages begin, and the end: stage k has the layers bounds[k] to bounds[k + 1] − 1."""
        return tuple(accumulate(self.sizes, initial=0))

    @cached_property
    def stage_times(self) -> np.ndarray:
        """What each stage takes, (num_stages), read-only."""
        times = self.stage_sums(self.times)
        times.flags.writeable = False
        return times

    @property
    def slowest(self) -> float:
        """What the slowest stage takes: it sets the pace of the pipeline."""
        return float(self.stage_times.max())

    def stage_of(self, layer: int) -> int:
        """The stage that holds a layer. Raises ValueError for a layer that there is not."""
        if not 0 <= layer < len(self.times):
            raise ValueError(f"there is no layer {layer}: they are numbered 0 to {len(self.times) - 1}")
        return int(np.searchsorted(self.bounds, layer, side="right")) - 1

    def stage_sums(self, values: Numbers) -> np.ndarray:
        """Sums over each stage of anything that has one value a layer (its last axis): parameters, bytes, FLOPs."""
        array = np.asarray(values)
        if array.ndim == 0 or array.shape[-1] != len(self.times):
            raise ValueError(
                f"values has shape {array.shape}, but there are {len(self.times)} layers: one value a layer"
            )
        return np.add.reduceat(array, self.bounds[:-1], axis=-1)


def uniform(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Layers of each stage as equal as can be, the larger stages first: 30 over 4 is 8, 8, 7, 7.

    Raises ValueError where there are fewer layers than stages.
    """
    check_whole(num_layers=num_layers)
    _check_stages(num_layers, num_stages)
    size, rest = divmod(int(num_layers), int(num_stages))
    return tuple(size + (k < rest) for k in range(num_stages))


def optimal(times: Numbers, num_stages: int, memory: Numbers = None, memory_limit: Numbers = None) -> Partition:
    """The contiguous split with the least slowest stage, every stage with at least one layer.

    Among the best, cuts are taken from the last to the first, each as near to its uniform place as can be; equal
    layers give the uniform split. Times are rounded to about 2⁻⁵⁹ of their sum, so that sums are exact.

    Parameters
    ----------
    times : what each layer takes, (num_layers), in seconds or slots; the embedding and the head are layers too.
    memory : bytes of each layer, (num_layers), or (num_stages, num_layers) where they depend on the stage, as
        activations in flight do.
    memory_limit : bytes that a stage may hold, one number or one a stage.

    Raises
    ------
    ValueError : more stages than layers, fewer than 1, no layers, times that are negative or not finite, a limit
        that cannot be kept (the message names the layer or stage).
    """
    values = _numbers("times", times)
    _check_stages(len(values), num_stages)
    needs, limits = _memory(memory, memory_limit, len(values), num_stages)
    earliest = [_first_fit(np.append(0.0, np.cumsum(need)), limit) for need, limit in zip(needs, limits, strict=True)]
    prefix = np.append(0, np.cumsum(_whole(values)))
    low, high = max(int(np.diff(prefix).max()), -(-int(prefix[-1]) // num_stages)) - 1, int(prefix[-1])
    reached = _reach(prefix, earliest, high)
    if not reached[-1][-1]:
        _raise_no_fit(needs, limits, reached)
    while high - low > 1:  # low cannot be met, high can
        middle = (low + high) // 2
        if _reach(prefix, earliest, middle)[-1][-1]:
            high = middle
        else:
            low = middle
    return Partition(_cut(prefix, earliest, high), tuple(values.tolist()))


def profile_layers(
    layers: Sequence[Callable[[Any], Any]], make_input: Callable[[], Any], repeats: int = 5
) -> np.ndarray:
    """Wall-clock seconds of each layer's forward pass, (num_layers): the median over repeats, after one warm-up run.

    layers : callables; each gets what the one before it returned, the first what ``make_input()`` returns.

    Raises
    ------
    ValueError : no layers, something that cannot be called, repeats that are no whole number of 1 or more.
    """
    check_whole(repeats=repeats)
    if len(layers) == 0:
        raise ValueError("layers is empty: there is nothing to measure; give one callable a layer")
    for name, what in [("make_input", make_input), *((f"layers[{k}]", layer) for k, layer in enumerate(layers))]:
        if not callable(what):
            raise ValueError(f"{name} is {what!r:.40}, which cannot be called: give a function")
    seconds = np.empty((repeats + 1, len(layers)))
    for run in seconds:
        value = make_input()
        for k, layer in enumerate(layers):
            start = time.perf_counter()
            value = layer(value)
            run[k] = time.perf_counter() - start
    return np.median(seconds[1:], axis=0)


def _first_fit(prefix: np.ndarray, limit: float) -> np.ndarray:
    """For each end j, the first layer i such that layers i to j − 1 stay within the limit; j where none does."""
    return np.searchsorted(prefix, prefix - limit)


def _reach(prefix: np.ndarray, earliest: list[np.ndarray], bound: int) -> list[np.ndarray]:
    """reached[d][j]: the first j layers can fill the first d stages, none slower than bound or over its memory."""
    start, ends = _first_fit(prefix, bound), np.arange(len(prefix))
    reached = [ends == 0]
    for fit in earliest:
        before = np.append(0, np.cumsum(reached[-1]))  # how many places below j can be reached
        reached.append(before[ends] > before[np.maximum(start, fit)])
    return reached


def _cut(prefix: np.ndarray, earliest: list[np.ndarray], bound: int) -> tuple[int, ...]:
    """Sizes of stages that keep to the bound, from the last cut to the first, each as near to uniform as can be."""
    reached, start = _reach(prefix, earliest, bound), _first_fit(prefix, bound)
    num_stages, end = len(earliest), len(prefix) - 1
    places = np.append(0, np.cumsum(uniform(end, num_stages)))
    sizes = []
    for stage in reversed(range(num_stages)):
        first = max(start[end], earliest[stage][end])
        cuts = first + np.flatnonzero(reached[stage][first:end])
        cut = int(cuts[::-1][np.argmin(abs(cuts[::-1] - places[stage]))])  # of two as near, the later
        sizes.append(end - cut)
        end = cut
    return tuple(reversed(sizes))


def _whole(values: np.ndarray) -> np.ndarray:
    """Times as whole numbers in one unit, a power of two: equal stays equal, and no sum rounds or overflows."""
    exponent = math.frexp(values.max())[1] + len(values).bit_length()
    whole = np.rint(np.ldexp(values, 61 - exponent)).astype(np.int64)
    return whole // max(1, int(np.gcd.reduce(whole)))


def _memory(memory: Numbers, limit: Numbers, num_layers: int, num_stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes (num_stages, num_layers) and limits (num_stages); nothing against infinity where none are given."""
    if (memory is None) != (limit is None):
        raise ValueError("memory and memory_limit belong together: pass both, or neither")
    if memory is None:
        return np.zeros((num_stages, num_layers)), np.full(num_stages, np.inf)
    out = []
    for name, value, shape in (("memory", memory, (num_stages, num_layers)), ("memory_limit", limit, (num_stages,))):
        array = _read(name, value, "bytes of 0 or more")
        if array.ndim and array.shape not in (shape, shape[-1:]):
            wanted = " or ".join(str(s) for s in dict.fromkeys((shape[-1:], shape)))
            raise ValueError(f"{name} has shape {array.shape}: give {wanted}, or one number for all")
        if np.isnan(array).any() or (array < 0).any():
            raise ValueError(f"{name} has a value that is negative or not a number: give bytes of 0 or more")
        out.append(np.broadcast_to(array, shape))
    return out[0], out[1] * (1 + 1e-12)  # a limit that a sum of fractions meets but for rounding is met


def _raise_no_fit(needs: np.ndarray, limits: np.ndarray, reached: list[np.ndarray]) -> NoReturn:
    alone = np.flatnonzero((needs > limits[:, None]).all(axis=0))
    if len(alone):
        raise ValueError(
            f"layer {alone[0]} needs {needs[:, alone[0]].min():g} bytes, more than memory_limit {limits.max():g}: a "
            "cut runs between layers, so more stages do not help; split the layer (tensor parallelism), or raise it"
        )
    for stage, limit in enumerate(limits):
        if not reached[stage + 1].any():
            raise ValueError(
                f"stage {stage} stays empty: no layer whose turn it could be fits its memory_limit of {limit:g} bytes; "
                "raise it, or that of a stage before it"
            )
    last = int(np.flatnonzero(reached[-1])[-1])
    raise ValueError(
        f"{len(limits)} stages hold layers 0 to {last - 1} at most, and layer {last} finds no room: all layers need "
        f"{needs.min(axis=0).sum():g} bytes, the limits allow {limits.sum():g}; use more stages, or raise memory_limit"
    )


def _check_stages(num_layers: int, num_stages: int) -> None:
    check_whole(num_stages=num_stages)
    if num_stages > num_layers:
        raise ValueError(
            f"num_stages is {num_stages}, but there are {num_layers} layers and each stage needs one: "
            f"use at most {num_layers} stages"
        )


def _read(name: str, value: Numbers, wanted: str) -> np.ndarray:
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r:.60}: give {wanted}") from None


def _numbers(name: str, value: Numbers) -> np.ndarray:
    """Values of layers as an array; raises ValueError saying which is wrong."""
    try:
        array = np.asarray(value)
        array = array.astype(float) if array.dtype.kind in "iufO" else np.empty((0, 0)) if array.size else array
    except (TypeError, ValueError, OverflowError):
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise ValueError(f"{name} must be one number a layer, not {value!r:.60}")
    if len(array) == 0:
        raise ValueError(f"{name} is empty: a model has at least one layer; give one number a layer")
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is {array[bad[0]]:g}: a time must be finite and not negative")
    return array
