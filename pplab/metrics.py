"""What a timeline costs: its length, the idle share, what it holds, how far it is from the best.

Functions of a Timeline, or of a Schedule and Costs (TypeError for anything else); they read arrays and give
numbers. Times are in the timeline's unit. Why a device is idle is told by pplab.idle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pplab.costs import Costs, check_costs
from pplab.schedule import Schedule, check_schedule
from pplab.timeline import Timeline, check_timeline


def makespan(t: Timeline) -> float:
    """How long the step takes: the last end minus the first start."""
    check_timeline(t)
    return float(t.end.max() - t.start.min())


def busy_time(t: Timeline) -> np.ndarray:
    """How long each device computes, (num_devices,): the union of its spans, so a pair counts once."""
    return _busy(check_timeline(t), -np.inf, np.inf)


def _busy(t: Timeline, first: float, last: float) -> np.ndarray:
    """Busy time of each device from one moment to another."""
    out = np.zeros(t.schedule.num_devices)
    for device, (a, b) in enumerate(t.schedule.row_slices):
        start, end = np.clip(t.start[a:b], first, last), np.clip(t.end[a:b], first, last)
        reached = np.maximum.accumulate(np.r_[-np.inf, end[:-1]])
        out[device] = np.maximum(end - np.maximum(start, reached), 0.0).sum()
    return out


def bubble_fraction(t: Timeline, over: str = "makespan", window: tuple[float, float] | None = None) -> float:
    """The share of device time in which nothing is computed, from 0 to 1.

    1 − Σ busy / (D · makespan). With ``over="span"`` the longest span of a device, from its own first
    start to its own last end, takes the place of the makespan: the definition of the zero-bubble papers
    (Qi et al. 2024, section 5), which looks at the steady repetition of steps. ``window=(start, end)``, such as
    ``steady_window(t)``, counts only the time between two moments. Raises ValueError for another ``over``, and for a
    window that is empty, reaches beyond the timeline, or comes with ``over="span"``.
    """
    return 1.0 - utilization(t, over, window)


def utilization(t: Timeline, over: str = "makespan", window: tuple[float, float] | None = None) -> float:
    """The share of device time in which something is computed: 1 − bubble_fraction, same arguments."""
    check_timeline(t)
    if over not in ("makespan", "span"):
        raise ValueError(f"over is {over!r:.40}: choose 'makespan' or 'span'")
    if window is not None:
        first, last = _check_window(t, over, window)
        return float(_busy(t, first, last).sum() / (t.schedule.num_devices * (last - first)))
    spans = (float(t.end[a:b].max() - t.start[a:b].min()) for a, b in t.schedule.row_slices)
    length = makespan(t) if over == "makespan" else max(spans)
    if length == 0:
        raise ValueError("the timeline has no length: every op takes no time, so there is no share to speak of")
    return float(busy_time(t).sum() / (t.schedule.num_devices * length))


def _check_window(t: Timeline, over: str, window: Any) -> tuple[float, float]:
    try:
        first, last = (float(moment) for moment in window)
    except (TypeError, ValueError):
        raise ValueError(f"window is {window!r:.60}: give two times, such as pplab.metrics.steady_window(t)") from None
    begin, end = float(t.start.min()), float(t.end.max())
    if not begin <= first < last <= end:
        raise ValueError(
            f"window is ({first:g}, {last:g}): give a start and a later end within the timeline's {begin:g} to {end:g}"
        )
    if over != "makespan":
        raise ValueError("a window and over='span' are two ways to say which time counts: give one of them")
    return first, last


def steady_window(t: Timeline) -> tuple[float, float]:
    """From when all devices go backward until the first has no forward left: start and end, in the timeline's unit.

    Between the two, 1F1B and "pipedream" alternate on every device. With equal stages and no hop that is from
    D·F + (D − 1)·B to M·(F + B). Raises ValueError where nothing is between them, as where M < D.
    """
    s, first, last = check_timeline(t).schedule, -np.inf, np.inf
    if not s.is_kind("BI").any():
        raise ValueError(f"{s.name} runs forward only, so it has no steady state of forwards and backwards")
    for a, b in s.row_slices:
        forward, backward = s.is_kind("F")[a:b], s.is_kind("BI")[a:b]
        first = max(first, t.start[a:b][backward].min())
        after = t.end[a:b][backward & (t.start[a:b] >= t.start[a:b][forward].max())]
        last = min(last, after.min())
    if not first < last:
        raise ValueError(
            f"{s.name} has no steady state here: a device runs out of forwards before all go backward; "
            f"give it more micro-batches than {s.num_microbatches}"
        )
    return float(first), float(last)


def peak_in_flight(t: Timeline) -> np.ndarray:
    """The most micro-batches that each device holds, (num_devices,); chunks of them, where it has several stages.

    F takes one at its start; B, or W where the backward is split, gives it back at its end, as F itself does where
    nothing goes backward. Of a pair, F takes before B gives.
    """
    s = check_timeline(t).schedule
    node = s.nodes.of_op
    takes, gives = (np.bincount(node, weights=ops).astype(int) for ops in _takes_and_gives(s))
    held = np.cumsum(takes) - (np.cumsum(gives) - gives)
    before = np.concatenate([[0], np.cumsum(takes - gives)])[s.nodes.first[:-1]]
    return np.maximum.reduceat(held, s.nodes.first[:-1]) - before


def held_microbatches(t: Timeline) -> np.ndarray:
    """peak_in_flight in whole micro-batches, (num_devices,): a chunk counts as the share of a device that it is.

    With V chunks a device 1/V each, so schedules of any V compare fairly; stages are taken as equal.
    """
    return peak_in_flight(t) * t.schedule.num_devices / t.schedule.num_stages


def messages_sent(s: Schedule) -> np.ndarray:
    """How many messages each device sends in a step, (num_devices,): activations onward, gradients back.

    With V chunks in turn on D devices their sum is 2 · M · (V · D − 1): M each way over each boundary between stages.
    """
    sender = check_schedule(s).needs[s.hops, 0]
    return np.bincount(s.device[sender], minlength=s.num_devices)


def in_flight(t: Timeline, device: int) -> tuple[np.ndarray, np.ndarray]:
    """When a device's held micro-batches change, and how many it holds from then on: two arrays of one length.

    Counted as by ``peak_in_flight``; where one is given back and another taken at the same time, both count at once.
    """
    a, b = check_timeline(t).schedule.row_slices[device]
    takes, gives = (np.arange(a, b)[ops[a:b]] for ops in _takes_and_gives(t.schedule))
    times = np.concatenate([t.start[takes], t.end[gives]])
    moments, which = np.unique(times, return_inverse=True)
    change = np.bincount(which, np.repeat([1.0, -1.0], [len(takes), len(gives)]), len(moments))
    return moments, np.cumsum(change).astype(int)


def given_back_by(s: Schedule) -> np.ndarray:
    """For each op that takes a micro-batch, the op that gives it back, as an index; −1 for the ops that take none."""
    takes, gives = _takes_and_gives(check_schedule(s))
    passes = s.stage * s.num_microbatches + s.microbatch
    giver = np.empty(s.num_stages * s.num_microbatches, int)
    giver[passes[gives]] = np.flatnonzero(gives)
    return np.where(takes, giver[passes], -1)


def _takes_and_gives(s: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Which ops take a micro-batch at their start, and which give it back at their end."""
    return s.is_kind("F"), s.is_kind("BW" if s.is_kind("BI").any() else "F")


