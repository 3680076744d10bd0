"""Metrics: papers' figures, slow counts, and every order of tiny schedules."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drawn, examples, needs, orders, priced, units_of

import pplab
from pplab import (
    Costs,
    Op,
    Schedule,
    ScheduleError,
    Timeline,
    bubble_fraction,
    busy_time,
    in_flight,
    lower_bound,
    makespan,
    peak_in_flight,
    simulate,
    utilization,
)
from pplab.metrics import held_microbatches, steady_window
from pplab.schedules import forward_only, zb_h1, zb_h2

# ── Makespan, busy time, shares ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("d", "m"), [(4, 8), (4, 12), (3, 9), (6, 18)])
def test_bubble_over_the_span_is_the_zero_bubble_papers(d, m):
    """Bubbles (p−1)(F+I−W) for H1 and (p−1)(F+I−2W) = 0 for H2, over m(F+I+W) of work; the makespan shows no gain."""
    h1, h2 = simulate(zb_h1(d, m)), simulate(zb_h2(d, m))
    assert bubble_fraction(h1, over="span") == pytest.approx((d - 1) / (3 * m + d - 1))
    assert bubble_fraction(h2, over="span") == pytest.approx(0)
    assert utilization(h2, over="span") == pytest.approx(1)
    assert makespan(h1) == makespan(h2) == 3 * m + d - 1
    assert bubble_fraction(h1) == bubble_fraction(h2) == pytest.approx((d - 1) / (3 * m + d - 1))
    assert peak_in_flight(h2)[0] == 2 * d - 1


def test_another_over_is_refused_by_name():
    for share in (bubble_fraction, utilization):
        with pytest.raises(ValueError, match="over is 'time': choose 'makespan' or 'span'"):
            share(simulate(pplab.gpipe(2, 2)), over="time")


def test_a_timeline_without_length_has_no_share():
    t = simulate(pplab.gpipe(2, 2), Costs(forward=0, backward=0))
    assert makespan(t) == 0
    for share in (bubble_fraction, utilization):
        with pytest.raises(ValueError, match="the timeline has no length"):
            share(t)


def test_makespan_counts_from_the_first_start():
    t = simulate(pplab.gpipe(2, 2))
    later = Timeline(t.schedule, t.start + 100, t.end + 100)
    assert makespan(later) == makespan(t) == 9
    assert bubble_fraction(later) == bubble_fraction(t)


def test_a_pair_is_busy_once():
    s = Schedule(["0F0 0F1 0B0 0B1"], pairs=[("0F1", "0B0")])
    assert busy_time(simulate(s, Costs(pair=2.5))).tolist() == [1 + 2.5 + 2]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=8, max_size=8))
@examples(100)
def test_busy_time_is_the_union_of_measured_spans(spans):
    """Spans of a device in the order of their starts, overlapping or not, against a count of the unit steps covered."""
    s = pplab.gpipe(1, 4)
    start, length = np.array(sorted(spans)).T
    t = Timeline(s, start, start + length, measured=True)
    covered = {x for a, b in zip(start, length, strict=True) for x in range(a, a + b)}
    assert busy_time(t).tolist() == [len(covered)]


# ── In flight ─────────────────────────────────────────────────────────────────────────────────────────────────────


def held_at(t, device, moment):
    """How many a device holds just after a moment: forwards that have started, less passes that have given back."""
    return sum(
        int(span.kind == "F" and span.start <= moment) - int(span.kind in gives(t) and span.end <= moment)
        for span in t
        if span.device == device
    )


def gives(t):
    """Which kinds let a micro-batch go at their end: forwards themselves where nothing goes backward."""
    return "BW" if len(set(t.kind)) > 1 else "F"


@given(drawn())
@examples(80)
def test_in_flight_is_a_slow_count_at_every_moment(d):
    t = simulate(d.build(), Costs(hop=0.25))
    for device, peak in enumerate(peak_in_flight(t)):
        moments, held = in_flight(t, device)
        assert held.tolist() == [held_at(t, device, moment) for moment in moments]
        assert peak == max(held)
        assert (np.diff(moments) > 0).all()
        own = [span for span in t if span.device == device]
        ends = {span.end for span in own if span.kind in gives(t)}
        assert set(moments) == {span.start for span in own if span.kind == "F"} | ends


def test_in_flight_of_the_chapters_trace():
    t = simulate(pplab.one_f_one_b(4, 4), Costs(backward=1))
    assert peak_in_flight(t).tolist() == [4, 3, 2, 1]
    moments, held = in_flight(t, 0)
    assert list(zip(moments, held, strict=True)) == [(0, 1), (1, 2), (2, 3), (3, 4), (8, 3), (10, 2), (12, 1), (14, 0)]


def test_i_holds_on_until_w():
    s = Schedule(["0F0 0I0 0F1 0I1 0W0 0W1"])
    assert peak_in_flight(simulate(s)).tolist() == [2]
    assert peak_in_flight(simulate(Schedule(["0F0 0I0 0W0 0F1 0I1 0W1"]))).tolist() == [1]


def test_a_pair_takes_before_it_gives():
    rows = ["0F0 0F1 0B0 0F2 0B1 0B2"]
    assert peak_in_flight(simulate(Schedule(rows))).tolist() == [2]
    assert peak_in_flight(simulate(Schedule(rows, pairs=[("0B0", "0F2")]))).tolist() == [3]


def test_forwards_alone_hold_the_one_that_runs():
    """Nothing waits for a backward, so each forward lets go at its own end."""
    t = simulate(forward_only(2, 3), Costs([1, 2]))
    assert peak_in_flight(t).tolist() == [1, 1]
    assert [x.tolist() for x in in_flight(t, 0)] == [[0, 1, 2, 3], [1, 1, 1, 0]]
    assert [x.tolist() for x in in_flight(t, 1)] == [[1, 3, 5, 7], [1, 1, 1, 0]]
    waits = simulate(forward_only(2, 2), Costs([2, 1]))
    assert [x.tolist() for x in in_flight(waits, 1)] == [[2, 3, 4, 5], [1, 0, 1, 0]]
    pair = Schedule(["0F0 0F1"], pairs=[("0F0", "0F1")])
    assert peak_in_flight(simulate(pair)).tolist() == [2]


# ── Lower bound ───────────────────────────────────────────────────────────────────────────────────────────────────


@given(priced())
@examples(200)
def test_no_order_beats_the_lower_bound(case):
    d, prices = case
    s, costs = d.build(), Costs(**prices._asdict())
    assert lower_bound(s, costs) <= makespan(simulate(s, costs)) * (1 + 1e-12)


@given(priced())
@examples(100)
def test_lower_bound_is_what_it_says(case):
    """The longest way of a micro-batch; and a device's work, with the least before its first and after its last op."""
    d, prices = case
    units = [units_of(row, d.pairs) for row in d.rows]
    time = {unit: prices.of_unit(unit) for row in units for unit in row}
    takes = {op: time[unit] for unit in time for op in unit}
    device = {op: i for i, row in enumerate(d.rows) for op in row}
    ops = set(device)
    users = {op: [u for u in ops if op in needs(u, ops)] for op in ops}

    def gap(a, b):
        return prices.hop[min(a.stage, b.stage)] if device[a] != device[b] else 0.0

    def head(op):
        return max((head(n) + takes[n] + gap(n, op) for n in needs(op, ops)), default=0.0)

    def tail(op):
        return max((gap(op, u) + takes[u] + tail(u) for u in users[op]), default=0.0)

    longest = max(head(op) + takes[op] + tail(op) for op in ops)
    work = [sum(time[unit] for unit in row) for row in units]
    rows = [min(map(head, row)) + w + min(map(tail, row)) for row, w in zip(d.rows, work, strict=True)]
    assert lower_bound(d.build(), Costs(**prices._asdict())) == pytest.approx(max(longest, *rows))


