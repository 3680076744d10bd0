"""Beam search over the orders of a problem: exact where nothing had to be left out, else the most promising ones.

A node is the beginning of every row. It grows by one pass: of the device whose next pass could end first, only passes
that start before that end are tried (Giffler and Thompson 1960: some best order is never left out). Two nodes that have
run the same passes are compared by when devices become free and messages arrive; one that is nowhere sooner is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pplab._search.node import Node, Row, passes, rows_of, run
from pplab._search.problem import F, Problem


class Beam:
    """A problem with the bounds that steer a search for it."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.tail = p.ways()[1]
        self.after = [min(min(self.tail[k][s]) for k in p.kinds for s in stages) for stages in p.on]
        self.expanded = 0

    def search(self, width: int, best: float, key: Callable[[Node], Any]) -> tuple[list[Row] | None, float, bool]:
        """(rows, length, whether it was exact): a better order than ``best``, or None.

        ``width``: how many nodes live on after each pass.
        """
        p, exact = self.p, True
        level = [Node(p)]
        for _ in range(p.num_passes):
            found: dict[Any, list[Node]] = {}
            for node in level:  # grows while it is read: a node that waits comes again
                self._expand(node, best, level, found)
            nodes = [node for alike in found.values() for node in alike]
            if len(nodes) > width:
                exact = False
                nodes.sort(key=key)
                del nodes[width:]
            level = nodes
            if not level:
                return None, best, exact
        end = min(level, key=lambda node: node.bound)
        return rows_of(p, end), end.bound, exact

    def _expand(self, node: Node, best: float, level: list[Node], found: dict[Any, list[Node]]) -> None:
        p, n = self.p, self.p.num_stages
        self.expanded += 1
        first = min((step for steps in node.ready for step in steps), default=None)
        if first is None:
            return
        device = p.device[first[3]]
        chosen = [step for step in node.ready[device] if step[1] < first[0] or step is first]
        if first[2] == F and len(p.on[device]) > 1:  # it may have to leave the room to another stage
            wait = node.copy()
            wait.parent, wait.last = node.parent, node.last
            wait.banned[device] = (*node.banned[device], *(step[2:] for step in chosen))
            wait.ready[device] = passes(p, wait, device)
            level.append(wait)
        for step in chosen:
            end, _, kind, s = step
            m = node.done[kind * n + s]
            child = node.copy()
            run(p, child, step)
            child.bound = max(node.bound, end + self.tail[kind][s][m], end + child.left[device] + self.after[device])
            if child.bound < best:
                keep(found.setdefault((*child.done, *child.banned), []), child)


def keep(alike: list[Node], new: Node) -> None:
    """Add a node to those that have run the same passes, unless one of them is nowhere later; drop those it beats."""
    for node in alike:
        if no_later(node, new):
            return
    alike[:] = [node for node in alike if not no_later(new, node)]
    alike.append(new)


def no_later(a: Node, b: Node) -> bool:
    """Whether a's devices are free, and its messages there, no later than b's."""
    return all(map(float.__le__, a.free, b.free)) and all(
        all(map(float.__le__, x, y)) for x, y in zip(a.inbox, b.inbox, strict=True)
    )
