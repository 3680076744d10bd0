"""Why devices wait: the critical path, and every idle gap taken apart by reason.

An op starts when the later of two things is there: its device, or the message that it needs. Following
the later one back from op to op gives a chain that reaches to the start of the step, and everything
that lies on it: passes, hops. A gap is the lead of one chain, the message's, over another, the device's
own; so it is made of the hops that the first has more, of the extra time of slower stages that it has
more, and of the rest: filling the pipeline, draining it, or the order of the rows. In a measured timeline
devices also pause while all that they need is there, and passes of one stage differ: what that adds is unexplained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pplab.op import Op
from pplab.timeline import Span, Timeline, check_timeline

REASONS = ("ramp", "drain", "order", "slower stage", "hop", "communication", "unexplained")


class IdleGap(NamedTuple):
    """A time in which a device computes nothing, ``start`` to ``end``, and what it is made of.

    ``waiting_for``: the op whose message is missing (the last op of the step, at a device that is done).
    ``before``: the op that runs next, None at a device that is done. ``parts``: time by reason:
    ``ramp``, until the device's first backward starts (its first op, where nothing goes backward);
    ``drain``, after its last forward; ``order``, in between; ``slower stage``, what stages that cost more
    than the cheapest one add; ``hop``, what messages on their way add; ``communication``, while the
    device itself sends or receives (blocking); ``unexplained``, in measured times: pauses in which
    nothing was waited for, and passes longer than their stage's mean.
    """

    device: int
    start: float
    end: float
    waiting_for: Op | None
    before: Op | None
    parts: dict[str, float]

    @property
    def reason(self) -> str:
        """The reason of the largest part."""
        return max(self.parts, key=lambda reason: self.parts[reason])


class _Chains:
    """For each node, what it waited for last, and the hops and extra time on the chain that ends with it."""

    def __init__(self, t: Timeline) -> None:
        s = check_timeline(t).schedule
        lead = np.flatnonzero(~np.r_[False, s.paired[:-1]])
        self.lead, self.first = lead, s.nodes.first
        self.origin, self.finish = float(t.start.min()), float(t.end.max())
        self.tolerance = 1e-9 * (self.finish - self.origin)
        self.start, self.end, self.receive, self.send = (x[lead] for x in (t.start, t.end, t.receive, t.send))
        self.before = np.arange(-1, len(lead) - 1)
        self.before[self.first[:-1]] = -1
        self.sender = _last_sender(t, lead)
        free = np.where(self.before < 0, self.origin, self.end[self.before] + self.send[self.before])
        idle = self.start - self.receive - free
        self.idle = np.where(idle > self.tolerance, idle, 0.0)
        self.waited = (self.idle > 0) & (self.sender >= 0)
        if t.measured:  # a pause after the message was sent is none that waits for it
            self.waited &= self.end[self.sender] > free
        self.source = np.where(self.waited, self.sender, self.before)
        self.travel = np.where(self.waited, self.start - self.receive - self.end[self.sender], 0.0)
        sent = np.where(self.before < 0, 0.0, self.send[self.before])
        self.hop, self.extra, self.loose = np.zeros((3, len(lead) + 1))  # the last entry is what index −1 finds
        extra, mean = _extra_time(t, lead)
        self.pause = np.where(self.waited | (not t.measured), 0.0, self.idle)
        loose = self.pause + (self.end - self.start - mean if t.measured else 0.0)
        step = np.where(self.waited, self.travel, sent) + self.receive, extra, loose
        for running in s.steps:
            source = self.source[running]
            self.hop[running] = self.hop[source] + step[0][running]
            self.extra[running] = self.extra[source] + step[1][running]
            self.loose[running] = self.loose[source] + step[2][running]

    def ahead(
        self, chain: np.ndarray, own: np.ndarray, idle: np.ndarray, hop: np.ndarray, pause: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, ...]:
        """Of ``idle`` time, the chain against its own: due to hops, to slower stages, unexplained, and the rest."""
        hops = np.clip(self.hop[chain] + hop - self.hop[own], 0.0, idle)
        slower = np.clip(self.extra[chain] - self.extra[own], 0.0, idle - hops)
        loose = np.clip(self.loose[chain] + pause - self.loose[own], 0.0, idle - hops - slower)
        return hops, slower, loose, idle - hops - slower - loose


def _last_sender(t: Timeline, lead: np.ndarray) -> np.ndarray:
    """The node of another device that each node may have waited for, −1 for none; of two, whose message came last."""
    s = t.schedule
    message = np.where(s.hops, s.needs[:, 0], -1)
    a, b = message[lead], np.where(s.paired[lead], message[np.minimum(lead + 1, s.num_ops - 1)], -1)
    last = np.where((b >= 0) & ((a < 0) | (t.arrival[b] > t.arrival[a])), b, a)
    return np.where(last < 0, -1, s.nodes.of_op[last])


def _extra_time(t: Timeline, lead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each node's stage takes, on average over its micro-batches: beyond the cheapest stage's pass, and in all.

    Like against like: a pair is held against pairs of the same kinds.
    """
    s = t.schedule
    pair, second = s.paired[lead], np.minimum(lead + 1, s.num_ops - 1)
    letters = s.kind.view(np.uint32).astype(int)
    kinds = letters[lead] + 256 * np.where(pair, letters[second], 0)
    stages = s.stage[lead] + s.num_stages * np.where(pair, s.stage[second], 0)
    groups, group, count = np.unique(kinds * s.num_stages**2 + stages, return_inverse=True, return_counts=True)
    mean = np.bincount(group, (t.end - t.start)[lead]) / count
    extra = np.zeros(len(groups))
    for kind in np.unique(kinds):
        same = groups // s.num_stages**2 == kind
        least = mean[same].min()
        extra[same] = np.where(mean[same] > least * (1 + 1e-9), mean[same] - least, 0.0)
    return extra[group], mean[group]