def test_gpipe_and_1f1b_reach_the_bound_with_equal_stages():
    for d, m, b in product((1, 2, 4, 8), (1, 2, 8, 16), (1, 2, 2.5)):
        for build in (pplab.gpipe, pplab.one_f_one_b):
            s, costs = build(d, m), Costs(1, backward=b)
            assert lower_bound(s, costs) == makespan(simulate(s, costs)) == (m + d - 1) * (1 + b)


def test_lower_bound_with_a_hop_by_hand():
    """D = 4: a micro-batch's way is 12 + 6h; device 0 works 3M and nothing comes before or after."""
    for m, h in product((1, 2, 8), (0, 1, 5)):
        devices = [3 * k + 2 * k * h + 3 * m for k in range(4)]
        assert lower_bound(pplab.gpipe(4, m), Costs(hop=h)) == max(12 + 6 * h, *devices)


TINY = [
    (["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"], Costs()),
    (["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"], Costs(hop=1.5)),
    (["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"], Costs(forward=[1, 3], backward=[2, 1], hop=0.5, blocking=True)),
    (["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1"], Costs()),
    (["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1"], Costs(forward=[2, 1, 1], backward=[1, 1, 2], hop=0.5)),
    (["0F0 1F0 0B0 1B0 0F1 0B1 1F1 1B1"], Costs()),
    (["0F0 0I0 0W0 0F1 0I1 0W1", "1F0 1I0 1W0 1F1 1I1 1W1"], Costs(backward_weight=0.5, hop=0.25)),
]


