"""simulate: when each op runs, exactly: one longest-path pass, no event queue."""

from __future__ import annotations

import numpy as np

from pplab.costs import Costs
from pplab.schedule import Schedule
from pplab.timeline import Timeline


def simulate(schedule: Schedule, costs: Costs | None = None) -> Timeline:
    """When each op starts and ends if every device runs its row as early as it can.

    An op starts when its device is free and the message that it waits for has come; that is all, so
    the times are a longest path through the schedule, computed by comparing and adding, without
    rounding. All ops of one slot (an order in which everything can run, found once when the schedule
    was built) are timed together: one NumPy step a slot instead of a Python step an op.

    ``costs``: F = I = W = 1, B = 2 and no hop unless given. Times come in the unit of the costs, from 0.
    Raises ValueError where the costs do not fit the schedule's stages.
    """
    costs = costs or Costs()
    nodes = schedule.nodes
    work = costs.of_nodes(schedule)
    receive, send, travels = _messages(schedule, costs)
    count = len(work)
    start, end, free = np.zeros((3, count + 1))  # the last entry is what index −1 finds
    before = np.arange(-1, count - 1)
    before[nodes.first[:-1]] = -1
    for running in schedule.steps:
        begin = free[before[running]]
        for needed, travel in zip(nodes.needs, travels, strict=True):
            begin = np.maximum(begin, end[needed[running]] + travel[running])
        start[running] = begin = begin + receive[running]
        end[running] = begin = begin + work[running]
        free[running] = begin + send[running]
    return Timeline(schedule, *(times[nodes.of_op] for times in (start, end, receive, send)))


def _messages(s: Schedule, costs: Costs) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """How long each node is kept busy before and after it, and how long each message that it needs travels."""
    node, count = s.nodes.of_op, len(s.nodes.needs[0])
    second = np.flatnonzero(s.paired) + 1
    travel = received = costs.of_hops(s)
    sent: np.ndarray = np.bincount(s.needs[s.hops, 0], weights=received[s.hops], minlength=s.num_ops)
    if costs.blocking:  # who receives may begin when the sender does; a pair sends one message after the other
        wait = np.zeros(s.num_ops)
        wait[second] = sent[second - 1]
        travel = np.where(s.hops, wait[s.needs[:, 0]], 0.0)
    else:
        received = sent = np.zeros(s.num_ops)
    travels: list[np.ndarray] = [np.delete(travel, second)]
    if len(s.nodes.needs) == 2:
        other = np.zeros(count)
        other[node[second]] = travel[second]
        travels.append(other)
    return np.bincount(node, received, count), np.bincount(node, sent, count), travels