def critical_path(t: Timeline) -> list[Span]:
    """The chain of ops that sets the makespan, in time order: to end sooner, one of them must cost less or move.

    From the op that ends last back: to the op of its device before it, or, where the device was idle, to the
    op whose message it waited for. Of a pair, the first op stands for both.
    """
    chains = _Chains(t)
    path, node = [], int(np.argmax(chains.end))
    while node >= 0:
        path.append(t[int(chains.lead[node])])
        node = int(chains.source[node])
    return path[::-1]


def idle_gaps(t: Timeline) -> list[IdleGap]:
    """Every idle time of every device between the step's first start and last end, in order, with its reasons.

    Their parts sum to makespan − busy on each device. Times in the timeline's unit.
    """
    s = check_timeline(t).schedule
    gaps = []
    for device, start, end, *ops, parts in zip(*(column.tolist() for column in gap_columns(t)), strict=True):
        named = {reason: x for reason, x in zip(REASONS, parts, strict=True) if x}
        awaited, upcoming = (None if i < 0 else s.op(i) for i in ops)
        gaps.append(IdleGap(device, start, end, awaited, upcoming, named))
    return gaps


def gap_columns(t: Timeline) -> tuple[np.ndarray, ...]:
    """The idle gaps as columns: device, start, end, waiting_for and before (ops as indices, −1 for none), and parts.

    ``parts``: (gaps, reasons), in the order of REASONS; otherwise see IdleGap. In the order of ``idle_gaps``.
    """
    chains = _Chains(t)
    device, start, end, waiting, before, parts = _gap_columns(t, chains)
    awaited, upcoming = (np.where(node < 0, -1, chains.lead[node]) for node in (waiting, before))
    order = np.lexsort((start, device))
    return tuple(column[order] for column in (device, start, end, awaited, upcoming, parts))


def idle_by_reason(t: Timeline) -> dict[str, np.ndarray]:
    """How long each device is idle for each reason, one (num_devices,) array a reason of REASONS; see IdleGap."""
    device, *_, parts = _gap_columns(t, _Chains(t))
    return {reason: np.bincount(device, parts[:, i], t.schedule.num_devices) for i, reason in enumerate(REASONS)}


def idle_table(t: Timeline) -> str:
    """Each device's share of idle time, and that time by reason, as lines of text; times in the timeline's unit."""
    times = {reason: time for reason, time in idle_by_reason(t).items() if time.any()}
    length = float(t.end.max() - t.start.min()) or 1.0
    share = sum(times.values(), np.zeros(t.schedule.num_devices)) / length
    lines = {"device": list(map(str, range(len(share)))), "idle share": [f"{x:.0%}" for x in share]}
    lines |= {reason: [f"{x:.4g}" for x in time] for reason, time in times.items()}
    width = max(len(cell) for cells in lines.values() for cell in cells) + 2
    return "\n".join(f"{name:12}" + "".join(cell.rjust(width) for cell in cells) for name, cells in lines.items())


def _gap_columns(t: Timeline, c: _Chains) -> tuple[np.ndarray, ...]:
    """All gaps as columns: device, start, end, node waited for, node that follows, and (gaps, reasons) parts."""
    own, chain = c.before, np.where(c.waited, c.sender, c.before)
    sent = np.where(own < 0, 0.0, c.send[own])
    hops, slower, loose, rest = c.ahead(chain, own, c.idle, np.where(c.waited, c.travel, sent) - sent, c.pause)
    phase = _phase(t, c)
    device = t.device[c.lead]
    parts = np.stack([*(np.where(phase == i, rest, 0.0) for i in range(3)), slower, hops, c.receive + sent, loose], 1)
    begin = np.where(own < 0, c.origin, c.end[own])
    inner = (device, begin, c.start, np.where(c.waited, c.sender, -1), np.arange(len(device)), parts)
    last = c.first[1:] - 1
    final = np.full(len(last), int(np.argmax(c.end)))
    sending = np.minimum(c.send[last], c.finish - c.end[last])
    hops, slower, loose, rest = c.ahead(final, last, c.finish - c.end[last] - sending, -c.send[last])
    none = np.zeros(len(last))
    done = (device[last], c.end[last], none + c.finish, final, final * 0 - 1)
    columns = [
        np.concatenate(pair)
        for pair in zip(inner, (*done, np.stack([none, rest, none, slower, hops, sending, loose], 1)), strict=True)
    ]
    columns[-1][columns[-1] < c.tolerance] = 0.0
    real = columns[2] - columns[1] > c.tolerance
    return tuple(column[real] for column in columns)


def _phase(t: Timeline, c: _Chains) -> np.ndarray:
    """Each node's phase, an index of REASONS: ramp up to the device's first backward, drain after its last forward."""
    s = t.schedule
    phase = np.full(len(c.lead), 2)
    backward, forward = s.is_kind("BI"), s.is_kind("F")
    for (a, b), x, y in zip(s.row_slices, c.first[:-1], c.first[1:], strict=True):
        if forward[a:b].any():
            phase[s.nodes.of_op[b - 1 - np.argmax(forward[a:b][::-1])] + 1 : y] = 1
        phase[x : s.nodes.of_op[a + np.argmax(backward[a:b])] + 1] = 0
    return phase