@pytest.mark.parametrize(("rows", "costs"), TINY)
def test_no_order_at_all_beats_the_lower_bound(rows, costs):
    best, bounds = np.inf, set()
    for order in product(*(orders([Op.parse(op) for op in row.split()]) for row in rows)):
        try:
            s = Schedule(order)
        except ScheduleError:
            continue
        best = min(best, makespan(simulate(s, costs)))
        bounds.add(lower_bound(s, costs))
    assert len(bounds) == 1  # it depends on who runs what, not on the order
    assert bounds.pop() <= best < np.inf


def test_the_best_of_all_orders_is_the_bound_with_equal_stages():
    best = min(
        makespan(simulate(Schedule(order)))
        for order in product(*(orders([Op(k, kind, m) for m in (0, 1) for kind in "FB"]) for k in (0, 1)))
        if order[0][0] == Op(0, "F", 0) and order[1][0] == Op(1, "F", 0) and order[0].index(Op(0, "F", 1)) < 2
    )
    assert best == lower_bound(pplab.gpipe(2, 2)) == 9


# ── What is held and sent ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("d", "m", "v"), [(4, 8, 2), (4, 8, 4), (8, 16, 2), (2, 4, 3), (16, 32, 2)])
def test_interleaving_holds_micro_batches_by_its_formula(d, m, v):
    """SC'21 (Korthikanti et al. 2022, section 4.2.3): the first device holds 1 + (D − 1)/(DV) times 1F1B's D."""
    t = simulate(pplab.interleaved_1f1b(d, m, v))
    assert held_microbatches(t)[0] == pytest.approx(d * (1 + (d - 1) / (d * v)))
    assert (held_microbatches(t) == peak_in_flight(t) / v).all()


@pytest.mark.parametrize(("d", "m", "v"), [(4, 8, 2), (8, 16, 2), (2, 4, 3), (1, 4, 2), (4, 5, 1)])
def test_messages_cross_each_boundary_once_each_way(d, m, v):
    """V · D − 1 boundaries; an interior device sends V forward and V back for each micro-batch (E13, E29)."""
    sent = pplab.messages_sent(pplab.interleaved_1f1b(d, m, v))
    assert sent.sum() == (2 * m * (v * d - 1) if d > 1 else 0)
    assert (sent[1:-1] == 2 * v * m).all()
    if d > 1:
        assert sent[0] == sent[-1] == (2 * v - 1) * m


