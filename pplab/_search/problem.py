"""What a search has to order, and a bound that no order beats: stages on devices, times, memory.

Micro-batches keep their order on every stage, which loses nothing where they cost the same: the k-th forward of a
stage may as well be that of micro-batch k, and so for the backwards.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

F, I, W = range(3)  # noqa: E741 (torch's letters); B is an I without a W

Table = list[list[list[float]]]  # by kind, stage and micro-batch


@dataclass(frozen=True)
class Problem:
    """Times are lists by stage and micro-batch; ``hop`` by boundary, 0 between stages of one device.

    ``device``: of each stage. F takes ``take`` of its device's ``limit``, I gives back all but ``keep``, W the rest.
    ``split``: backwards are I and W, else B, which stands at I. ``over``: what to shorten, the ``"makespan"`` or the
    longest ``"span"`` of a device.
    """

    device: list[int]
    times: Table
    hop: list[float]
    take: list[float]
    keep: list[float]
    limit: list[float]
    split: bool = True
    over: str = "makespan"
    num_stages: int = field(init=False)
    num_microbatches: int = field(init=False)
    on: list[list[int]] = field(init=False)
    offset: list[float] = field(init=False)

    def __post_init__(self) -> None:
        on: list[list[int]] = [[] for _ in self.limit]
        for stage, device in enumerate(self.device):
            on[device].append(stage)
        object.__setattr__(self, "on", on)
        object.__setattr__(self, "num_stages", len(self.device))
        object.__setattr__(self, "num_microbatches", len(self.times[F][0]))
        reach = [0.0]
        for stage, hop in enumerate(self.hop):
            reach.append(reach[-1] + self.times[F][stage][0] + hop)
        offset = [reach[stages[0]] if self.over == "span" else 0.0 for stages in on]
        object.__setattr__(self, "offset", offset)

    @property
    def kinds(self) -> tuple[int, ...]:
        """The kinds that are run."""
        return (F, I, W) if self.split else (F, I)

    @property
    def num_passes(self) -> int:
        """How many passes all devices run together."""
        return len(self.kinds) * self.num_stages * self.num_microbatches

    @property
    def uniform(self) -> bool:
        """Whether all micro-batches cost the same."""
        return all(min(row) == max(row) for kind in self.times for row in kind)

    @property
    def fixed_starts(self) -> bool:
        """Whether each device's first op starts at one time in any order: what its span begins with.

        So it is where the first micro-batch meets a new device at each stage until it has met them all.
        """
        return self.device[: len(self.on)] == list(dict.fromkeys(self.device)) and self.uniform

    def work(self, device: int) -> float:
        """How long a device computes."""
        return sum(sum(self.times[k][s]) for k in self.kinds for s in self.on[device])

    def fits(self, done: list[int], device: int) -> bool:
        """Whether a device's memory holds what it would after so many passes, ``done[kind · num_stages + stage]``.

        And whether it can go on: the oldest micro-batch that has not passed all its stages must still find room.
        """
        stages, n, limit = self.on[device], self.num_stages, self.limit[device] * (1 + 1e-9)
        held = 0.0
        for s in stages:
            held += self.take[s] * (done[s] - done[n + s]) + self.keep[s] * (done[n + s] - done[2 * n + s])
        if held > limit or len(stages) == 1:
            return held <= limit
        oldest = min(done[s] for s in stages)
        return oldest == self.num_microbatches or sum(self.take[s] * max(1, done[s] - oldest) for s in stages) <= limit

    def window(self, stage: int) -> tuple[int, float]:
        """(n, delay): memory lets F of micro-batch m + n start no sooner than I of m has ended, and ``delay`` more.

        The stages before it on its device hold as many micro-batches as it does, at the least. The delay is for W, or
        another I, where what I leaves is too much.
        """
        device = self.device[stage]
        each, limit = sum(self.take[s] for s in self.on[device] if s <= stage), self.limit[device] * (1 + 1e-9)
        if each * self.num_microbatches <= limit:
            return self.num_microbatches, 0.0
        n = int(limit // each)
        full = self.split and n * each + self.keep[stage] > limit
        return n, min(self.times[I][stage][0], self.times[W][stage][0]) if full else 0.0

    def ways(self) -> tuple[Table, Table]:
        """(head, tail) of each pass, lists as ``times``: the least time before it, and after it.

        Longest ways through: what a pass needs, the order of micro-batches on a stage, the windows of memory. A tail
        counts to the last end, less the ``offset`` of the device where it is.
        """
        count, last, split = self.num_microbatches, self.num_stages - 1, self.split
        head, tail = ([[[0.0] * count for _ in self.device] for _ in range(3)] for _ in range(2))
        times, windows = self.times, [self.window(s) for s in range(last + 1)]

        def go(k: int, s: int, m: int, *edges: tuple[bool, int, int, int, float]) -> None:
            head[k][s][m] = max((head[a][b][c] + times[a][b][c] + t for ok, a, b, c, t in edges if ok), default=0.0)

        def back(k: int, s: int, m: int, *edges: tuple[bool, int, int, int, float]) -> None:
            ways = (tail[a][b][c] + times[a][b][c] + t for ok, a, b, c, t in edges if ok)
            tail[k][s][m] = max([-self.offset[self.device[s]], *ways])

        hop = [*self.hop, 0.0]
        for m in range(count):
            for s, (n, delay) in enumerate(windows):
                go(F, s, m, (s > 0, F, s - 1, m, hop[s - 1]), (m > 0, F, s, m - 1, 0), (m >= n, I, s, m - n, delay))
            for s in range(last, -1, -1):
                go(I, s, m, (True, F, s, m, 0), (m > 0, I, s, m - 1, 0), (s < last, I, min(s + 1, last), m, hop[s]))
                go(W, s, m, (split, I, s, m, 0), (m > 0, W, s, m - 1, 0))
        for m in range(count - 1, -1, -1):
            more, after = m < count - 1, min(m + 1, count - 1)
            for s, (n, delay) in enumerate(windows):
                back(W, s, m, (more, W, s, after, 0))
                room = (m + n < count, F, s, min(m + n, count - 1), delay)
                back(I, s, m, (split, W, s, m, 0), (more, I, s, after, 0), (s > 0, I, s - 1, m, hop[s - 1]), room)
            for s in range(last, -1, -1):
                back(F, s, m, (True, I, s, m, 0), (more, F, s, after, 0), (s < last, F, min(s + 1, last), m, hop[s]))
        return head, tail


def bound_of(p: Problem) -> float:
    """What no order of a problem beats: on each device, its passes one after the other, between heads and tails."""
    if p.over == "span" and not p.fixed_starts:
        return max(max(p.work(d), _round_trip(p, stages[0])) for d, stages in enumerate(p.on))
    if not p.uniform:
        least = [[[min(row)] * len(row) for row in kind] for kind in p.times]
        shortest = Problem(p.device, least, p.hop, p.take, p.keep, p.limit, p.split, p.over)
        return max(bound_of(shortest), *map(p.work, range(len(p.on))))
    head, tail = p.ways()
    jobs = [[(head[k][s][m], p.times[k][s][m], tail[k][s][m])
             for k in p.kinds for s in stages for m in range(p.num_microbatches)] for stages in p.on]  # fmt: skip
    ramps = [_ramps(p, d, head, tail) for d, row in enumerate(p.on) if len(row) == 1]
    return max([*map(preemptive, jobs), *ramps])


def _ramps(p: Problem, device: int, head: Table, tail: Table) -> float:
    """What a device of one stage takes if it waits no more than it must, before the first I and after the last F.

    Before the first I it can only run as many Fs as fit. At the start of the last F no more I and W are left than its
    memory holds micro-batches for, beside the new one: all else comes before. After it, its micro-batch goes its way.
    """
    (s,), count, limit = p.on[device], p.num_microbatches, p.limit[device] * (1 + 1e-9)
    f, i, w = (p.times[k][s][0] for k in (F, I, W))
    take, keep = p.take[s], p.keep[s]
    if take * count <= limit:
        return head[F][s][0] + p.work(device) - p.offset[device]
    there_and_back = _round_trip(p, s) - (w if p.split else 0.0)
    idle = max(0.0, there_and_back - i - int(limit // take) * f)
    left = 0.0
    for whole in range(int(limit // take)):
        room = limit - take * (1 + whole)
        halves = min(count - 1 - whole, int(room // keep) if keep else count)
        left = max(left, whole * (i + w) + halves * w)
    before = idle + p.work(device) - f - i - w - left
    return head[F][s][0] + before + there_and_back + tail[I][s][count - 1]


def _round_trip(p: Problem, stage: int) -> float:
    """From a micro-batch's first pass of a stage to its last one there."""
    way = sum(min(p.times[k][s]) for k in (F, I) for s in range(stage, p.num_stages)) + 2 * sum(p.hop[stage:])
    return way + (min(p.times[W][stage]) if p.split else 0.0)


def preemptive(jobs: list[tuple[float, float, float]]) -> float:
    """The shortest time for (head, time, tail) jobs on one device, were they allowed to interrupt each other.

    The longest tail that is ready runs (Jackson's rule): exact for interruptible jobs, so a bound for others.
    """
    jobs = sorted(jobs)
    waiting: list[tuple[float, float]] = []
    now, longest = 0.0, float("-inf")
    for (head, time, tail), next_head in zip(jobs, [j[0] for j in jobs[1:]] + [float("inf")], strict=True):
        now = max(now, head)
        heapq.heappush(waiting, (-tail, time))
        while waiting and now < next_head:
            tail, left = heapq.heappop(waiting)
            step = min(left, next_head - now)
            now += step
            if step < left:
                heapq.heappush(waiting, (tail, left - step))
            longest = max(longest, now - tail)
    return longest
