"""Why devices wait: closed forms reason by reason, sums that come out, and a critical path without a break."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drawn, examples, needs, priced, units_of

import pplab
from pplab import Costs, Op, Schedule, Timeline, busy_time, critical_path, idle_by_reason, idle_gaps, makespan, simulate

F, B = 1.0, 2.0
REASONS = ["ramp", "drain", "order", "slower stage", "hop", "communication", "unexplained"]
GRID = [(d, m) for d in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 8, 16)]


def only(t, *reasons):
    """The idle time of each device for some reasons, once all others are seen to be 0."""
    idle = idle_by_reason(t)
    assert list(idle) == REASONS
    for reason in set(REASONS) - set(reasons):
        assert not idle[reason].any(), (t.schedule.name, reason)
    return sum(idle[reason] for reason in reasons)


@pytest.mark.parametrize("build", [pplab.gpipe, pplab.one_f_one_b, pplab.eager_1f1b])
def test_equal_stages_idle_for_ramp_and_drain_alone(build):
    for d, m in GRID:
        t = simulate(build(d, m), Costs(F, backward=B))
        assert (only(t, "ramp", "drain") == (d - 1) * (F + B)).all()


def test_gpipes_ramp_lasts_until_the_last_stage_turns_and_its_drain_is_a_staircase():
    for d, m in GRID:
        idle = idle_by_reason(simulate(pplab.gpipe(d, m), Costs(F, backward=B)))
        k = np.arange(d)
        assert (idle["drain"] == k * B).all()
        assert (idle["ramp"] == (d - 1) * (F + B) - k * B).all()


def test_forwards_alone_wait_for_the_first_message_and_for_the_devices_behind():
    for d, m in GRID:
        t = simulate(pplab.schedules.forward_only(d, m), Costs(F))
        only(t, "ramp", "drain")
        assert (idle_by_reason(t)["ramp"] == np.arange(d) * F).all()
        assert (idle_by_reason(t)["drain"] == np.arange(d)[::-1] * F).all()


def test_naive_waits_for_its_own_order_between_micro_batches():
    for d, m in GRID:
        idle = idle_by_reason(simulate(pplab.naive(d, m), Costs(F, backward=B)))
        assert (idle["ramp"] == (d - 1) * (F + B) - np.arange(d) * B).all()
        assert (sum(idle.values()) == m * (d - 1) * (F + B)).all()


def test_a_hop_on_gpipe_is_idle_there_and_back_on_each_device():
    for d, m in GRID:
        for h in (0.125, 0.5, 2.0):
            t = simulate(pplab.gpipe(d, m), Costs(F, backward=B, hop=h))
            assert (idle_by_reason(t)["hop"] == 2 * (d - 1) * h).all()
            assert (only(t, "ramp", "drain", "hop") == (d - 1) * (F + B + 2 * h)).all()


@pytest.mark.parametrize(("name", "hop", "slots"), [("1f1b", 0.1, 225.4), ("1f1b", 0.5, 275), ("eager-1f1b", 0.5, 220)])
def test_what_a_hop_adds_to_the_step_is_the_hop_part_of_each_device(name, hop, slots):
    """E23: without a hop all three take 213."""
    t = simulate(pplab.SCHEDULES[name](8, 64), Costs(F, backward=B, hop=hop))
    assert idle_by_reason(t)["hop"] == pytest.approx(np.full(8, slots - 213))
    assert only(t, "ramp", "drain", "hop") == pytest.approx(np.full(8, slots - 64 * (F + B)))


@pytest.mark.parametrize("slow", range(4))
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_slow_stage_makes_the_others_wait_for_it(name, slow):
    factor = np.where(np.arange(4) == slow, 1.5, 1.0)
    t = simulate(pplab.SCHEDULES[name](4, 8), Costs(forward=F * factor, backward=B * factor))
    others = np.arange(4) != slow
    slower = idle_by_reason(t)["slower stage"]
    assert (slower[others] >= 0.5 * 7 * (F + B) - 1e-9).all()  # seven of eight micro-batches queue up behind it
    assert slower[slow] == pytest.approx(0)
    assert only(t, "ramp", "drain", "order", "slower stage") == pytest.approx(makespan(t) - 8 * (F + B) * factor)


def test_gaps_of_a_small_trace_by_hand():
    """F0 F1 .  B0 .  B1
    .  F0 B0 F1 B1 ."""
    t = simulate(pplab.one_f_one_b(2, 2), Costs(backward=1))
    assert [
        (g.device, g.start, g.end, str(g.waiting_for), g.before and str(g.before), g.parts) for g in idle_gaps(t)
    ] == [
        (0, 2, 3, "1B0", "0B0", {"ramp": 1.0}),
        (0, 4, 5, "1B1", "0B1", {"drain": 1.0}),
        (1, 0, 1, "0F0", "1F0", {"ramp": 1.0}),
        (1, 5, 6, "0B1", None, {"drain": 1.0}),
    ]
    assert [g.reason for g in idle_gaps(t)] == ["ramp", "drain", "ramp", "drain"]


def test_the_reason_of_a_gap_is_that_of_its_largest_part():
    t = simulate(pplab.gpipe(2, 1), Costs(F, backward=B, hop=[0.5]))
    first, last = (g for g in idle_gaps(t) if g.device == 1)
    assert (first.parts, first.reason) == ({"ramp": 1.0, "hop": 0.5}, "ramp")
    assert (last.parts, last.reason) == ({"drain": 2.0, "hop": 0.5}, "drain")
    t = simulate(pplab.gpipe(2, 1), Costs(F, backward=B, hop=[5]))
    assert {g.reason for g in idle_gaps(t)} == {"hop"}


@given(priced())
@examples(250)
def test_gaps_are_what_the_spans_leave_and_their_parts_add_up(case):
    d, prices = case
    t = simulate(d.build(), Costs(**prices._asdict()))
    gaps, total = idle_gaps(t), idle_by_reason(t)
    close = 1e-7 * (1 + makespan(t))
    idle = makespan(t) - busy_time(t)
    assert sum(total.values()) == pytest.approx(idle, abs=close)
    assert all((part >= 0).all() for part in total.values())
    for device, expected in enumerate(idle):
        mine = [g for g in gaps if g.device == device]
        assert sum(g.end - g.start for g in mine) == pytest.approx(expected, abs=close)
        for reason in REASONS:
            assert sum(g.parts.get(reason, 0.0) for g in mine) == pytest.approx(total[reason][device], abs=close)
        for g, following in pairwise(mine):
            assert g.end <= following.start
        spans = [span for span in t if span.device == device]
        assert not any(span.start < g.end - close and span.end > g.start + close for g in mine for span in spans)
    for g in gaps:
        assert set(g.parts) <= set(REASONS)
        assert sum(g.parts.values()) == pytest.approx(g.end - g.start, abs=close)
        assert g.reason in g.parts


@given(priced())
@examples(100)
def test_a_gap_names_the_op_whose_message_is_missing(case):
    d, prices = case
    t = simulate(d.build(), Costs(**prices._asdict()))
    ops = {op for row in d.rows for op in row}
    partner = {op: other for pair in d.pairs for op, other in (pair, pair[::-1])}
    for g in idle_gaps(t):
        if g.before is not None and g.waiting_for is not None:
            unit = [g.before, partner.get(g.before, g.before)]
            wanted = {n for op in unit for n in needs(op, ops)}
            assert wanted & {g.waiting_for, partner.get(g.waiting_for, g.waiting_for)}
            assert g.device == next(i for i, row in enumerate(d.rows) if g.before in row)


@given(priced(pairs=False))
@examples(200)
def test_the_critical_path_has_no_break(case):
    """Each op of it starts as soon as the one before it lets it: next in the row, or a message that travels."""
    d, prices = case
    t = simulate(d.build(), Costs(**prices._asdict()))
    path = critical_path(t)
    close = 1e-7 * (1 + makespan(t))
    ops = {op for row in d.rows for op in row}
    hops = dict(zip((str(s.op) for s in t), Costs(**prices._asdict()).of_hops(t.schedule), strict=True))
    kept = {str(s.op): r for s, r in zip(t, t.receive, strict=True)}
    sent = {str(s.op): r for s, r in zip(t, t.send, strict=True)}
    assert path[-1].end - t.start.min() == pytest.approx(makespan(t), abs=close)
    assert path[0].start - t.start.min() <= kept[str(path[0].op)] + close
    length = path[0].end - t.start.min()
    for a, b in pairwise(path):
        if a.device == b.device:
            row = d.rows[a.device]
            assert row.index(b.op) == row.index(a.op) + 1
            wait = sent[str(a.op)] + kept[str(b.op)]
        else:
            assert a.op in needs(b.op, ops)
            wait = hops[str(b.op)]
        assert b.start - a.end == pytest.approx(wait, abs=close)
        length += wait + (b.end - b.start)
    assert length == pytest.approx(makespan(t), abs=close)


@given(drawn(), st.sampled_from([0.0, 0.25, 3.0]), st.sampled_from([None, 1.0, 2.5]))
@examples(100)
def test_the_critical_path_with_pairs_has_no_break(d, hop, pair):
    """As above with equal hops; of a pair the first op stands for both."""
    t = simulate(d.build(), Costs(F, backward=B, hop=hop, pair=pair))
    path = critical_path(t)
    ops = {op for row in d.rows for op in row}
    rows = [units_of(row, d.pairs) for row in d.rows]
    unit = {units[0]: units for row in rows for units in row}
    assert path[0].start == 0
    assert path[-1].end == makespan(t)
    for a, b in pairwise(path):
        if a.device == b.device:
            assert rows[a.device].index(unit[b.op]) == rows[a.device].index(unit[a.op]) + 1
            assert b.start == a.end
        else:
            assert set(unit[a.op]) & {n for op in unit[b.op] for n in needs(op, ops)}
            assert b.start == a.end + hop


def test_the_critical_path_runs_through_the_slow_stage():
    t = simulate(pplab.gpipe(3, 3), Costs(forward=[1, 2, 1], backward=[1, 2, 1]))
    assert " ".join(str(span.op) for span in critical_path(t)) == "0F0 1F0 1F1 1F2 2F2 2B2 1B2 1B1 1B0 0B0"


def test_nothing_idles_on_one_device():
    t = simulate(pplab.one_f_one_b(1, 5), Costs(hop=3))
    assert idle_gaps(t) == []
    assert len(critical_path(t)) == 10
    assert not any(part.any() for part in idle_by_reason(t).values())


def test_nothing_idles_in_no_time():
    t = simulate(pplab.gpipe(2, 2), Costs(forward=0, backward=0))
    assert idle_gaps(t) == []


def test_blocking_time_is_communication():
    """Device 1: receive 1, F, B, send 1; the send lasts until device 0 has received, so all of it is communication."""
    t = simulate(pplab.one_f_one_b(2, 1), Costs(F, backward=B, hop=1, blocking=True))
    assert idle_by_reason(t)["communication"].tolist() == [2, 2]
    gaps = {(g.device, g.start, g.end): g.parts for g in idle_gaps(t)}
    assert gaps[1, 0, 2] == {"ramp": 1.0, "communication": 1.0}
    assert gaps[0, 1, 6] == {"ramp": 3.0, "communication": 2.0}
    assert gaps[1, 5, 8] == {"drain": 2.0, "communication": 1.0}


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7])
def test_blocking_time_of_others_is_waiting_for_a_hop(d):
    """One micro-batch: 2(D − 1) hops one after the other; a device takes part in those at its own ends."""
    h = 0.25
    for build in (pplab.naive, pplab.gpipe, pplab.one_f_one_b):
        t = simulate(build(d, 1), Costs(F, backward=B, hop=h, blocking=True))
        idle = idle_by_reason(t)
        ends = 2 * np.minimum(1, np.arange(d)) + 2 * np.minimum(1, np.arange(d)[::-1])
        assert (idle["communication"] == ends * h).all()
        assert (idle["hop"] == 2 * (d - 1) * h - idle["communication"]).all()
        assert (only(t, "ramp", "drain", "hop", "communication") == (d - 1) * (F + B + 2 * h)).all()


@given(drawn())
@examples(100)
def test_what_is_not_there_is_no_reason(d):
    """Equal stages, no hop, no blocking; stages may differ in how many of their backwards are split."""
    n = d.num_stages
    t = simulate(d.build(), Costs(forward=[1] * n, backward_input=[2] * n, backward_weight=[0.5] * n))
    only(t, "ramp", "drain", "order")


def test_a_custom_order_that_waits_is_told_from_ramp_and_drain():
    s = Schedule(["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"])
    idle = idle_by_reason(simulate(s, Costs(F, backward=B)))
    assert idle["order"].tolist() == [0, B + F]
    assert Op(0, "F", 1) in {g.waiting_for for g in idle_gaps(simulate(s))}


def measured(t, start=None, end=None):
    """The timeline as if it had been measured."""
    return Timeline(t.schedule, t.start if start is None else start, t.end if end is None else end, measured=True)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b"])
def test_measured_times_that_follow_the_simulator_have_its_reasons(name):
    """What nothing disturbs has the same reasons, measured or not, as long as hops are short."""
    t = simulate(pplab.SCHEDULES[name](4, 8), Costs(F, backward=B, hop=0.25))
    idle, seen = idle_by_reason(t), idle_by_reason(measured(t))
    assert sum(seen.values()) == pytest.approx(sum(idle.values()))
    assert not idle["unexplained"].any()
    assert seen["ramp"] == pytest.approx(idle["ramp"])


def test_a_pause_with_everything_there_is_unexplained():
    """Device 0 does nothing for 3 slots between two forwards, and device 1 waits for the second of them."""
    s = Schedule(["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"])
    t = measured(simulate(s), [0, 4, 8, 10, 1, 5, 6, 8], [1, 5, 10, 12, 2, 6, 8, 10])
    idle = idle_by_reason(t)
    assert idle["unexplained"].tolist() == [3, 3]
    assert idle["ramp"].tolist() == [3, 1]
    assert idle["drain"].tolist() == [0, 2]


def test_a_pass_that_is_longer_than_its_stages_mean_is_unexplained():
    """0F1 takes 5 slots and 0F0 one, mean 3: 2 of the 4 that device 1 waits for it are beyond the mean."""
    s = Schedule(["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"])
    t = measured(simulate(s), [0, 1, 9, 11, 1, 6, 7, 9], [1, 6, 11, 13, 2, 7, 9, 11])
    idle = idle_by_reason(t)
    assert sum(idle.values()).tolist() == [13 - 10, 13 - 6]
    assert idle["unexplained"][1] > 0


def test_idle_as_a_table():
    """1F1B, D4 M8: 9 of 33 slots on each device; device k waits k slots in the ramp, and for each later device's B."""
    lines = [line.split() for line in pplab.idle.idle_table(simulate(pplab.one_f_one_b(4, 8))).splitlines()]
    assert lines[:2] == [["device", "0", "1", "2", "3"], ["idle", "share", "27%", "27%", "27%", "27%"]]
    assert {line[0] for line in lines[2:]} == {"ramp", "drain"}
    assert [sum(float(line[1 + k]) for line in lines[2:]) for k in range(4)] == [9.0] * 4
