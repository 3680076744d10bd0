"""simulate: exact against a slow replay, closed forms, and pictures worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from reference import Prices, drawn, examples, priced, read_picture, replay, seen, simulated_as

import pplab
from pplab import Costs, Op, Schedule, makespan, simulate

# ── By hand ───────────────────────────────────────────────────────────────────────────────────────────────────────

PICTURES = {
    "the chapter's trace": (
        pplab.one_f_one_b(4, 4),
        Costs(forward=1, backward=1),
        """
        F0 F1 F2 F3 .  .  .  B0 .  B1 .  B2 .  B3
        .  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3 .
        .  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .  .
        .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .  .
        """,
    ),
    "naive": (
        pplab.naive(3, 2),
        Costs(forward=1, backward=1),
        """
        F0 .  .  .  .  B0 F1 .  .  .  .  B1
        .  F0 .  .  B0 .  .  F1 .  .  B1 .
        .  .  F0 B0 .  .  .  .  F1 B1 .  .
        """,
    ),
    "gpipe": (
        pplab.gpipe(3, 3),
        Costs(),
        """
        F0 F1 F2 .  .  .  .  .  .  B2 -  B1 -  B0 -
        .  F0 F1 F2 .  .  .  B2 -  B1 -  B0 -  .  .
        .  .  F0 F1 F2 B2 -  B1 -  B0 -  .  .  .  .
        """,
    ),
    "1f1b with a hop": (
        pplab.one_f_one_b(2, 2),
        Costs(hop=1),
        """
        F0 F1 .  .  .  .  B0 -  .  B1 -
        .  .  F0 B0 -  F1 B1 -  .  .  .
        """,
    ),
    "1f1b, blocking": (
        pplab.one_f_one_b(2, 2),
        Costs(hop=1, blocking=True),
        """
        F0 .  F1 .  .  .  B0 -  .  .  .  B1 -
        .  .  F0 B0 -  .  .  F1 B1 -  .  .  .
        """,
    ),
    "split backwards": (
        Schedule(["0F0 0F1 0I0 0I1 0W0 0W1", "1F0 1I0 1W0 1F1 1I1 1W1"]),
        Costs(),
        """
        F0 F1 .  I0 .  .  I1 W0 W1
        .  F0 I0 W0 F1 I1 W1 .  .
        """,
    ),
    "more devices than micro-batches": (
        pplab.one_f_one_b(4, 1),
        Costs(),
        """
        F0 .  .  .  .  .  .  .  .  .  B0 -
        .  F0 .  .  .  .  .  .  B0 -  .  .
        .  .  F0 .  .  .  B0 -  .  .  .  .
        .  .  .  F0 B0 -  .  .  .  .  .  .
        """,
    ),
    "one device": (pplab.one_f_one_b(1, 2), Costs(hop=9), "F0 B0 -  F1 B1 -"),
    "a slow first stage": (
        pplab.one_f_one_b(2, 2),
        Costs(forward=[2, 1], backward=[1, 1]),
        """
        F0 -  F1 -  B0 .  B1
        .  .  F0 B0 F1 B1 .
        """,
    ),
}


@pytest.mark.parametrize("case", PICTURES)
def test_pictures_worked_out_by_hand(case):
    schedule, costs, picture = PICTURES[case]
    assert seen(simulate(schedule, costs)) == read_picture(picture)


def test_default_costs_are_one_slot_a_forward_and_two_a_backward():
    assert simulate(pplab.gpipe(3, 3)) == simulate(pplab.gpipe(3, 3), Costs(forward=1, backward=2, hop=0))


# ── Against the slow replay, to the last bit ──────────────────────────────────────────────────────────────────────


def as_costs(prices: Prices) -> Costs:
    """The same costs as pplab takes them."""
    return Costs(**prices._asdict())


@given(priced())
@examples(250)
def test_times_equal_those_of_a_slow_replay_exactly(case):
    d, prices = case
    assert simulated_as(simulate(d.build(), as_costs(prices)), replay(d.rows, d.pairs, prices))


@given(priced(devices=(8, 12), microbatches=(1, 4), chunks=(1, 2)))
@examples(40)
def test_times_on_many_devices_equal_those_of_a_slow_replay_exactly(case):
    d, prices = case
    assert simulated_as(simulate(d.build(), as_costs(prices)), replay(d.rows, d.pairs, prices))


@given(drawn())
@examples(50)
def test_scalars_are_one_value_for_all_stages(d):
    n = d.num_stages
    prices = Prices([0.3] * n, [0.7] * n, [0.9] * n, [0.1] * (n - 1))
    scalar = Costs(forward=0.3, backward_input=0.7, backward_weight=0.9, hop=0.1)
    assert simulate(d.build(), scalar) == simulate(d.build(), as_costs(prices))
    assert simulated_as(simulate(d.build(), scalar), replay(d.rows, d.pairs, prices))


@given(priced())
@examples(50)
def test_timeline_obeys_the_rules(case):
    d, prices = case
    s = d.build()
    t = simulate(s, as_costs(prices))
    sender = np.where(s.hops, s.needs[:, 0], 0)
    assert (t.start >= np.where(s.hops, t.end[sender] + as_costs(prices).of_hops(s), 0) - 1e-9).all()
    for a, b in s.row_slices:
        follows = ~s.paired[a : b - 1]
        between = (t.send[a : b - 1] + t.receive[a + 1 : b])[follows]
        assert (t.start[a + 1 : b][follows] >= t.end[a : b - 1][follows] + between - 1e-9).all()
    assert t.start.min() == min(t.receive[t.start == t.start.min()])


# ── Hops ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("blocking", [False, True])
def test_nothing_travels_between_two_chunks_of_one_device(blocking):
    alone = Schedule(["0F0 1F0 2F0 2B0 1B0 0B0"])
    assert makespan(simulate(alone, Costs(hop=100, blocking=blocking))) == 9
    vee = Schedule(["0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"])  # 0→1 and 2→3 travel, 1→2 does not
    assert makespan(simulate(vee, Costs(hop=[1, 100, 10], blocking=blocking))) == 12 + 2 * (1 + 10)


def test_each_boundary_has_a_hop_of_its_own():
    t = simulate(pplab.naive(4, 1), Costs(hop=[1, 10, 100]))
    assert makespan(t) == 12 + 2 * 111
    assert seen(t)[2] == {"F0": (13, 14), "B0": (14 + 100 + 1 + 2 + 100, 219)}


# ── Blocking ──────────────────────────────────────────────────────────────────────────────────────────────────────

F, B = 1.0, 2.0


@pytest.mark.parametrize("h", [0.0, 0.25, 0.5, 2.0])
@pytest.mark.parametrize("m", [1, 2, 3, 8])
@pytest.mark.parametrize("build", [pplab.gpipe, pplab.one_f_one_b])
def test_two_devices_that_block_pay_each_message_twice(build, m, h):
    """Two devices, F to its right, B to its left, each M times; every send and receive is on the critical path.

    GPipe: F0 s F1 s …; the last forward's message arrives at MF + (M−1)h + h, its receiver has taken all others by
    then, and runs it, B, s, B, s … with a receive and a B on the first device at the end: (M+1)(F+B) + 2Mh.
    1F1B, h ≤ B: its second device repeats receive, F, B, send without a break: F + M(h+F+B+h) + B.
    """
    t = simulate(build(2, m), Costs(F, backward=B, hop=h, blocking=True))
    assert makespan(t) == (m + 1) * (F + B) + 2 * m * h
    idle = pplab.idle_by_reason(t)
    assert (idle["communication"] == 2 * m * h).all()
    assert (sum(idle.values()) == F + B + 2 * m * h).all()
    assert build is not pplab.gpipe or (idle["ramp"] + idle["drain"] == F + B).all()
    assert (pplab.busy_time(t) == m * (F + B)).all()


def test_blocking_keeps_both_ends_busy_for_the_hop():
    t = simulate(pplab.one_f_one_b(2, 1), Costs(F, backward=B, hop=0.5, blocking=True))
    assert [(str(span.op), span.start, span.end) for span in t] == [
        ("0F0", 0, 1), ("0B0", 5, 7), ("1F0", 1.5, 2.5), ("1B0", 2.5, 4.5),
    ]  # fmt: skip
    assert t.send.tolist() == [0.5, 0, 0, 0.5]
    assert t.receive.tolist() == [0, 0.5, 0.5, 0]


def test_a_sender_does_not_wait_for_a_receiver_that_is_busy():
    """F0 arrives while device 1 runs F1, until 14; its sender is long done, its receive still takes 14 to 15."""
    s = Schedule(["0F0 0F1 0B1 0B0", "1F1 1F0 1B1 1B0"])
    t = simulate(s, Costs(forward=[1, 10], backward=[1, 1], hop=1, blocking=True))
    assert seen(t) == [
        {"F0": (0, 1), "F1": (2, 3), "B1": (27, 28), "B0": (29, 30)},
        {"F1": (4, 14), "F0": (15, 25), "B1": (25, 26), "B0": (27, 28)},
    ]


def test_a_pair_sends_one_message_after_the_other():
    """F1 and B0 of stage 1 run as one on device 1 and end at 6; F1's message leaves first, B0's after it."""
    rows = ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2B0 2F1 2B1"]
    s = Schedule(rows, pairs=[("1F1", "1B0")])
    t = simulate(s, Costs(F, backward=1, pair=1, hop=0.25, blocking=True))
    times = {str(span.op): (span.start, span.end) for span in t}
    start, end = times["1F1"]
    assert times["1B0"] == (start, end)
    assert times["2F1"][0] == end + 0.25
    assert times["0B0"][0] == end + 0.5
    assert times["1B1"][0] >= end + 0.5


# ── Pairs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PAIRED = Schedule(["0F0 0F1 0B0 0B1"], pairs=[("0F1", "0B0")])


@pytest.mark.parametrize(("pair", "slots"), [(None, 6), (2, 5), (0, 3)])
def test_a_pair_takes_the_sum_of_both_unless_it_has_a_cost_of_its_own(pair, slots):
    t = simulate(PAIRED, Costs(pair=pair))
    assert makespan(t) == slots
    assert t.start[1] == t.start[2] == 1
    assert t.end[1] == t.end[2] == slots - 2


def test_a_pair_waits_for_both_messages_and_gives_both_results_at_its_end():
    s = Schedule(["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"], pairs=[("0F1", "0B0")])
    assert seen(simulate(s)) == [
        {"F0": (0, 1), "F1": (4, 7), "B0": (4, 7), "B1": (10, 12)},
        {"F0": (1, 2), "B0": (2, 4), "F1": (7, 8), "B1": (8, 10)},
    ]


# ── Scale ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_131072_ops_take_as_long_as_the_formula_says():
    t = simulate(pplab.one_f_one_b(64, 1024))
    assert makespan(t) == (1024 + 63) * 3
    assert t.schedule.num_ops == 131_072


def test_zero_costs_give_zero_times():
    t = simulate(pplab.one_f_one_b(3, 4), Costs(forward=0, backward=0))
    assert not t.start.any()
    assert not t.end.any()
    assert t[0].op == Op(0, "F", 0)
