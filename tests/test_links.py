"""Messages that queue on links: closed forms and pictures worked out by hand, a slow replay, pictures, errors."""

import re
import xml.etree.ElementTree as ET
from collections import defaultdict, deque
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import TIMES, Prices, drawn, examples, needs, read_picture, units_of

import pplab
from pplab import Costs, Schedule, makespan, read_json, read_torch_csv, simulate, svg, write_json
from pplab.draw import draw_timeline
from pplab.timeline import Timeline

TORCH = Path(__file__).parent / "data/torch_csv"
MODES = {"overlapped": {}, "blocking": {"blocking": True}, "links": {"links": True}}


# ── By hand ───────────────────────────────────────────────────────────────────────────────────────────────────────
# A line a device, and a line a link and direction, on which a message stands for as long as it occupies it.


def pictured(text):
    """ "0→1  .  F0 -" → {"0→1": {"F0": (1, 3)}}."""
    lines = [line.split(maxsplit=1) for line in text.strip().splitlines()]
    return {label: read_picture(cells)[0] for label, cells in lines}


def seen(t, costs):
    """What a timeline looks like, as pictured gives it; ops by their stage too where a device has several."""
    s, rows = t.schedule, defaultdict(dict)
    several = any(len({op.stage for op in row}) > 1 for row in s.rows)
    names = [str(s.op(i)) if several else str(s.op(i))[1:] for i in range(s.num_ops)]
    for i, span in enumerate(t):
        rows[str(span.device)][names[i]] = (span.start, span.end)
    takes = costs.of_transfers(s)
    for i, j, departure, _ in zip(*t.messages, strict=True):
        rows[f"{t.device[i]}→{t.device[j]}"][names[i]] = (departure, departure + takes[j])
    return dict(rows)