@given(drawn())
@examples(60)
def test_messages_are_counted_one_by_one(case):
    s = Schedule(case.rows, pairs=case.pairs)
    device = {op: d for d, row in enumerate(case.rows) for op in row}
    sent = [0] * len(case.rows)
    for op in device:
        for needed in needs(op, set(device)):
            if device[needed] != device[op]:
                sent[device[needed]] += 1
    assert pplab.messages_sent(s).tolist() == sent


def test_messages_sent_needs_a_schedule():
    with pytest.raises(TypeError, match="is not a schedule"):
        pplab.messages_sent([["0F0"]])


# ── A window ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("d", "m"), [(1, 1), (1, 5), (2, 2), (4, 4), (4, 8), (8, 40)])
@pytest.mark.parametrize(("f", "b"), [(1, 2), (1, 1), (3, 1)])
@pytest.mark.parametrize("name", ["pipedream", "1f1b"])
def test_the_steady_state_has_no_bubble(d, m, f, b, name):
    """All go backward from D·F + (D − 1)·B on; device 0 has a forward to alternate with until M·(F + B).

    The bubble of the whole, (D − 1)/(M + D − 1), lies before and after.
    """
    t = simulate(pplab.SCHEDULES[name](d, m), Costs(forward=f, backward=b))
    window = steady_window(t)
    assert window == (d * f + (d - 1) * b, m * (f + b))
    assert bubble_fraction(t, window=window) == 0 and utilization(t, window=window) == 1
    assert bubble_fraction(t) == pytest.approx((d - 1) / (m + d - 1))


@given(priced(devices=(1, 4)), st.floats(0, 1), st.floats(0, 1))
@examples(60)
def test_a_window_counts_each_device_moment_by_moment(case, a, b):
    """Against a sum over the pieces between all starts and ends: a device is busy in a piece, or it is not."""
    drawn_case, prices = case
    t = simulate(drawn_case.build(), Costs(**prices._asdict()))
    first, last = sorted(t.start.min() + share * makespan(t) for share in (a, b))
    if not t.start.min() <= first < last <= t.end.max():
        return
    cuts = np.unique(np.clip(np.r_[t.start, t.end, first, last], first, last))
    middles, busy = (cuts[1:] + cuts[:-1]) / 2, 0.0
    for device in range(t.schedule.num_devices):
        mine = t.device == device
        inside = (t.start[mine, None] <= middles) & (middles <= t.end[mine, None])
        busy += np.diff(cuts)[inside.any(axis=0)].sum()
    share = busy / (t.schedule.num_devices * (last - first))
    assert utilization(t, window=(first, last)) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ((3, 3), r"window is \(3, 3\): give a start and a later end within the timeline's 0 to 15"),
        ((5, 3), "give a start and a later end"),
        ((-1, 3), "within the timeline's 0 to 15"),
        ((1, 16), "within the timeline's 0 to 15"),
        ((1, float("nan")), "give a start and a later end"),
        (7, "window is 7: give two times, such as pplab.metrics.steady_window"),
        ((1, 2, 3), "give two times"),
        (("a", "b"), "give two times"),
    ],
)
def test_a_window_that_is_none_is_refused(window, says):
    with pytest.raises(ValueError, match=says):
        bubble_fraction(simulate(pplab.one_f_one_b(2, 4)), window=window)


def test_a_window_needs_a_timeline_with_a_steady_state():
    with pytest.raises(ValueError, match="a window and over='span' are two ways"):
        utilization(simulate(pplab.one_f_one_b(2, 4)), "span", (1, 2))
    with pytest.raises(ValueError, match=r"1f1b has no steady state here: .* give it more micro-batches than 3"):
        steady_window(simulate(pplab.one_f_one_b(4, 3)))
    with pytest.raises(ValueError, match="gpipe has no steady state here"):
        steady_window(simulate(pplab.gpipe(4, 8)))
    with pytest.raises(ValueError, match="runs forward only"):
        steady_window(simulate(pplab.SCHEDULES["forward-only"](4, 8)))
