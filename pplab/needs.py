"""Which op needs which, whether rows respect it, and in which order everything can run.

The rules, for stage s and micro-batch m (stated here and nowhere else):

    F(s, m) needs F(s−1, m), a message
    B(s, m) and I(s, m) need the backward of stage s+1, a message, and F(s, m) of their own stage
    W(s, m) needs I(s, m) of its own stage

What a stage needs of itself lies on its device, so both run on the same one, in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pplab import checks

if TYPE_CHECKING:
    from pplab.schedule import Schedule

_FEW_DEVICES = 8  # below, a Python loop over ops is quicker than a NumPy step over devices


class Nodes(NamedTuple):
    """What runs as one: an op, or a pair of ops.

    ``of_op`` (num_ops): the node of each op. ``first`` (num_devices + 1): where each device's nodes
    begin. ``needs``: one array (num_nodes) for each message that a node may wait for, −1 for none.
    """

    of_op: np.ndarray
    first: np.ndarray
    needs: list[np.ndarray]


def find_needs(s: Schedule) -> np.ndarray:
    """What each op waits for, (num_ops, 2): the op that sends to it, the op of its own stage; −1 for none.

    Raises ScheduleError for an op twice or missing, or one that stands before what it needs.
    """
    stages, index = s.num_stages, np.arange(s.num_ops)
    place = s.microbatch * stages + s.stage
    checks.check_complete(s, place)
    forward, backward, for_input = (np.full(stages * s.num_microbatches, -1) for _ in range(3))
    is_f, is_b, is_i = s.is_kind("F"), s.is_kind("BI"), s.is_kind("I")
    forward[place[is_f]] = index[is_f]
    backward[place[is_b]] = index[is_b]
    for_input[place[is_i]] = index[is_i]
    needs = np.full((s.num_ops, 2), -1)
    later = is_f & (s.stage > 0)
    needs[later, 0] = forward[place[later] - 1]
    earlier = is_b & (s.stage < stages - 1)
    needs[earlier, 0] = backward[place[earlier] + 1]
    needs[is_b, 1] = forward[place[is_b]]
    is_w = s.is_kind("W")
    needs[is_w, 1] = for_input[place[is_w]]
    checks.check_rows(s, needs)
    return needs


def find_nodes(s: Schedule) -> Nodes:
    """Ops and pairs as the units that run."""
    if not s.paired.any():
        return Nodes(np.arange(s.num_ops), s.first, [s.needs[:, 0]])
    lead = np.flatnonzero(~np.r_[False, s.paired[:-1]])
    of_op = np.cumsum(~np.r_[False, s.paired[:-1]]) - 1
    message = np.where(s.needs[:, 0] < 0, -1, of_op[s.needs[:, 0]])
    second = np.full(len(lead), -1)
    pair = s.paired[lead]
    second[pair] = message[lead[pair] + 1]
    return Nodes(of_op, np.searchsorted(lead, s.first), [message[lead], second])


def find_steps(s: Schedule, nodes: Nodes) -> list[np.ndarray]:
    """An order in which everything can run: the nodes that could start in slot 0, 1, … if each took one.

    Many devices advance together in one NumPy step a slot (131,072 ops on 64 devices: 7 ms, where a
    loop over ops takes 40); with few devices the loop is quicker. Raises ScheduleError on a deadlock.
    """
    steps, position = (_step if s.num_devices >= _FEW_DEVICES else _walk)(nodes)
    if (position < nodes.first[1:]).any():
        checks.raise_deadlock(s, nodes, position)
    return steps


def _step(nodes: Nodes) -> tuple[list[np.ndarray], np.ndarray]:
    done = np.zeros(nodes.first[-1] + 1, bool)
    done[-1] = True  # what index −1, "needs nothing", finds
    needs = [np.append(needed, -1) for needed in nodes.needs]
    position, stop = nodes.first[:-1].copy(), nodes.first[1:]
    steps: list[np.ndarray] = []
    while True:
        ready = position < stop
        for needed in needs:
            ready &= done[needed[position]]
        running = position[ready]
        if not len(running):
            return steps, position
        done[running] = True
        position += ready
        steps.append(running)


def _walk(nodes: Nodes) -> tuple[list[np.ndarray], np.ndarray]:
    first, second = nodes.needs[0].tolist(), nodes.needs[-1].tolist()
    begin, position, stop = nodes.first.tolist(), nodes.first[:-1].tolist(), nodes.first[1:].tolist()
    slots = [-1] * stop[-1] + [-2]  # -1: has not run; the last is what index −1, "needs nothing", finds
    waiting: dict[int, list[int]] = {}
    awake = list(range(len(position)))
    while awake:
        device = awake.pop()
        i = position[device]
        slot = slots[i - 1] if i > begin[device] else -1
        while i < stop[device]:
            a, b = slots[first[i]], slots[second[i]]
            if a == -1 or b == -1:
                waiting.setdefault(first[i] if a == -1 else second[i], []).append(device)
                break
            slots[i] = slot = max(slot, a, b) + 1
            if i in waiting:
                awake += waiting.pop(i)
            i += 1
        position[device] = i
    if position != stop:
        return [], np.array(position)
    level = np.array(slots[:-1])
    order = np.argsort(level, kind="stable")
    return np.split(order, np.cumsum(np.bincount(level[order]))[:-1]), np.array(position)