PICTURES = {
    "a slow link: messages queue": (
        pplab.gpipe(2, 3),
        Costs(backward=1, hop=2, links=True),
        """
        0    F0 F1 F2 .  .  .  .  .  .  .  .  B2 .  B1 .  B0
        0→1  .  F0 -  F1 -  F2 -  .  .  .  .  .  .  .  .  .
        1    .  .  .  F0 .  F1 .  F2 B2 B1 B0 .  .  .  .  .
        1→0  .  .  .  .  .  .  .  .  .  B2 -  B1 -  B0 -  .
        """,
    ),
    "a link as quick as a pass: nobody queues": (
        pplab.gpipe(2, 3),
        Costs(backward=1, hop=1, links=True),
        """
        0    F0 F1 F2 .  .  .  .  B2 B1 B0
        0→1  .  F0 F1 F2 .  .  .  .  .  .
        1    .  .  F0 F1 F2 B2 B1 B0 .  .
        1→0  .  .  .  .  .  .  B2 B1 B0 .
        """,
    ),
    "a slow link with a latency of one slot": (
        pplab.gpipe(2, 3),
        Costs(backward=1, hop=3, transfer=2, links=True),
        """
        0    F0 F1 F2 .  .  .  .  .  .  .  .  .  .  B2 .  B1 .  B0
        0→1  .  F0 -  F1 -  F2 -  .  .  .  .  .  .  .  .  .  .  .
        1    .  .  .  .  F0 .  F1 .  F2 B2 B1 B0 .  .  .  .  .  .
        1→0  .  .  .  .  .  .  .  .  .  .  B2 -  B1 -  B0 -  .  .
        """,
    ),
    "both directions at once": (
        pplab.one_f_one_b(2, 2),
        Costs(backward=1, hop=3, links=True),
        """
        0    F0 F1 .  .  .  .  .  .  .  B0 .  .  B1
        0→1  .  F0 -  -  F1 -  -  .  .  .  .  .  .
        1    .  .  .  .  F0 B0 .  F1 B1 .  .  .  .
        1→0  .  .  .  .  .  .  B0 -  -  B1 -  -  .
        """,
    ),
    "a device that sends to two others has a link to each": (
        Schedule(["0F0 0F1 0F2 2F0 2F1 2F2", "1F0 1F1 1F2", "3F0 3F1 3F2"]),
        Costs(hop=[3, 0, 3], links=True),
        """
        0    0F0 0F1 0F2 .   .   2F0 .   .   2F1 .   .   2F2 .   .   .   .
        0→1  .   0F0 -   -   0F1 -   -   0F2 -   -   .   .   .   .   .   .
        1    .   .   .   .   1F0 .   .   1F1 .   .   1F2 .   .   .   .   .
        0→2  .   .   .   .   .   .   2F0 -   -   2F1 -   -   2F2 -   -   .
        2    .   .   .   .   .   .   .   .   .   3F0 .   .   3F1 .   .   3F2
        """,
    ),
    "two stages of one device share its link": (  # 2F0 is made at 9, and waits for 0F2 until 10
        Schedule(["0F0 0F1 0F2 2F0 2F1 2F2", "1F0 1F1 1F2 3F0 3F1 3F2"]),
        Costs(hop=3, links=True),
        """
        0    0F0 0F1 0F2 .   .   .   .   .   2F0 .   .   2F1 .   .   2F2 .   .   .   .   .
        0→1  .   0F0 -   -   0F1 -   -   0F2 -   -   2F0 -   -   2F1 -   -   2F2 -   -   .
        1    .   .   .   .   1F0 .   .   1F1 .   .   1F2 .   .   3F0 .   .   3F1 .   .   3F2
        1→0  .   .   .   .   .   1F0 -   -   1F1 -   -   1F2 -   -   .   .   .   .   .   .
        """,
    ),
    "a gradient and an activation that go the same way share the link": (  # 0F1 is made at 9, and waits for 2B0
        Schedule(["0F0 2F0 2B0 0F1 2F1 2B1 0B0 0B1", "1F0 1B0 1F1 1B1"]),
        Costs(backward=1, hop=2, links=True),
        """
        0    0F0 .   .   .   .   .   2F0 2B0 0F1 .   .   .   .   .   .   2F1 2B1 0B0 .   .   .   .   0B1
        0→1  .   0F0 -   .   .   .   .   .   2B0 -   0F1 -   .   .   .   .   .   2B1 -   .   .   .   .
        1    .   .   .   1F0 .   .   .   .   .   .   1B0 .   1F1 .   .   .   .   .   .   1B1 .   .   .
        1→0  .   .   .   .   1F0 -   .   .   .   .   .   1B0 -   1F1 -   .   .   .   .   .   1B1 -   .
        """,
    ),
    "first in, first out: a short message waits behind a long one": (  # 2F0, made at 8, behind 0F1
        Schedule(["0F0 0F1 2F0 2F1", "1F0 1F1 3F0 3F1"]),
        Costs(hop=[4, 1, 1], links=True),
        """
        0    0F0 0F1 .   .   .   .   .   2F0 .   .   .   2F1 .   .
        0→1  .   0F0 -   -   -   0F1 -   -   -   2F0 .   .   2F1 .
        1    .   .   .   .   .   1F0 .   .   .   1F1 3F0 .   .   3F1
        1→0  .   .   .   .   .   .   1F0 .   .   .   1F1 .   .   .
        """,
    ),
}


@pytest.mark.parametrize("case", PICTURES)
def test_pictures_worked_out_by_hand(case):
    schedule, costs, picture = PICTURES[case]
    t = simulate(schedule, costs)
    assert seen(t, costs) == pictured(picture)
    assert (t.arrival - t.departure)[t.messages.sender].tolist() == costs.of_hops(schedule)[
        t.messages.needed_by
    ].tolist()


GRID = [(m, f, b, x) for m in (1, 2, 3, 8) for f, b in ((1, 2), (2, 1), (1, 1)) for x in (0, 1, 1.5, 2, 3, 4.5, 20)]


@pytest.mark.parametrize("latency", [0, 2.25])
@pytest.mark.parametrize(("m", "f", "b", "x"), GRID)
def test_gpipe_on_two_devices_sends_a_message_every_x(m, f, b, x, latency):
    """Device 1 gets F0 at f + x, and another message every max(f, x): it has run all forwards by T.

        0    F0 F1 F2 .  .  .  .  .  .  .  .  B2 .  B1 .  B0       f, x, (M−1)·max(f, x), f: T = 8
        0→1  .  F0 -  F1 -  F2 -  .  .  .  .  .  .  .  .  .
        1    .  .  .  F0 .  F1 .  F2 B2 B1 B0 .  .  .  .  .        b, x, (M−1)·max(b, x), b from T on
        1→0  .  .  .  .  .  .  .  .  .  B2 -  B1 -  B0 -  .

    The way back is the same with b for f. A latency shifts each way once, whatever queues.
    """
    costs = Costs(f, backward=b, hop=x + latency, transfer=x, links=True)
    t = simulate(pplab.gpipe(2, m), costs)
    assert makespan(t) == 2 * (f + b + x + latency) + (m - 1) * (max(f, x) + max(b, x))
    k = np.arange(m)
    second = t.device == 1
    assert t.departure[:m].tolist() == (f + k * max(f, x)).tolist()
    assert t.start[second][:m].tolist() == (f + x + latency + k * max(f, x)).tolist()
    if x <= min(f, b):
        assert t == simulate(pplab.gpipe(2, m), Costs(f, backward=b, hop=x + latency))


