"""List scheduling: whoever is free first runs the pass that a policy prefers; a family of policies.

As the heuristic of Qi et al. 2024 (section 4.1): forwards as far as memory permits, then forward and backward in turn,
weight passes where nothing else is there or memory is full.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from pplab._search.node import Node, Row, run
from pplab._search.problem import F, I, Problem, W

_NEVER = float("inf")


class Policy(NamedTuple):
    """What a device prefers.

    ``cap``: how many micro-batches each stage may be forward of its own backwards. ``first``: of a forward and a
    backward that are both there, ``"F"``, ``"I"`` or the one whose ``"turn"`` it is. ``slack``: W runs before a pass
    that is still to come if it delays it by no more than this share of itself. ``deep``: of two stages the later one
    goes forward first. ``plan``: a fixed order of each device's forwards and backwards, (kind, stage), in place of all
    that.
    """

    cap: tuple[float, ...]
    first: str
    slack: float
    deep: bool
    plan: list[list[tuple[int, int]]] | None = None


def policies(p: Problem) -> list[Policy]:
    """A few dozen: warm-ups as of 1F1B and ZB-H1, as of ZB-H2 and longer ones, and all that memory permits."""
    chunks = max(map(len, p.on))
    caps = [
        tuple(max(1.0, a + b * (p.num_stages - 1 - s) / chunks) for s in range(p.num_stages))
        for a, b in ((1, 1), (1, 2), (2, 2), (3, 2), (p.num_microbatches, 0))
    ]
    return [Policy(*each) for each in product(caps, ("F", "I", "turn"), (0.0, 0.3, 1.0), (True, False)[:chunks])]


def list_schedule(p: Problem, policy: Policy) -> list[Row] | None:
    """The rows that a policy gives, None where its caps leave nothing to run."""
    node, turn = Node(p), [I] * len(p.on)
    choice = [_choose(p, node, d, policy, turn[d]) for d in range(len(p.on))]
    rows: list[Row] = [[] for _ in p.on]
    neighbours = [{p.device[x] for x in (s - 1, s, s + 1) if 0 <= x < p.num_stages} for s in range(p.num_stages)]
    for _ in range(p.num_passes):
        start, end, kind, s = min(choice)
        if kind < 0:
            return None
        rows[p.device[s]].append((kind, s, node.done[kind * p.num_stages + s]))
        if kind != W:
            turn[p.device[s]] = kind
        run(p, node, (end, start, kind, s))
        for d in neighbours[s]:
            choice[d] = _choose(p, node, d, policy, turn[d])
    return rows


def _choose(p: Problem, node: Node, device: int, policy: Policy, last: int) -> tuple[float, float, int, int]:
    """(start, end, kind, stage) of the pass that a device prefers; it never starts where there is none."""
    n, done = p.num_stages, node.done
    planned = None
    if policy.plan:
        place = sum(done[s] + done[n + s] for s in p.on[device])
        planned = policy.plan[device][place] if place < len(policy.plan[device]) else None
    first = 1 - last if policy.first == "turn" else F if policy.first == "F" else I
    best = (_NEVER, False, 0, _NEVER, -1, -1)  # start, whether it is not preferred, stage's rank, end, kind, stage
    weight = None
    for step in node.ready[device]:
        end, start, kind, s = step
        if kind == W:
            weight = min(weight or step, step)
        elif (kind, s) == planned if policy.plan else kind == I or done[s] - done[n + s] < policy.cap[s]:
            best = min(best, (start, kind != first, -s if policy.deep == (kind == F) else s, end, kind, s))
    start, _, _, end, kind, s = best
    if weight and weight[1] < start and weight[0] - start <= policy.slack * (weight[0] - weight[1]):
        end, start, kind, s = weight
    return start, end, kind, s
