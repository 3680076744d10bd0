"""simulate: when each op runs, exactly: one longest-path pass, no event queue."""

from __future__ import annotations

import numpy as np

from pplab.costs import Costs, check_costs
from pplab.schedule import Schedule, check_schedule
from pplab.timeline import Timeline


@np.errstate(over="ignore", invalid="ignore")  # told below in words
def simulate(schedule: Schedule, costs: Costs | None = None) -> Timeline:
    """When each op starts and ends if every device runs its row as early as it can.

    An op starts when its device is free and the message that it waits for has come; that is all, so
    the times are a longest path through the schedule, computed by comparing and adding, without
    rounding. All ops of one slot (an order in which everything can run, found once when the schedule
    was built) are timed together: one NumPy step a slot instead of a Python step an op.

    ``costs``: F = I = W = 1, B = 2 and no hop unless given. Times come in the unit of the costs, from 0.
    Raises ValueError where the costs do not fit the schedule's stages, TypeError for what is no schedule or no costs.
    """
    check_schedule(schedule)
    costs = check_costs(costs)
    nodes, way = schedule.nodes, _Messages(schedule, costs)
    work = costs.of_nodes(schedule)
    count = len(work)
    start, end, free = np.zeros((3, count + 1))  # the last entry is what index −1 finds
    before = np.arange(-1, count - 1)
    before[nodes.first[:-1]] = -1
    for running in schedule.steps:
        begin = free[before[running]]
        for needed in way.needed:
            begin = np.maximum(begin, way.arrival[needed[running]])
        start[running] = begin = begin + way.receive[running]
        end[running] = begin = begin + work[running]
        free[running] = begin + way.send[running]
        way.post(running, begin)
    if not np.isfinite(free).all():
        raise ValueError("the costs are so large that times overflow: give them in a larger unit")
    start, end, receive, send = (column[nodes.of_op] for column in (start, end, way.receive, way.send))
    departure = way.departure[:-1] if costs.links else end + way.queue[:-1]
    return Timeline(schedule, start, end, receive, send, departure=departure, arrival=way.arrival[:-1])


class _Messages:
    """What each op sends: when it leaves and arrives, and how long sending and receiving keep a node busy.

    ``needed``: for each message that a node may need, the op that sends it (num_nodes), −1 for none.
    """

    def __init__(self, s: Schedule, costs: Costs) -> None:
        node, count = s.nodes.of_op, len(s.nodes.needs[0])
        self.first = np.flatnonzero(~np.r_[False, s.paired[:-1]])
        second = np.flatnonzero(s.paired) + 1
        self.second = np.full(count, -1)
        self.second[node[second]] = second
        self.needed = [s.needs[self.first, 0]]
        if len(second):
            self.needed.append(np.where(self.second < 0, -1, s.needs[self.second, 0]))
        received, sender = costs.of_hops(s), s.needs[s.hops, 0]
        self.way, self.transfer = np.zeros((2, s.num_ops + 1))
        self.way[sender], self.transfer[sender] = received[s.hops], costs.of_transfers(s)[s.hops]
        self.departure, self.arrival, self.left = np.zeros((3, s.num_ops + 1))
        self.links = _previous_on_link(s, sender) if costs.links else None
        self.receive, self.send = (
            np.bincount(node, x, count) if costs.blocking else np.zeros(count) for x in (received, self.way[:-1])
        )
        self.queue = np.zeros(s.num_ops + 1)  # blocking: a pair sends one message after the other
        second = second[np.isin(second, sender)]
        self.queue[second] = self.way[second - 1] * costs.blocking
        if costs.blocking:
            self.way = np.zeros_like(self.way)  # who receives may begin when the sender does

    def post(self, running: np.ndarray, end: np.ndarray) -> None:
        """Send what these nodes have made, a pair its first op's message first."""
        if len(self.needed) == 1:
            self._send(running, end)
        else:
            second = self.second[running]
            self._send(self.first[running], end)
            self._send(second[second >= 0], end[second >= 0] + self.queue[second[second >= 0]])

    def _send(self, ops: np.ndarray, leaves: np.ndarray) -> None:
        if self.links is not None:
            leaves = np.maximum(leaves, self.left[self.links[ops]])
            self.left[ops] = leaves + self.transfer[ops]
            self.departure[ops] = leaves
        self.arrival[ops] = leaves + self.way[ops]


def _previous_on_link(s: Schedule, sender: np.ndarray) -> np.ndarray:
    """For each op that sends, the op whose message went over the same link before it, −1 for none."""
    link = s.device[sender] * s.num_devices + s.device[s.hops]
    order = np.lexsort((sender, link))
    previous = np.full(s.num_ops, -1)
    same = link[order][1:] == link[order][:-1]
    previous[sender[order][1:][same]] = sender[order][:-1][same]
    return previous