@pytest.mark.parametrize(("m", "f", "b", "x"), GRID)
def test_1f1b_on_two_devices_sends_both_ways_at_once(m, f, b, x):
    """Two micro-batches go to device 1 and back, then the next two: a round of 2(f + b + x), however slow the link.

        0    F0 F1 .  .  .  .  .  .  .  B0 F2 .  B1 F3       from F0 on device 1 to F2: f + b, x, b, f, x. F1's
        0→1  .  F0 -  -  F1 -  -  .  .  .  .  F2 -  -        message leaves as F0's arrives, if x > f, and is
        1    .  .  .  .  F0 B0 .  F1 B1 .  .  .  .  .        there before B0 is done, if x < f + b
        1→0  .  .  .  .  .  .  B0 -  -  B1 -  -  .  .

    M even: M/2 − 1 rounds and f, x, then f + b twice or, if longer, x and f + b; then x, b. M odd: (M−1)/2 rounds
    and f, x, f + b, x, b. While x ≤ f + b nothing is lost against messages that do not queue.
    """
    t = simulate(pplab.one_f_one_b(2, m), Costs(f, backward=b, hop=x, links=True))
    assert makespan(t) == m * (f + b + x) + (f + b + x if m % 2 else max(f + b, x))
    if x <= f + b:
        assert makespan(t) == makespan(simulate(pplab.one_f_one_b(2, m), Costs(f, backward=b, hop=x)))


def test_on_a_slow_link_1f1b_beats_gpipe_which_sends_one_way_at_a_time():
    """Many micro-batches, x ≫ f, b: GPipe pays x twice a micro-batch, 1F1B once; without queues GPipe would win."""
    slow, free = Costs(hop=20, links=True), Costs(hop=20)
    gpipe, one = pplab.gpipe(2, 64), pplab.one_f_one_b(2, 64)
    assert makespan(simulate(gpipe, slow)) == 2 * 3 + 2 * 64 * 20
    assert makespan(simulate(one, slow)) == 64 * 3 + 65 * 20
    assert makespan(simulate(gpipe, free)) == 65 * 3 + 2 * 20
    assert makespan(simulate(one, free)) == 65 * 3 + 64 * 20


@pytest.mark.parametrize("f", [0.5, 1, 2])
@pytest.mark.parametrize("transfers", [[3, 1, 2], [1, 1, 1], [0.5, 2, 2], [0, 4, 0.25]])
@pytest.mark.parametrize("m", [1, 2, 7])
def test_the_slowest_pass_or_link_sets_the_pace(m, transfers, f):
    """A chain of passes and links, all at once: the first micro-batch's way, then one every longest part.

    0    F0 F1 F2                        were all links one, the pace would be their sum
    0→1  .  F0 -  F1 -  F2 -
    1    .  .  .  F0 .  F1 .  F2
    1→2  .  .  .  .  F0 -  F1 -  F2 -
    2    .  .  .  .  .  .  F0 .  F1 .  F2
    """
    forwards = Schedule([[(d, "F", k) for k in range(m)] for d in range(4)])
    t = simulate(forwards, Costs(f, hop=transfers, links=True))
    assert makespan(t) == 4 * f + sum(transfers) + (m - 1) * max(f, *transfers)


