"""How far every row of an order has come: what a device may run next, and what running it changes."""

from __future__ import annotations

from pplab._search.problem import F, I, Problem, W

Pass = tuple[float, float, int, int]  # end, start, kind, stage
Row = list[tuple[int, int, int]]  # kind, stage, micro-batch


class Node:
    """The beginning of every row, and when what it has made is there."""

    __slots__ = ("banned", "bound", "done", "free", "idle", "inbox", "last", "left", "parent", "ready")

    def __init__(self, p: Problem) -> None:
        n = p.num_stages
        self.done = [0] * (3 * n)  # passes by kind · num_stages + stage
        self.free = [0.0] * len(p.on)  # when each device is free
        self.inbox: list[tuple[float, ...]] = [()] * (2 * n)  # arrivals of messages not yet used, likewise
        self.left = [p.work(d) for d in range(len(p.on))]  # how long each device has still to compute
        self.banned: list[tuple[tuple[int, int], ...]] = [()] * len(p.on)  # what each may not run next
        self.bound = self.idle = 0.0
        self.parent: Node | None = None
        self.last: tuple[int, int] | None = None  # kind, stage
        self.ready = [passes(p, self, d) for d in range(len(p.on))]

    def copy(self) -> Node:
        """The same beginning, to go on from."""
        new = object.__new__(Node)
        new.done, new.free, new.inbox, new.ready = self.done[:], self.free[:], self.inbox[:], self.ready[:]
        new.left, new.banned = self.left[:], self.banned[:]
        new.bound, new.idle, new.parent, new.last = self.bound, self.idle, self, None
        return new


def passes(p: Problem, node: Node, device: int) -> list[Pass]:
    """What a device could run next."""
    done, inbox, free, n = node.done, node.inbox, node.free[device], p.num_stages
    out = []
    for s in p.on[device]:
        f, i, w = done[s], done[n + s], done[2 * n + s]
        if i < f and (s == n - 1 or inbox[n + s]):
            start = free if s == n - 1 else max(free, inbox[n + s][0])
            out.append((start + p.times[I][s][i], start, I, s))
        if f < p.num_microbatches and (s == 0 or inbox[s]):
            done[s] += 1
            if p.fits(done, device):
                start = free if s == 0 else max(free, inbox[s][0])
                out.append((start + p.times[F][s][f], start, F, s))
            done[s] -= 1
        if p.split and w < i:
            out.append((free + p.times[W][s][w], free, W, s))
    return [step for step in out if step[2:] not in node.banned[device]] if node.banned[device] else out


def run(p: Problem, node: Node, step: Pass) -> None:
    """Put a pass at the end of its device's row."""
    end, start, kind, s = step
    n, device, receiver = p.num_stages, p.device[s], -1
    node.last = (kind, s)
    node.done[kind * n + s] += 1
    node.idle += start - node.free[device]
    node.free[device] = end
    node.left[device] -= end - start
    node.banned[device] = ()
    if kind != W:
        if node.inbox[kind * n + s]:
            node.inbox[kind * n + s] = node.inbox[kind * n + s][1:]
        to = s + 1 if kind == F else s - 1
        if 0 <= to < n:
            node.inbox[kind * n + to] += (end + p.hop[min(s, to)],)
            receiver = p.device[to]
    node.ready[device] = passes(p, node, device)
    if receiver >= 0 and receiver != device:
        node.ready[receiver] = passes(p, node, receiver)


def rows_of(p: Problem, node: Node) -> list[Row]:
    """The row of each device."""
    rows: list[Row] = [[] for _ in p.on]
    count = node.done[:]
    here: Node | None = node
    while here is not None and here.last is not None:
        kind, s = here.last
        count[kind * p.num_stages + s] -= 1
        rows[p.device[s]].append((kind, s, count[kind * p.num_stages + s]))
        here = here.parent
    return [row[::-1] for row in rows]
