"""search: the best order of passes found under a memory limit, and how far it can be from the best there is.

Named schedules that fit, and a family of list schedules (Qi et al. 2024, section 4.1), are shortened by moving passes;
where there are few passes, every order that could be better is tried, so the result is proved to be the best.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, cast

import numpy as np

from pplab._search.beam import Beam
from pplab._search.greedy import list_schedule, policies
from pplab._search.moves import Order, improve
from pplab._search.node import Row
from pplab._search.plans import plans
from pplab._search.problem import I, Problem, W, bound_of
from pplab._search.starts import named_rows, one_by_one
from pplab.costs import Costs, check_costs
from pplab.placement import PLACEMENTS, Placement, read_placement
from pplab.progress import Progress, watched
from pplab.schedule import Schedule
from pplab.schedules._sizes import check_schedule_sizes
from pplab.simulate import simulate

_MOST_FORWARDS = 16_384  # some minutes
_DESCENTS = 4  # how many of the best starting points are improved
_NODES = 20_000  # of a beam, in all
_NARROWEST = 100  # a beam of fewer nodes finds less than the moves do


class Found(Schedule):
    """A schedule that a search found: ``length``, the makespan or longest span, and ``bound``, which no order beats.

    Both in the unit of the costs; ``over`` says which of the two lengths it is, ``gap`` how far it may be from the
    best: length / bound − 1.
    """

    over: str
    length: float
    bound: float

    @property
    def gap(self) -> float:
        """By which share the length is above the bound; 0 where it is proved to be the best."""
        return self.length / self.bound - 1 if self.bound else 0.0

    @property
    def quality(self) -> str:
        """The length and the gap in words."""
        far = "equal to" if self.gap < 5e-5 else f"at most {self.gap:.2%} above"
        return f"{'makespan' if self.over == 'makespan' else 'longest span'} {self.length:.6g}, {far} the lower bound"

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; {self.quality}>"

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.quality}"


def search(
    costs: Costs | None,
    num_devices: int,
    num_microbatches: int,
    num_chunks: int = 1,
    memory_limit: Any = None,
    *,
    placement: Placement = None,
    over: str = "makespan",
    activation: Any = None,
    weight_activation: Any = None,
    split: bool = True,
    effort: int = 4000,
    progress: Progress = False,
) -> Found:
    """The shortest schedule found whose devices each hold no more than a limit; it says how far it is from a bound.

    Parameters
    ----------
    costs : of the stages, hops and passes; F = I = W = 1 unless given.
    memory_limit : the most that a device may hold, one number or one a device; None for any amount. In micro-batches:
        each of a device's stages takes 1 / num_chunks, unless ``activation`` gives another unit, such as bytes.
    placement : ``"wrap"`` (unless given) or ``"v"``, or a table of stages, a row a device.
    over : what to shorten: the ``"makespan"``, or the longest ``"span"`` of a device, as the zero-bubble papers do.
    activation : what F takes, one number or one a stage, until W has run.
    weight_activation : what of it is left between I and W, likewise; all of it unless given.
    split : backwards are split into I and W; False leaves them whole, B.
    effort : how many moves are tried. The same effort gives the same schedule on every machine.
    progress : True shows a bar where ipywidgets is installed; a function is called with (done, all).

    16 devices and 64 micro-batches take seconds, the largest sizes minutes, nearly all of them for the first orders.

    Raises ValueError for sizes, costs, limits or a placement that do not fit; it names the least limit.
    """
    num_devices, num_microbatches, num_chunks = check_schedule_sizes(num_devices, num_microbatches, num_chunks)
    costs = check_costs(costs)
    if num_devices * num_microbatches * num_chunks > _MOST_FORWARDS:
        raise ValueError(
            f"num_devices · num_microbatches · num_chunks is {num_devices * num_microbatches * num_chunks:,}: a search "
            f"times some hundred orders, so give at most {_MOST_FORWARDS:,}"
        )
    if over not in ("makespan", "span"):
        raise ValueError(f"over is {over!r:.40}: choose 'makespan' or 'span'")
    if not isinstance(effort, (int, np.integer)) or isinstance(effort, bool) or effort < 0:
        raise ValueError(f"effort is {effort!r:.40}: give how many moves to try, a whole number of 0 or more")
    table = _placement(placement, num_devices, num_chunks)
    p = _problem(
        one_by_one(table, num_microbatches, split),
        costs,
        table,
        memory_limit,
        activation,
        weight_activation,
        split,
        over,
    )
    return _search(p, costs, num_chunks, int(effort), progress)


def _search(p: Problem, costs: Costs, num_chunks: int, effort: int, progress: Progress) -> Found:
    """Start, shorten, prove."""
    plain = not (costs.blocking or costs.links)  # else times on the way are a guess, and only the end is exact
    bound = bound_of(p)
    enough = bound * (1 + 1e-9)
    starts = _starts(p, num_chunks, enough if plain else 0.0, progress)
    best = [improve(order, effort // _DESCENTS, enough) for order in starts[:_DESCENTS]]
    found = min((_built(p, o.rows, costs) for o in (best if plain else best + starts)), key=lambda s: s.length)
    width = _NODES // p.num_passes
    if effort and plain and found.length > enough and width >= _NARROWEST:
        shorter, _, exact = Beam(p).search(width, found.length * (1 - 1e-9), lambda node: (node.bound, node.idle))
        found = _built(p, shorter, costs) if shorter else found
        if exact and p.uniform and (p.over == "makespan" or p.fixed_starts):
            bound = found.length
    found.bound = min(bound, found.length)  # the two may differ by a rounding
    return found


def _starts(p: Problem, num_chunks: int, enough: float, progress: Progress) -> list[Order]:
    """Orders to improve, the shortest first and each length once; no more of them where one is short enough."""
    found: dict[tuple[float, float], Order] = {}
    listed = (list_schedule(p, policy) for policy in watched([*policies(p), *plans(p)], progress, "orders"))
    for rows in chain(named_rows(p, num_chunks), filter(None, listed)):
        order = Order(p, rows)
        found.setdefault(order.value, order)
        if order.value[0] <= enough:
            break
    return sorted(found.values(), key=lambda order: order.value)


def _built(p: Problem, rows: list[Row], costs: Costs) -> Found:
    """Rows as a schedule, with its length."""
    device = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    kind, stage, microbatch = np.array([step for row in rows for step in row]).T
    letters = np.array(["F", "I", "W"] if p.split else ["F", "B", "-"])
    found = cast(Found, Found.from_columns(device, stage, letters[kind], microbatch, name="search"))
    t = simulate(found, costs)
    begins, ends = t.start[found.first[:-1]], t.end[found.first[1:] - 1]
    found.over, found.bound = p.over, 0.0
    found.length = float((ends - begins).max() if p.over == "span" else ends.max() - begins.min())
    return found


def _placement(given: Placement, num_devices: int, num_chunks: int) -> np.ndarray:
    if given is None or isinstance(given, str):
        if given is not None and given not in PLACEMENTS:
            raise ValueError(f"placement is {given!r:.40}: there are {', '.join(PLACEMENTS)}, or a table of stages")
        return PLACEMENTS[given or "wrap"](num_devices, num_chunks)
    table = read_placement(given)
    if table.shape != (num_devices, num_chunks):
        raise ValueError(
            f"the placement has {table.shape[0]} devices with {table.shape[1]} stages each, but num_devices is "
            f"{num_devices} and num_chunks is {num_chunks}: give a row a device, a stage a chunk"
        )
    return table


def _problem(
    s: Schedule, costs: Costs, table: np.ndarray, limit: Any, activation: Any, left: Any, split: bool, over: str
) -> Problem:
    """Costs and memory by stage, read off any schedule ``s`` on the placement."""
    times = np.zeros((3, s.num_stages, s.num_microbatches))
    times[s.is_kind("BI") * I + s.is_kind("W") * W, s.stage, s.microbatch] = costs.of_ops(s)
    first = s.is_kind("F") & (s.microbatch == 0)
    hop, device = np.zeros(s.num_stages), np.zeros(s.num_stages, int)
    hop[s.stage[first]], device[s.stage[first]] = costs.of_hops(s)[first], s.device[first]
    take = _each("activation", 1 / table.shape[1] if activation is None else activation, s.num_stages, "stage")
    keep = take if left is None else _each("weight_activation", left, s.num_stages, "stage")
    if (keep > take).any():
        i = int(np.argmax(keep > take))
        raise ValueError(
            f"weight_activation of stage {i} is {keep[i]:g}, but its F takes {take[i]:g}: give the part of that which "
            f"waits for W"
        )
    limits = _limits(limit, [float(take[row].sum()) for row in table])
    keep = keep if split else np.zeros(s.num_stages)
    return Problem(device.tolist(), times.tolist(), hop[1:].tolist(), take.tolist(), keep.tolist(), limits, split, over)


def _limits(limit: Any, least: list[float]) -> list[float]:
    """A limit a device; ``least``: what one micro-batch alone takes on each."""
    if limit is None:
        return [float("inf")] * len(least)
    limits = _each("memory_limit", limit, len(least), "device").tolist()
    for device, (given, need) in enumerate(zip(limits, least, strict=True)):
        if given * (1 + 1e-9) < need:
            raise ValueError(
                f"memory_limit is {given:g} on device {device}, but one micro-batch alone takes {need:g} there, since "
                f"all its forwards come before its backwards: give {need:g} or more"
            )
    return limits


def _each(name: str, value: Any, count: int, of_what: str) -> np.ndarray:
    """One number for each stage or device; raises ValueError for what is none, negative or not finite."""
    try:
        array = np.array(value, float)
        readable = np.array(value).dtype.kind in "iuf"
    except (TypeError, ValueError, OverflowError):
        readable = False
    if not readable or array.ndim > 1:
        raise ValueError(f"{name} is {value!r:.60}: give a number, or one number a {of_what}")
    if array.ndim and len(array) != count:
        raise ValueError(f"{name} has {len(array)} values for {count} {of_what}s: give one a {of_what}, or one number")
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if len(bad):
        more = "; give None for any amount" if name == "memory_limit" else ""
        raise ValueError(f"{name} is {array.ravel()[bad[0]]:g}: it must be finite and not negative{more}")
    return np.broadcast_to(array, count).copy()