@pytest.mark.parametrize("mode", MODES)
def test_no_link_between_chunks_of_one_device(mode):
    """Stages 1 and 2 lie on device 1: what its boundary would cost does not matter, nor does it take a message."""
    vee = Schedule(["0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1", "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1"])
    near, far = (simulate(vee, Costs(hop=[1, x, 2], **MODES[mode])) for x in (0, 1000))
    assert near == far
    assert {vee.op(i).stage for i in near.messages.sender} == (set() if mode == "blocking" else {0, 1, 2, 3})
    inner = [vee.find(op) for op in ((1, "F", 0), (2, "B", 1))]
    assert near.departure[inner].tolist() == near.arrival[inner].tolist() == near.end[inner].tolist()
    alone = Schedule(["0F0 1F0 0F1 1F1"])
    assert makespan(simulate(alone, Costs(hop=9, **MODES[mode]))) == 4


@pytest.mark.parametrize(("pair", "forward_at", "gradient_at"), [("1F1 3B0", 9, 10), ("3B0 1F1", 10, 9)])
def test_a_pair_sends_its_first_ops_message_first(pair, forward_at, gradient_at):
    """Device 1's pair ends at 9 and has two messages for device 0; its pass of stage 2 that needs 1F1 comes first.

    0    0F0 0F1 .   .   2F0 .   .   .   .   .   2F1 2B0
    1    .   .   1F0 .   .   .   3F0 1F1&3B0 -
    1→0  .   .   .   1F0 .   .   .   .   .   1F1 3B0
    """
    rows = ["0F0 0F1 2F0 2F1 2B0 0B0 2B1 0B1", f"1F0 3F0 {pair} 3F1 1B0 3B1 1B1"]
    s = Schedule(rows, pairs=[tuple(pair.split())])
    t = simulate(s, Costs(backward=1, hop=1, links=True))
    f, b = s.find((1, "F", 1)), s.find((3, "B", 0))
    assert t.end[[f, b]].tolist() == [9, 9]
    assert t.departure[[f, b]].tolist() == [forward_at, gradient_at]
    assert t.arrival[[f, b]].tolist() == [forward_at + 1, gradient_at + 1]
    assert t.start[s.find((2, "F", 1))] == forward_at + 1


# ── Against a slow replay, to the last bit ────────────────────────────────────────────────────────────────────────


def replay(d, costs, mode):
    """Start, end, departure and arrival of each op: each device runs what is next in its row once all is known.

    ``costs``: functions of an op or a unit (work), and of a boundary (hop, transfer). A link is a number a
    pair of devices: when it is free again.
    """
    device = {op: k for k, row in enumerate(d.rows) for op in row}
    ops = set(device)
    receiver = {n: op for op in ops for n in needs(op, ops) if device[n] != device[op]}
    rows = [deque(units_of(row, d.pairs)) for row in d.rows]
    free, link, times = defaultdict(float), defaultdict(float), {}
    while any(rows):
        for row in rows:
            while row and all(n in times for op in row[0] for n in needs(op, ops)):
                unit = row.popleft()
                me = device[unit[0]]
                come = [n for op in unit for n in needs(op, ops) if device[n] != me]
                begin = max([free[me], *(times[n][3] for n in come)])
                if mode == "blocking":
                    begin += sum(costs.hop(min(n.stage, receiver[n].stage)) for n in come)
                end = begin + costs.work(unit)
                spent = 0.0  # blocking: sending what was made so far
                for op in unit:
                    times[op] = (begin, end, end, end)
                    if op not in receiver:
                        continue
                    boundary = min(op.stage, receiver[op].stage)
                    departure = end + spent
                    if mode == "links":
                        way = me, device[receiver[op]]
                        departure = max(end, link[way])
                        link[way] = departure + costs.transfer(boundary)
                    if mode == "blocking":
                        spent += costs.hop(boundary)
                    arrival = departure if mode == "blocking" else departure + costs.hop(boundary)
                    times[op] = (begin, end, departure, arrival)
                free[me] = end + spent
    return times


