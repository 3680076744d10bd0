"""Frontier: how small the bubble can be at each amount of memory: named schedules as points, searches as curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pplab.costs import Costs, check_costs
from pplab.metrics import bubble_fraction, peak_in_flight
from pplab.placement import PLACEMENTS
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.schedules._sizes import check_schedule_sizes, check_sizes
from pplab.search import Found, search
from pplab.simulate import simulate

Shape = tuple[int, str]  # chunks a device, placement
_OF_STAGES = ("forward", "backward_input", "backward_weight", "backward", "pair")


class Point(NamedTuple):
    """A schedule by what it costs: ``memory`` in micro-batches of a whole device, ``bubble`` from 0 to 1.

    ``memory`` is the most that any device holds, or the limit of a search. ``least`` is the bubble that no order of the
    same passes gets below under that limit, 0 where nothing is known.
    """

    name: str
    memory: float
    bubble: float
    schedule: Schedule
    least: float = 0.0


@dataclass(frozen=True)
class Frontier:
    """A point of each named schedule, and a curve of each shape searched, from little memory to much.

    A shape is (chunks a device, placement). Along a curve the bubble never grows. ``over``: what it is a share of.
    """

    named: tuple[Point, ...]
    searched: dict[Shape, tuple[Point, ...]]
    num_devices: int
    num_microbatches: int
    over: str = "span"

    @property
    def best_named(self) -> tuple[Point, ...]:
        """The named schedules that no other beats in memory without a larger bubble, from little memory to much."""
        rising = sorted(self.named, key=lambda point: (point.memory, point.bubble))
        return tuple(a for i, a in enumerate(rising) if all(a.bubble < b.bubble - 1e-12 for b in rising[:i]))


def frontier(
    costs: Costs | None,
    num_devices: int,
    num_microbatches: int,
    limits: Iterable[float] | None = None,
    shapes: Sequence[Shape] = ((1, "wrap"), (2, "v")),
    *,
    over: str = "span",
    effort: int = 4000,
) -> Frontier:
    """Bubble against memory: of every named schedule that takes these sizes, and of the best found under each limit.

    Parameters
    ----------
    costs : what a whole device takes, one number each: with V stages, each of them takes 1 / V of it, and a hop what a
        hop takes. F = I = W = 1 unless given.
    limits : of a device's memory, in micro-batches; a dozen from 1 to 2 · num_devices − 1 unless given.
    shapes : (chunks a device, placement) of each curve.
    over, effort : as in ``search``.

    Raises ValueError for sizes, limits or costs that do not fit. As in Qi et al. 2024 (arXiv 2405.15362), whose
    controllable memory is one such line of named schedules.
    """
    num_devices, num_microbatches, _ = check_schedule_sizes(num_devices, num_microbatches)
    costs = check_costs(costs)
    for name in (*_OF_STAGES, "hop", "transfer"):
        if np.ndim(getattr(costs, name)) > 0:
            raise ValueError(f"{name} differs by stage, but here schedules cut the model differently: give one number")
    if limits is None:
        limits = [*np.linspace(1, num_devices, 8), *np.linspace(num_devices, 2 * num_devices - 1, 5)]
        limits = np.unique(np.minimum(np.round(limits), num_microbatches))
    limits = _read_limits(limits)
    shapes = _read_shapes(shapes)
    named = []
    for s in _named(num_devices, num_microbatches):
        share = num_devices / s.num_stages
        t = simulate(s, _shared(costs, share))
        named.append(Point(s.name, float(peak_in_flight(t).max()) * share, bubble_fraction(t, over), s))
    curves = {}
    for chunks, placement in shapes:
        each = _shared(costs, 1 / check_sizes(num_chunks=chunks)[0])
        find = partial(search, each, num_devices, num_microbatches, chunks, placement=placement, over=over)
        curves[chunks, placement] = _curve(partial(find, effort=effort), each, limits)
    return Frontier(tuple(named), curves, num_devices, num_microbatches, over)


def _read_limits(limits: Any) -> list[float]:
    """Limits in rising order; raises ValueError for what are none."""
    try:
        return sorted(float(limit) for limit in limits)
    except (TypeError, ValueError):
        raise ValueError(
            f"limits is {limits!r:.60}: give numbers of micro-batches in a list, such as [2, 4, 8]; for any amount of "
            "memory, as many as there are micro-batches"
        ) from None


def _read_shapes(shapes: Any) -> list[Shape]:
    """Shapes; raises ValueError for what are none."""
    try:
        read = [(chunks, placement) for chunks, placement in shapes]
    except (TypeError, ValueError):
        read = [(None, None)]
    if any(not isinstance(placement, str) or placement not in PLACEMENTS for _, placement in read):
        raise ValueError(
            f"shapes is {shapes!r:.60}: give (chunks a device, placement) for each curve, such as "
            f"[(1, 'wrap'), (2, 'v')]; placements are {', '.join(PLACEMENTS)}"
        )
    return read


def _curve(find: Callable[..., Found], costs: Costs, limits: Sequence[float]) -> tuple[Point, ...]:
    """A point a limit: what was found for less memory fits too, so the shortest up to there stands."""
    points: list[Point] = []
    best: Found | None = None
    for limit in limits:
        s = best if best and points[-1].bubble < 1e-12 else find(memory_limit=limit)
        if best is None or s.length < best.length:
            best = s
        bubble = bubble_fraction(simulate(best, costs), best.over)
        least = 1 - (1 - bubble) * best.length / min(s.bound, best.length)
        points.append(Point(f"search up to {limit:g}", limit, bubble, best, max(0.0, least)))
    return tuple(points)


def _shared(costs: Costs, share: float) -> Costs:
    """Costs of a stage that is such a share of a device's."""
    of_stages: dict[str, Any] = {name: getattr(costs, name) for name in _OF_STAGES}
    return replace(costs, **{name: share * cost for name, cost in of_stages.items() if cost is not None})


def _named(num_devices: int, num_microbatches: int) -> Iterator[Schedule]:
    """The named schedules that take these sizes and are whole steps: neither forwards alone nor PipeDream's stream."""
    for name, build in SCHEDULES.items():
        if name not in ("forward-only", "pipedream"):
            try:
                s = build(num_devices, num_microbatches)
            except ValueError:
                continue
            yield s
