"""A slow twin of the schedule and the simulator, written apart from pplab, and random schedules to try both on.

Only plain Python: dictionaries, and sweeps that are repeated until nothing changes. The rules, from design.md:
F(s, m) needs F(s−1, m); a backward, B or I, needs the backward of stage s+1 and its own F; W needs its own I.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from itertools import permutations
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from pplab import Op, Schedule

Rows = list[list[Op]]
Pairs = list[tuple[Op, Op]]
# EXAMPLES=20 pytest tests tries 20 times as many random cases, other ones on every run.
_MORE = int(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> settings:
    """So many random cases, the same on every run."""
    return settings(max_examples=count * _MORE, deadline=None, derandomize=_MORE == 1, database=None)


# ── Pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────


def read_picture(text: str) -> list[dict[str, tuple[int, int]]]:
    """A row a device, a cell a slot: "F0 .  B0 -" → {"F0": (0, 1), "B0": (2, 4)} for each row."""
    rows: list[dict[str, tuple[int, int]]] = []
    for line in text.strip().splitlines():
        rows.append({})
        label = ""
        for slot, cell in enumerate(line.split()):
            if cell == "-":
                rows[-1][label] = (rows[-1][label][0], slot + 1)
            elif cell != ".":
                label = cell
                rows[-1][label] = (slot, slot + 1)
    return rows


def seen(t) -> list[dict[str, tuple[float, float]]]:
    """What a timeline looks like, as read_picture gives it."""
    rows: list[dict[str, tuple[float, float]]] = [{} for _ in range(t.schedule.num_devices)]
    for span in t:
        rows[span.device][f"{span.kind}{span.microbatch}"] = (span.start, span.end)
    return rows


# ── The rules ─────────────────────────────────────────────────────────────────────────────────────────────────────


def needs(op: Op, ops: set[Op]) -> list[Op]:
    """What an op waits for, among the ops that there are."""
    s, kind, m = op
    wanted = {
        "F": [(s - 1, "F", m)],
        "B": [(s + 1, "B", m), (s + 1, "I", m), (s, "F", m)],
        "I": [(s + 1, "B", m), (s + 1, "I", m), (s, "F", m)],
        "W": [(s, "I", m)],
    }[kind]
    return [Op(*w) for w in wanted if Op(*w) in ops]


def is_legal(rows: Rows, pairs: Pairs = ()) -> bool:
    """Whether rows run to their end, everything once and everything there; the slow judge of pplab.Schedule."""
    counts = Counter(op for row in rows for op in row)
    ops = set(counts)
    stages, microbatches = (range(1 + max(op[i] for op in ops)) for i in (0, 2))
    device = {op: d for d, row in enumerate(rows) for op in row}
    if max(counts.values()) > 1 or not all(rows):
        return False
    training = any(op.kind != "F" for op in ops)
    for s in stages:
        for m in microbatches:
            has = "".join(kind for kind in "FBIW" if Op(s, kind, m) in ops)
            if has not in (("FB", "FIW") if training else ("F",)):
                return False
            if len({device[Op(s, kind, m)] for kind in has}) > 1:
                return False
    done: set[Op] = set()
    left = [units_of(row, pairs) for row in rows]
    moved = True
    while moved:
        moved = False
        for row in left:
            while row and all(n in done for op in row[0] for n in needs(op, ops)):
                done.update(row.pop(0))
                moved = True
    return not any(left)


def units_of(row: list[Op], pairs: Pairs) -> list[tuple[Op, ...]]:
    """A row cut into what runs as one: single ops, and pairs."""
    second = dict(pairs)
    seconds = set(second.values())
    return [(op, second[op]) if op in second else (op,) for op in row if op not in seconds]


# ── The times ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Prices(NamedTuple):
    """Costs as plain lists, one value a stage; hop: one a boundary."""

    forward: list[float]
    backward_input: list[float]
    backward_weight: list[float]
    hop: list[float]
    backward: list[float] | None = None
    pair: list[float] | None = None
    blocking: bool = False

    def of(self, op: Op) -> float:
        """What one op takes alone."""
        s, kind, _ = op
        if kind == "B":
            return self.backward_input[s] + self.backward_weight[s] if self.backward is None else self.backward[s]
        return {"F": self.forward, "I": self.backward_input, "W": self.backward_weight}[kind][s]

    def of_unit(self, unit: tuple[Op, ...]) -> float:
        """What an op, or a pair that runs as one, takes."""
        fused = len(unit) == 2 and self.pair is not None
        return self.pair[unit[0].stage] if fused else sum(map(self.of, unit))


def replay(rows: Rows, pairs: Pairs, prices: Prices) -> dict[Op, tuple[float, float]]:
    """Start and end of each op: everything starts at 0, then is pushed later until every rule holds."""
    device = {op: d for d, row in enumerate(rows) for op in row}
    ops = set(device)
    units = [units_of(row, pairs) for row in rows]
    messages = {op: [n for n in needs(op, ops) if device[n] != device[op]] for op in ops}
    receivers = {sender: op for op in ops for sender in messages[op]}
    hop = {op: prices.hop[min(n.stage, op.stage)] for op in ops for n in messages[op]}
    sends = {op: hop[receivers[op]] if op in receivers else 0.0 for op in ops}
    # Blocking: of a pair, the second op's message leaves once the first op's has.
    leaves = {unit[-1]: sends[unit[0]] for row in units for unit in row if len(unit) == 2} if prices.blocking else {}
    times = dict.fromkeys(ops, (0.0, 0.0))
    changed = True
    while changed:
        changed = False
        for row in units:
            free = 0.0
            for unit in row:
                begin = free
                for op in unit:
                    for n in needs(op, ops):
                        travel = 0.0 if n not in messages[op] else leaves.get(n, 0.0) if prices.blocking else hop[op]
                        begin = max(begin, times[n][1] + travel)
                if prices.blocking:
                    begin = begin + sum(hop.get(op, 0.0) for op in unit)
                end = begin + prices.of_unit(unit)
                free = end + (sum(sends[op] for op in unit) if prices.blocking else 0.0)
                for op in unit:
                    changed |= times[op] != (begin, end)
                    times[op] = (begin, end)
    return times


# ── Random schedules ──────────────────────────────────────────────────────────────────────────────────────────────


class Drawn(NamedTuple):
    """A random legal schedule, as rows."""

    rows: Rows
    pairs: Pairs

    def build(self) -> Schedule:
        """The same as a pplab.Schedule."""
        return Schedule(self.rows, pairs=self.pairs)

    @property
    def num_stages(self) -> int:
        """How many stages it has."""
        return 1 + max(op.stage for row in self.rows for op in row)


@st.composite
def drawn(draw, devices=(1, 4), microbatches=(1, 4), chunks=(1, 3), kinds=("B", "IW", "mixed", "F"), pairs=True):
    """A random legal order of random passes on random devices: whatever is ready may run next."""
    d, m, v = (draw(st.integers(*bounds)) for bounds in (devices, microbatches, chunks))
    placement = draw(st.sampled_from(["loop", "vee", "both ways", "anywhere"]))
    mode = draw(st.sampled_from(kinds))
    dice = random.Random(draw(st.integers(0, 2**32)))
    stages = d if placement == "both ways" else d * v
    where = [dice.randrange(d) for _ in range(stages)]
    place = {
        "loop": lambda s, m: s % d,
        "vee": lambda s, m: s % d if s // d % 2 == 0 else d - 1 - s % d,
        "both ways": lambda s, m: s if m % 2 == 0 else d - 1 - s,  # as DualPipe: a stage stands on two devices
        "anywhere": lambda s, m: where[s],
    }[placement]
    device = {}
    for s in range(stages):
        for b in range(m):
            halves = dice.choice(["B", "IW"]) if mode == "mixed" else mode
            device |= {Op(s, kind, b): place(s, b) for kind in ("F" if mode == "F" else "F" + halves)}
    return _list_schedule(device, d, dice, pairs)


def _list_schedule(device: dict[Op, int], num_devices: int, dice: random.Random, with_pairs: bool) -> Drawn:
    ops, rows, pairs, done = set(device), [[] for _ in range(num_devices)], [], set()
    left = {op: needs(op, ops) for op in sorted(ops)}
    while left:
        ready = [op for op, wanted in left.items() if done.issuperset(wanted)]
        first = dice.choice(ready)
        mates = [op for op in ready if device[op] == device[first] and op != first]
        unit = [first]
        if with_pairs and mates and dice.random() < 0.2:
            unit.append(dice.choice(mates))
            pairs.append((unit[0], unit[1]))
        for op in unit:
            rows[device[op]].append(op)
            done.add(op)
            del left[op]
    return Drawn([row for row in rows if row], pairs)


TIMES = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(0, 10), st.integers(0, 80).map(lambda n: n / 8))


@st.composite
def prices(draw, num_stages: int, blocking=None):
    """Random costs, one a stage and one a boundary: whole, fractional or 0."""

    def each(count):
        return draw(st.lists(TIMES, min_size=count, max_size=count))

    return Prices(
        forward=each(num_stages),
        backward_input=each(num_stages),
        backward_weight=each(num_stages),
        hop=each(num_stages - 1),
        backward=each(num_stages) if draw(st.booleans()) else None,
        pair=each(num_stages) if draw(st.booleans()) else None,
        blocking=draw(st.booleans()) if blocking is None else blocking,
    )


@st.composite
def priced(draw, **sizes):
    """A random schedule and random costs that fit it."""
    blocking = sizes.pop("blocking", None)
    schedule = draw(drawn(**sizes))
    return schedule, draw(prices(schedule.num_stages, blocking))


# ── Reading errors ────────────────────────────────────────────────────────────────────────────────────────────────

OP_TEXT = re.compile(r"\b\d+[FBIW]\d+\b")


def simulated_as(t, expected: dict[Op, tuple[float, float]]) -> bool:
    """Whether a timeline has these times, to the last bit."""
    return {span.op: (span.start, span.end) for span in t} == expected


def orders(row: list[Op]) -> list[list[Op]]:
    """Every order of a device's passes in which a backward follows its forward."""
    return [list(p) for p in permutations(row) if all(p.index(Op(s, "F", m)) <= p.index((s, k, m)) for s, k, m in p)]