@st.composite
def sent(draw, **sizes):
    """A random schedule; costs a stage or a stage and micro-batch, hop and transfer a boundary; also as functions."""
    d = draw(drawn(**sizes))
    stages, microbatches = d.num_stages, 1 + max(op.microbatch for row in d.rows for op in row)

    def each(count):
        return draw(st.lists(TIMES, min_size=count, max_size=count))

    def a_pass():
        shape = draw(st.sampled_from(["number", "stage", "table"]))
        if shape == "number":
            return draw(TIMES)
        return each(stages) if shape == "stage" else [each(microbatches) for _ in range(stages)]

    values = {"forward": a_pass(), "backward_input": a_pass(), "backward_weight": a_pass()}
    values |= {"backward": a_pass()} if draw(st.booleans()) else {}
    values |= {"pair": each(stages)} if draw(st.booleans()) else {}
    transfer = each(stages - 1)
    latency = each(stages - 1) if draw(st.booleans()) else [0.0] * (stages - 1)
    values["hop"] = [x + y for x, y in zip(transfer, latency, strict=True)]
    values |= {"transfer": transfer} if any(latency) else {}

    def alone(op):
        if op.kind == "B" and "backward" not in values:
            return alone(op._replace(kind="I")) + alone(op._replace(kind="W"))
        value = values[{"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}[op.kind]]
        for place in (op.stage, op.microbatch):
            value = value[place] if isinstance(value, list) else value
        return value

    def work(unit):
        return values["pair"][unit[0].stage] if len(unit) == 2 and "pair" in values else sum(map(alone, unit))

    return d, values, SimpleNamespace(work=work, hop=values["hop"].__getitem__, transfer=transfer.__getitem__)


def times_of(t):
    """Start, end, departure and arrival by op."""
    columns = (t.start, t.end, t.departure, t.arrival)
    return {span.op: row for span, row in zip(t, zip(*(c.tolist() for c in columns), strict=True), strict=True)}


@pytest.mark.parametrize("mode", MODES)
@given(sent())
@examples(120)
def test_times_equal_those_of_a_slow_replay_exactly(mode, case):
    d, values, costs = case
    assert times_of(simulate(d.build(), Costs(**values, **MODES[mode]))) == replay(d, costs, mode)


@given(sent(devices=(8, 12), microbatches=(1, 4), chunks=(1, 2)))
@examples(30)
def test_times_on_many_devices_equal_those_of_a_slow_replay_exactly(case):
    d, values, costs = case
    assert times_of(simulate(d.build(), Costs(**values, links=True))) == replay(d, costs, "links")


@pytest.mark.parametrize("name", sorted(path.name for path in TORCH.glob("*.compute_only.csv")))
@pytest.mark.parametrize("mode", MODES)
def test_torchs_schedules_equal_the_slow_replay_too(name, mode):
    s = read_torch_csv(TORCH / name)
    p = Prices(*([1.0] * s.num_stages for _ in range(3)), hop=[])
    costs = SimpleNamespace(work=p.of_unit, hop=lambda k: 1.25 + k % 2, transfer=lambda k: 1.0 + k % 2)
    d = SimpleNamespace(rows=s.rows, pairs=s.pairs)
    hop, transfer = ([f(k) for k in range(s.num_stages - 1)] for f in (costs.hop, costs.transfer))
    t = simulate(s, Costs(hop=hop, transfer=transfer, **MODES[mode]))
    assert times_of(t) == replay(d, costs, mode)


def test_a_table_has_a_row_a_stage_and_a_column_a_micro_batch():
    """A routed layer on stage 1 takes 1, 4, 2; its table says the same as three numbers would, were it even."""
    t = simulate(pplab.gpipe(2, 3), Costs(forward=[[1, 1, 1], [1, 4, 2]], backward=1))
    assert (t.end - t.start)[t.schedule.is_kind("F")].tolist() == [1, 1, 1, 1, 4, 2]
    assert makespan(t) == 1 + 1 + 4 + 2 + 3 + 1
    for name in ("forward", "backward_input", "backward_weight", "backward"):
        s = Schedule(["0F0 0F1 0I0 0W0 0B1", "1F0 1F1 1I0 1W0 1B1"])
        assert simulate(s, Costs(**{name: [[2, 2], [3, 3]]})) == simulate(s, Costs(**{name: [2, 3]}))


# ── Properties ────────────────────────────────────────────────────────────────────────────────────────────────────


@given(sent())
@examples(100)
def test_links_are_never_earlier_than_messages_that_do_not_queue(case):
    d, values, _ = case
    s = d.build()
    free, queued = (simulate(s, Costs(**values, **MODES[mode])) for mode in ("overlapped", "links"))
    for column in ("start", "end", "departure", "arrival"):
        assert (getattr(queued, column) >= getattr(free, column)).all()
    assert pplab.lower_bound(s, Costs(**values, links=True)) <= makespan(queued) * (1 + 1e-12)


@given(sent())
@examples(50)
def test_links_on_which_a_message_takes_no_time_are_messages_that_do_not_queue(case):
    d, values, _ = case
    s = d.build()
    assert simulate(s, Costs(**values | {"transfer": 0}, links=True)) == simulate(s, Costs(**values))


@given(sent())
@examples(30)
def test_messages_of_no_bytes_are_no_hop(case):
    """Bytes over a bandwidth; the more of it, the nearer to this."""
    d, values, _ = case
    s, passes = d.build(), {k: v for k, v in values.items() if k not in ("hop", "transfer")}
    none = simulate(s, Costs(**passes))
    for mode in MODES.values():
        assert simulate(s, Costs(**passes, message_bytes=0, bandwidth=1, **mode)) == none
    fast = simulate(s, Costs(**passes, message_bytes=1, bandwidth=1e300, links=True))
    assert fast.end == pytest.approx(none.end)
    assert not len(none.messages.sender)


def test_bytes_over_the_bandwidth_occupy_the_link_and_the_given_hop_is_latency():
    bytes_over = Costs(hop=0.5, message_bytes=6, bandwidth=[2, 3, 6], links=True)
    assert (bytes_over.transfer.tolist(), bytes_over.hop.tolist()) == ([3, 2, 1], [3.5, 2.5, 1.5])
    plain = Costs(hop=[3.5, 2.5, 1.5], transfer=[3, 2, 1], links=True)
    assert simulate(pplab.one_f_one_b(4, 6), bytes_over) == simulate(pplab.one_f_one_b(4, 6), plain)


@given(sent())
@examples(100)
def test_messages_keep_the_rules_of_their_links(case):
    d, values, _ = case
    s, costs = d.build(), Costs(**values, links=True)
    t = simulate(s, costs)
    needed_by = np.flatnonzero(s.hops)
    sender = s.needs[needed_by, 0]
    hop, transfer = costs.of_hops(s)[needed_by], costs.of_transfers(s)[needed_by]
    departure = t.departure[sender]
    assert (departure >= t.end[sender]).all()
    assert (t.arrival[sender] == departure + hop).all()
    assert (t.start[needed_by] >= t.arrival[sender]).all()
    links = defaultdict(list)
    for k in np.argsort(sender):  # in the order in which they were made
        links[t.device[sender[k]], t.device[needed_by[k]]].append(k)
    for queue in links.values():
        for k, follows in pairwise(queue):
            assert departure[follows] == max(t.end[sender[follows]], departure[k] + transfer[k])
    m, took = t.messages, departure + hop > departure
    assert m.sender.tolist() == sender[took].tolist()
    assert m.needed_by.tolist() == needed_by[took].tolist()
    assert m.departure.tolist() == departure[took].tolist()
    assert m.arrival.tolist() == t.arrival[sender[took]].tolist()
    silent = np.setdiff1d(np.arange(s.num_ops), sender)
    assert t.departure[silent].tolist() == t.arrival[silent].tolist() == t.end[silent].tolist()
    assert not t.send.any()
    assert not t.receive.any()


# ── Idle time ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(sent())
@examples(100)
def test_reasons_still_sum_to_the_idle_time(case):
    d, values, _ = case
    t = simulate(d.build(), Costs(**values, links=True))
    idle = pplab.idle_by_reason(t)
    assert sum(idle.values()) == pytest.approx(makespan(t) - pplab.busy_time(t), abs=1e-7 * makespan(t))
    assert not idle["communication"].any()
    assert all((part >= 0).all() for part in idle.values())


@pytest.mark.parametrize(("m", "f", "b", "x"), [case for case in GRID if case[3] >= max(case[1:3])])
def test_what_queues_is_time_lost_to_hops(m, f, b, x):
    """GPipe, x ≥ f, b: both devices wait for x each way, and for x − f or x − b from one message to the next."""
    idle = pplab.idle_by_reason(simulate(pplab.gpipe(2, m), Costs(f, backward=b, hop=x, links=True)))
    assert idle["hop"] == pytest.approx([2 * x + (m - 1) * (2 * x - f - b)] * 2)
    assert idle["ramp"] + idle["drain"] == pytest.approx([f + b] * 2)


@given(sent())
@examples(80)
def test_a_device_that_waits_waits_for_the_message_that_comes_last(case):
    d, values, _ = case
    s = d.build()
    t = simulate(s, Costs(**values, links=True))
    for gap in pplab.idle_gaps(t):
        if gap.before is None or gap.waiting_for is None:
            continue
        i = s.find(gap.waiting_for)
        sends = [i, i + 1] if s.paired[i] else [i]
        assert gap.end in t.arrival[sends]


def test_of_two_messages_a_pair_waits_for_the_one_that_comes_last_not_the_one_made_last():
    """Device 2's pair needs 2F0, which is there at 13, and 0F1, which was made at 2 and is there at 21.

    0F0 0–1, on the link until 11; 0F1 1–2, on it until 21; 1F0 11–12, 2F0 12–13; the pair 21–23, 2F1 23–24, 3F1 24–25.
    """
    s = Schedule(["0F0 0F1", "2F0 2F1", "1F0 3F0 1F1 3F1"], pairs=[("3F0", "1F1")])
    t = simulate(s, Costs(hop=[10, 0, 0], links=True))
    assert makespan(t) == 25
    assert [str(span.op) for span in pplab.critical_path(t)] == ["0F0", "0F1", "3F0", "2F1", "3F1"]
    gap = next(gap for gap in pplab.idle_gaps(t) if gap.device == 2 and gap.start == 12)
    assert (str(gap.waiting_for), gap.end, gap.reason) == ("0F1", 21, "hop")


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(sent(), st.sampled_from(sorted(MODES)))
@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_json_keeps_departure_and_arrival_to_the_last_bit(tmp_path, case, mode):
    d, values, _ = case
    t = simulate(d.build(), Costs(**values, **MODES[mode]))
    write_json(t, tmp_path / "a.json")
    again = read_json(tmp_path / "a.json")
    assert isinstance(again, Timeline)
    assert times_of(again) == times_of(t)
    assert again == t
    assert all(a.tolist() == b.tolist() for a, b in zip(again.messages, t.messages, strict=True))


def test_timelines_whose_messages_differ_are_not_equal():
    t = simulate(pplab.gpipe(2, 2), Costs(hop=1, links=True))
    later = Timeline(t.schedule, t.start, t.end, departure=t.departure, arrival=t.arrival + 1)
    assert later != t
    assert Timeline(t.schedule, t.start, t.end).departure.tolist() == t.end.tolist()
    with pytest.raises(ValueError, match="arrival needs 8 finite times, one an op of gpipe"):
        Timeline(t.schedule, t.start, t.end, arrival=[1.0])


# ── Pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────

NS = "{http://www.w3.org/2000/svg}"
LEFT, RIGHT = 74, 12  # pixels left of the time axis and right of it
DRAWN = {
    "two ways": (pplab.one_f_one_b(4, 4), Costs(hop=2, links=True)),
    "wrapped": (read_torch_csv(TORCH / "Interleaved1F1B_D4_M8_V2.compute_only.csv"), Costs(hop=3, links=True)),
    "latency": (pplab.gpipe(3, 4), Costs(hop=[3, 2], transfer=[1, 2], links=True)),
    "overlapped": (pplab.gpipe(3, 4), Costs(hop=1)),
}
BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-([\d.]+)z")
drawn_cases = pytest.mark.parametrize("case", DRAWN)


@drawn_cases
def test_svg_draws_a_bar_a_message_between_the_rows(case):
    t = simulate(*DRAWN[case])
    scale = 10
    root = ET.fromstring(svg.timeline(t, width=LEFT + RIGHT + scale * makespan(t)))
    lanes = [r for r in root.iter(f"{NS}rect") if r.get("class") == "lane"]
    tops = [float(r.get("y")) for r in lanes]
    feet = [top + float(r.get("height")) for top, r in zip(tops, lanes, strict=True)]
    (path,) = [p.get("d") for p in root.iter(f"{NS}path") if p.get("class") == "M"]
    bars = [tuple(map(float, bar)) for bar in BAR.findall(path)]
    assert len(bars) == len(t.messages.sender) == path.count("M") > 0
    for (x, y, wide, tall, back), sender, needed_by, departure, arrival in zip(bars, *t.messages, strict=True):
        assert x == pytest.approx(LEFT + scale * departure, abs=0.01)
        assert wide == back == pytest.approx(scale * (arrival - departure), abs=0.01)
        mine, other = t.device[[sender, needed_by]]
        if other > mine:  # below the sender's row
            assert feet[mine] < y < y + tall < tops[mine + 1]
        else:
            assert feet[mine - 1] < y < y + tall < tops[mine]
    assert "message" in [e.text for e in root.iter(f"{NS}text")]


@drawn_cases
def test_matplotlib_draws_a_bar_a_message_between_the_rows(case):
    t = simulate(*DRAWN[case])
    ax = draw_timeline(t)
    (collection,) = [c for c in ax.collections if c.get_label() == "message"]
    bars = [path.get_extents() for path in collection.get_paths()]
    half = ax.patches[0].get_height() / 2  # of a device's lane
    assert len(bars) == len(t.messages.sender)
    for bar, sender, needed_by, departure, arrival in zip(bars, *t.messages, strict=True):
        assert (bar.x0, bar.x1) == (departure, arrival)
        mine, other = t.device[[sender, needed_by]]
        if other > mine:  # below the sender's row; device 0 is on top, so below is more
            assert mine + half < bar.y0 < bar.y1 < mine + 1 - half
        else:
            assert mine - 1 + half < bar.y0 < bar.y1 < mine - half
    assert "message" in [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("costs", [Costs(hop=1, blocking=True), Costs(links=True), Costs()])
def test_no_bars_where_messages_keep_devices_busy_or_take_no_time(costs):
    t = simulate(pplab.one_f_one_b(4, 4), costs)
    assert not svg.shows_messages(t)
    root = ET.fromstring(svg.timeline(t))
    assert not [p for p in root.iter() if p.get("class") == "M"]
    assert "message" not in [e.text for e in root.iter(f"{NS}text")]
    assert "message" not in [text.get_text() for text in draw_timeline(t).get_legend().get_texts()]


# ── Errors ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            dict(blocking=True, links=True),
            "blocking and links are two ways to send a message: choose one of them",
        ),
        (dict(hop=1, transfer=1.5, links=True), "transfer is longer than hop: it is the part of the hop in which"),
        (dict(transfer=1, links=True), "transfer is longer than hop"),
        (dict(hop=[1, 2, 3], transfer=[1, 2.5, 3], links=True), "transfer is longer than hop"),
        (dict(hop=[1, 2], transfer=[1, 2, 3], links=True), "transfer has 3 values and hop has 2"),
        (
            dict(hop=[1, 2], message_bytes=6, bandwidth=[1, 2, 3]),
            "message_bytes / bandwidth has 3 values and hop has 2",
        ),
        (dict(transfer=-1), "transfer is -1: a time must be finite and not negative"),
        (dict(hop=[2, 2], transfer=[1, float("nan")]), "transfer[1] is nan: a time must be finite"),
        (dict(links="yes"), "links must be True or False, not 'yes'"),
        (dict(links=1), "links must be True or False, not 1"),
        (dict(forward=[[1, 1, 1], [1, 1, float("nan")]]), "forward[1, 2] is nan: a time must be finite"),
        (dict(backward=[[1, -2], [1, 1]]), "backward[0, 1] is -2: a time must be finite and not negative"),
        (dict(backward_input=[[float("inf")]]), "backward_input[0, 0] is inf: a time must be finite"),
        (dict(backward_weight=[[1, 2], [3]]), "backward_weight must be a number or one number a stage"),
        (dict(hop=[[1, 2], [3, 4]]), "hop must be a number or one number a stage, not [[1, 2], [3, 4]]"),
        (dict(pair=[[1, 2]]), "pair must be a number or one number a stage, not [[1, 2]]"),
        (dict(transfer=[[1, 2]]), "transfer must be a number or one number a stage, not [[1, 2]]"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        Costs(**arguments)


@pytest.mark.parametrize("name", ["forward", "backward_input", "backward_weight", "backward"])
@pytest.mark.parametrize("shape", [(3, 2), (2, 2), (2, 1), (1, 3), (2, 0)])
def test_a_table_must_fit_the_stages_and_micro_batches(name, shape):
    says = f"{name} is a table of {shape}, but the schedule has 2 stages and 3 micro-batches: give a row a stage"
    with pytest.raises(ValueError, match=re.escape(says)):
        simulate(pplab.gpipe(2, 3), Costs(**{name: np.ones(shape)}))


def test_a_transfer_for_each_boundary_must_fit_them():
    with pytest.raises(
        ValueError, match="transfer has 3 values, but the schedule has 1, one a boundary between stages"
    ):
        simulate(pplab.gpipe(2, 2), Costs(hop=1, transfer=[1, 1, 1], links=True))
