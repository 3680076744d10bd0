"""Local search: passes on the longest way through an order are moved, and what shortens it is kept."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pplab._search.node import Row
from pplab._search.problem import F, I, Problem, W

Value = tuple[float, float]  # the length, and the sum of the devices' ends, which tells equally long ones apart


class Order:
    """Rows with their times: the end of each pass, and the value of the whole."""

    def __init__(self, p: Problem, rows: list[Row]) -> None:
        self.p, self.rows = p, rows
        self.ends: dict[tuple[int, int, int], float] = {}
        self.value: Value = self._time()

    def _time(self) -> Value:
        """Run every row as early as it can; (inf, inf) for a deadlock."""
        p, rows, ends, last = self.p, self.rows, self.ends, self.p.num_stages - 1
        place, free, awake = [0] * len(rows), [0.0] * len(rows), list(range(len(rows)))
        waiting: dict[tuple[int, int, int], int] = {}
        while awake:
            d = awake.pop()
            row, now, i = rows[d], free[d], place[d]
            while i < len(row):
                kind, s, m = step = row[i]
                if kind != W and s != (last if kind == I else 0):
                    sender = (kind, s - 1, m) if kind == F else (kind, s + 1, m)
                    if sender not in ends:
                        waiting[sender] = d
                        break
                    come = ends[sender] + p.hop[s - 1 if kind == F else s]
                    if come > now:
                        now = come
                now += p.times[kind][s][m]
                ends[step] = now
                i += 1
                if step in waiting:
                    awake.append(waiting.pop(step))
            place[d], free[d] = i, now
        if len(ends) < p.num_passes:
            return float("inf"), float("inf")
        return max(end - off for end, off in zip(free, p.offset, strict=True)), sum(free)

    def critical(self) -> list[tuple[int, int]]:
        """(device, place) of each pass on a longest way that starts when the one before it on its device ends."""
        p, last = self.p, self.p.num_stages - 1
        place = {step: (d, i) for d, row in enumerate(self.rows) for i, step in enumerate(row)}
        d = max(range(len(self.rows)), key=lambda d: self.ends[self.rows[d][-1]] - p.offset[d])
        i, out = len(self.rows[d]) - 1, []
        while True:
            kind, s, m = self.rows[d][i]
            own = self.ends[self.rows[d][i - 1]] if i else 0.0
            sender = None if kind == W or s == (last if kind == I else 0) else (kind, s - 1 if kind == F else s + 1, m)
            if sender and self.ends[sender] + p.hop[min(s, sender[1])] >= own:
                d, i = place[sender]
            elif i:
                out.append((d, i))
                i -= 1
            else:
                return out


def moved(order: Order, device: int, old: int, new: int) -> Order | None:
    """The order with one pass at another place of its row; None where the row or its memory does not allow it."""
    p, row = order.p, order.rows[device][:]
    row.insert(new, row.pop(old))
    first, last = min(old, new), max(old, new)
    step, between = row[new], row[first : last + 1]
    for other in between:
        if other != step and other[1] == step[1] and (other[0] == step[0] or other[2] == step[2]):
            return None  # of one stage and one kind, or of one micro-batch there: these keep their order
    done = [0] * (3 * p.num_stages)
    for kind, s, _ in row[: last + 1]:
        done[kind * p.num_stages + s] += 1
        if kind == F and not p.fits(done, device):
            return None
    rows = order.rows[:]
    rows[device] = row
    return Order(p, rows)


def neighbours(order: Order) -> Iterator[tuple[int, int, int]]:
    """(device, old place, new place) of moves that may shorten the longest way."""
    for device, i in order.critical():
        yield device, i, i - 1
        row = order.rows[device]
        for reach in (2, 3, 5, 8):
            if i >= reach:
                yield device, i, i - reach
            if i - 1 + reach < len(row):
                yield device, i - 1, i - 1 + reach


def improve(order: Order, tries: int, bound: float) -> Order:
    """The best order found in so many tries: descend, and from where it ends jump a little aside and descend again."""
    dice, best, here = random.Random(0), order, order
    while tries > 0 and best.value[0] > bound:
        for move in neighbours(here):
            tries -= 1
            new = moved(here, *move)
            if new and new.value < here.value:
                here = new
                break
            if tries <= 0:
                break
        else:
            best = min(best, here, key=lambda order: order.value)
            here = _jump(best, dice)
    return min(best, here, key=lambda order: order.value)


def _jump(order: Order, dice: random.Random) -> Order:
    for _ in range(3):
        moves = list(neighbours(order))
        if moves:
            new = moved(order, *dice.choice(moves))
            order = new if new and new.value[0] < float("inf") else order
    return order