@np.errstate(over="ignore")  # costs too large for a float give inf
def lower_bound(schedule: Schedule, costs: Costs | None = None) -> float:
    """A time that no order of these ops on these devices can beat; makespan / lower_bound tells how far one is from it.

    The larger of two: the longest way of one micro-batch through all its passes; and, for each
    device, the soonest that a first op can reach it, all its work, and the least that must follow its
    last op elsewhere. Pairs stay pairs. Unit as in the costs.
    """
    check_schedule(schedule)
    costs = check_costs(costs)
    head, tail, work = _ways(schedule, costs)
    bound = float((head + work + tail).max())
    nodes = costs.of_nodes(schedule)
    for device, (a, b) in enumerate(schedule.row_slices):
        x, y = schedule.nodes.first[device : device + 2]
        bound = max(bound, float(head[a:b].min() + nodes[x:y].sum() + tail[a:b].min()))
    return bound


def _ways(s: Schedule, costs: Costs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What must come before each op and after it, were there a device for every op; and its own time."""
    work, hop = costs.of_nodes(s)[s.nodes.of_op], costs.of_hops(s)
    depth = np.select([s.is_kind("F"), s.is_kind("W")], [s.stage, 2 * s.num_stages], 2 * s.num_stages - 1 - s.stage)
    order = np.argsort(depth, kind="stable")
    layers = np.split(order, np.cumsum(np.bincount(depth, minlength=2 * s.num_stages + 1))[:-1])
    head, tail = np.zeros((2, s.num_ops + 1))  # the last entry is what index −1 finds
    after = np.append(work, 0.0)
    for layer in layers:
        message, own = s.needs[layer].T
        head[layer] = np.maximum(head[message] + after[message] + hop[layer], head[own] + after[own])
    for layer in reversed(layers):
        message, own = s.needs[layer].T
        np.maximum.at(tail, message, tail[layer] + work[layer] + hop[layer])
        np.maximum.at(tail, own, tail[layer] + work[layer])
    return head[:-1], tail[:-1], work
