"""Every schedule of SCHEDULES over a grid of sizes, without a word about any of them; then what is known of each."""

import inspect
import itertools
import json
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pplab
from pplab import SCHEDULES, Costs, Op, bubble_fraction, makespan, peak_in_flight, simulate
from pplab.schedules import forward_only, looped_bfs, pipedream, zb_h1, zb_h2

DATA = Path(__file__).parent / "data"
ORDERS = DATA / "torch_orders"
SIZES = [(d, m) for d in range(1, 7) for m in range(1, 10)]
# Sizes that a schedule cannot take for a reason that its paper gives: its name → whether it refuses (D, M).
REFUSES: dict = {
    "dualpipe": lambda d, m: d % 2 or m % 2 or m < 2 * d,
    "dualpipe-v": lambda d, m: m < 2 * d,
    "chimera": lambda d, m: d % 2 or m % 2,
}

every_schedule = pytest.mark.parametrize("name", SCHEDULES)


def built(name):
    """A schedule at every size of the grid that it takes."""
    return [SCHEDULES[name](*size) for size in SIZES if not REFUSES.get(name, lambda *_size: False)(*size)]


# ── The harness: a new entry of SCHEDULES is checked by all of it ─────────────────────────────────────────────────


@every_schedule
def test_builds_with_the_sizes_that_were_asked_for(name):
    for d, m in SIZES:
        if name in REFUSES and REFUSES[name](d, m):
            with pytest.raises(ValueError, match=r"num_(devices|microbatches)"):
                SCHEDULES[name](d, m)
            continue
        s = SCHEDULES[name](num_devices=d, num_microbatches=m)
        assert (s.num_devices, s.num_microbatches) == (d, m)
        assert s.num_stages % d == 0
        assert s.name == name


@every_schedule
def test_runs_each_stage_and_micro_batch_once(name):
    for s in built(name):
        runs = Counter(op for row in s.rows for op in row)
        assert set(runs.values()) == {1}
        kinds = {
            "".join(k for k in "FBIW" if Op(stage, k, m) in runs)
            for stage, m in np.ndindex(s.num_stages, s.num_microbatches)
        }
        assert kinds <= {"FB", "FIW"} or kinds == {"F"}


@every_schedule
def test_builds_again_from_its_own_rows(name):
    for s in built(name):
        assert pplab.Schedule(s.rows, pairs=s.pairs) == s


@every_schedule
@pytest.mark.parametrize("size", ["num_devices", "num_microbatches", "num_chunks"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "4", True, None, float("nan"), [4]])
def test_bad_sizes_are_refused_by_name(name, size, value):
    sizes = dict(num_devices=4, num_microbatches=4) | {size: value}
    with pytest.raises(ValueError, match=re.escape(f"{size} is {value!r}")) as error:
        SCHEDULES[name](**sizes)
    assert "give a whole number of 1 or more" in str(error.value)


@every_schedule
def test_numpy_sizes_are_whole_numbers_too(name):
    assert SCHEDULES[name](np.int64(4), np.uint8(8)) == SCHEDULES[name](4, 8)
    assert SCHEDULES[name](np.uint8(4), np.uint8(100)) == SCHEDULES[name](4, 100)


@every_schedule
@pytest.mark.parametrize("sizes", [(10**11, 4), (4, 10**11), (10**50, 1), (2**16, 2**9)])
def test_sizes_that_no_memory_holds_are_refused(name, sizes):
    with pytest.raises(ValueError, match=r"a schedule has at most (65,536 devices|16,777,216 forwards)"):
        SCHEDULES[name](*sizes)


@every_schedule
def test_num_chunks_is_honoured_or_refused(name):
    """Where V is free, or any even number, it says how many stages a device holds; else only the default is legal."""
    default = inspect.signature(SCHEDULES[name]).parameters["num_chunks"].default
    for chunks in (1, 2, 3, 4):
        try:
            s = SCHEDULES[name](4, 8, num_chunks=chunks)
        except ValueError as error:
            assert chunks != default
            rule = f"can only be {default}" if chunks % 2 == 0 else f"(can only be {default}|must be even for {name})"
            assert re.search(f"num_chunks {rule}, not {chunks}", str(error))
        else:
            assert {len({op.stage for op in row}) for row in s.rows} == {chunks}


@every_schedule
def test_can_be_timed_measured_and_shown(name):
    for s in built(name):
        costs = Costs.per_device(s, hop=0.25)
        t = simulate(s, costs)
        assert makespan(t) >= pplab.lower_bound(s, costs) - 1e-9
        assert 0 <= bubble_fraction(t, over="span") <= bubble_fraction(t) < 1
        assert (peak_in_flight(t) >= 1).all()
        assert pplab.busy_time(t) == pytest.approx(makespan(t) - sum(pplab.idle_by_reason(t).values()))
    assert name in pplab.svg.timeline(t)
    assert name in SCHEDULES[name](4, 8)._repr_html_()


@every_schedule
def test_the_docstring_cites_a_paper(name):
    cites = re.search(r"(et\s+al\.|and \w+|-AI|-Poirier)\s+\d{4}", inspect.getdoc(SCHEDULES[name]))
    assert cites, "name the paper in the docstring, for example: Huang et al. 2019, section 2.3"


@every_schedule
def test_the_picture_in_the_docstring_is_right(name):
    picture = re.findall(r"device \d+ +(.+)", inspect.getdoc(SCHEDULES[name]))
    cells = [line.split() for line in picture]
    if cells:
        m = 1 + max(map(int, re.findall(r"[FBIW](\d+)", " ".join(picture))))
        t = simulate(SCHEDULES[name](len(cells), m), Costs(1, 1, 1, backward=1, pair=1))
        shown = [[cell for cell in line.split()[2:]] for line in str(t).splitlines()[1:]]
        assert cells == shown


@every_schedule
def test_large_and_lopsided_sizes_are_built_or_refused(name):
    """Nothing loops for ever; what is built has the sizes that were asked for."""
    dice = random.Random(name)
    sizes = [(64, 512, 8), (64, 1, 8), (63, 511, 7), (1, 512, 8), (64, 65, 1), (3, 512, 5)]
    sizes += [(dice.randint(1, 64), dice.randint(1, 128), dice.randint(1, 8)) for _ in range(4)]
    for d, m, v in sizes:
        for chunks in ({"num_chunks": v}, {}):  # with the default where V is not free
            try:
                s = SCHEDULES[name](d, m, **chunks)
            except ValueError as error:
                assert "num_" in str(error), error
            else:
                assert (s.num_devices, s.num_microbatches) == (d, m)
                break


# ── The orders that PyTorch runs ──────────────────────────────────────────────────────────────────────────────────


def torch_cases(name):
    """(D, M, V) and the ops of each rank, as PyTorch runs them; drawing blanks and gradient reductions left out."""
    for case, recorded in json.loads((ORDERS / f"{name}.json").read_text())["cases"].items():
        if recorded.get("ok", True):
            rows = [[op for op in rank.split() if re.fullmatch(r"\d+[FBIW]\d+", op)] for rank in recorded["ranks"]]
            yield tuple(int(part[1:]) for part in case.split("_")), rows


@pytest.mark.parametrize(
    ("theirs", "ours", "count"),
    [
        ("GPipe", lambda d, m, v: pplab.gpipe(d, m, v, backward_order="fifo"), 44),
        ("1F1B", pplab.one_f_one_b, 44),
        ("Interleaved1F1B", pplab.interleaved_1f1b, 128),
        ("LoopedBFS", looped_bfs, 176),
        ("InterleavedZeroBubble", zb_h1, 156),
    ],
    ids=["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1"],
)
def test_orders_equal_pytorchs(theirs, ours, count):
    cases = list(torch_cases(theirs))
    assert len(cases) == count
    assert any(m < d for (d, m, _), _ in cases)
    for sizes, rows in cases:
        assert [[str(op) for op in row] for row in ours(*sizes).rows] == rows, sizes


# ── Closed forms, F and B free, no hop ────────────────────────────────────────────────────────────────────────────

F, B = 1.0, 2.0
GRID = [(d, m) for d in (1, 2, 3, 4, 8, 13) for m in (1, 2, 3, 4, 7, 8, 16, 33)]


@pytest.mark.parametrize(("f", "b"), [(1, 1), (1, 2), (3, 1), (0.5, 0.75)])
def test_makespan_and_bubble_by_formula(f, b):
    costs = Costs(forward=f, backward=b)
    for d, m in GRID:
        assert makespan(simulate(pplab.naive(d, m), costs)) == m * d * (f + b)
        assert bubble_fraction(simulate(pplab.naive(d, m), costs)) == pytest.approx(1 - 1 / d)
        for build in (pplab.gpipe, pplab.one_f_one_b, pplab.eager_1f1b):
            t = simulate(build(d, m), costs)
            assert makespan(t) == (m + d - 1) * (f + b)
            assert bubble_fraction(t) == pytest.approx((d - 1) / (m + d - 1))
            assert pplab.utilization(t) == pytest.approx(m / (m + d - 1))


@pytest.mark.parametrize("order", ["reverse", "fifo"])
def test_gpipes_backward_order_changes_no_time(order):
    t = simulate(pplab.gpipe(4, 8, backward_order=order))
    assert makespan(t) == 33
    assert [op.microbatch for op in t.schedule.rows[0][8:]] == (
        list(range(8)) if order == "fifo" else list(range(8))[::-1]
    )


def test_gpipe_refuses_another_order_by_name():
    with pytest.raises(ValueError, match="backward_order is 'lifo': choose 'reverse' or 'fifo'"):
        pplab.gpipe(4, 8, backward_order="lifo")


def test_peaks_by_formula():
    for d, m in GRID:
        k = np.arange(d)
        for build, peak in {
            pplab.naive: np.ones(d),
            pplab.gpipe: np.full(d, m),
            pplab.one_f_one_b: np.minimum(m, d - k),
            pplab.eager_1f1b: np.minimum(m, 2 * (d - k) - 1),
        }.items():
            assert (peak_in_flight(simulate(build(d, m))) == peak).all(), (build, d, m)


@pytest.mark.parametrize(("d", "m", "slots"), [(4, 8, 33), (4, 2, 15), (3, 4, 18)])
def test_makespans_of_1f1b_on_which_other_tools_agree(d, m, slots):
    assert makespan(simulate(pplab.one_f_one_b(d, m))) == slots


# ── With a hop (E23) ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hop_costs_gpipe_one_way_there_and_one_back():
    for d, m in GRID:
        for h in (0.125, 0.5, 2.0):
            expected = (m + d - 1) * (F + B) + 2 * (d - 1) * h
            assert makespan(simulate(pplab.gpipe(d, m), Costs(F, backward=B, hop=h))) == expected


def test_a_hop_up_to_a_forward_costs_eager_1f1b_what_it_costs_gpipe():
    for d, m in GRID:
        for h in (0.125, 0.5, 1.0):
            costs = Costs(F, backward=B, hop=h)
            assert makespan(simulate(pplab.eager_1f1b(d, m), costs)) == makespan(simulate(pplab.gpipe(d, m), costs))


@pytest.mark.parametrize(
    ("name", "hop", "slots"),
    [
        ("gpipe", 0.1, 214.4),
        ("1f1b", 0.1, 225.4),
        ("gpipe", 0.5, 220),
        ("1f1b", 0.5, 275),
        ("gpipe", 0, 213),
        ("1f1b", 0, 213),
    ],
)
def test_a_hop_costs_1f1b_more_than_gpipe(name, hop, slots):
    assert makespan(simulate(SCHEDULES[name](8, 64), Costs(F, backward=B, hop=hop))) == pytest.approx(slots, abs=1e-9)


# ── Unequal stages ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("slow", range(4))
@pytest.mark.parametrize("m", [1, 8, 128])
def test_a_slower_stage_costs_gpipe_its_extra_time_m_times(slow, m):
    factor = np.where(np.arange(4) == slow, 1.25, 1.0)
    t = simulate(pplab.gpipe(4, m), Costs(forward=F * factor, backward=B * factor))
    assert makespan(t) == (factor.sum() + (m - 1) * factor.max()) * (F + B)


@pytest.mark.parametrize(("m", "least", "most"), [(8, 0.09, 0.15), (128, 0.19, 0.20)])
def test_a_stage_one_fifth_slower_costs_a_tenth_of_few_micro_batches_and_a_fifth_of_many(m, least, most):
    for name in ("gpipe", "1f1b"):
        for slow in range(4):
            factor = np.where(np.arange(4) == slow, 1.2, 1.0)
            t = simulate(SCHEDULES[name](4, m), Costs(forward=F * factor, backward=B * factor))
            more = makespan(t) / ((m + 3) * (F + B)) - 1
            assert least <= round(more, 2) <= most, (name, slow)


# ── Interleaving ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("short_warm_up", [False, True])
def test_interleaved_takes_the_time_of_its_formula_for_every_m(short_warm_up):
    """(F + B)(V·M + D − 1) slots of a chunk for M ≥ D: the bubble is (D − 1)/(V·M + D − 1)."""
    for d, m, v in itertools.product(range(1, 7), range(1, 30), range(1, 5)):
        t = simulate(pplab.interleaved_1f1b(d, m, num_chunks=v, short_warm_up=short_warm_up))
        if m >= d:
            assert makespan(t) == 3 * (v * m + d - 1)
            assert bubble_fraction(t) == pytest.approx(pplab.chapter.bubble_formula(d, m, "interleaved-1f1b", v))


def test_interleaved_holds_what_its_warm_up_says():
    for d, m, v in itertools.product(range(1, 7), range(1, 20), range(1, 5)):
        largest = -(-m // max(1, m // d))
        held = [min(v * m, 2 * (d - k - 1) + (v - 1) * largest + 1) for k in range(d)]
        assert peak_in_flight(simulate(pplab.interleaved_1f1b(d, m, num_chunks=v))).tolist() == held


def test_interleaved_with_one_chunk_holds_as_eager_1f1b():
    """V = 1 leaves the doubled warm-up only."""
    assert pplab.interleaved_1f1b(4, 8, num_chunks=1) == pplab.eager_1f1b(4, 8)


# ── Breadth first, forward only, without a flush ──────────────────────────────────────────────────────────────────


def test_looped_bfs_takes_interleavings_time_and_holds_everything():
    for d, m, v in itertools.product(range(1, 6), range(1, 12), range(1, 5)):
        t = simulate(looped_bfs(d, m, num_chunks=v))
        assert peak_in_flight(t).tolist() == [v * m] * d
        if m >= d:
            assert makespan(t) == 3 * (v * m + d - 1)
            assert bubble_fraction(t) == pytest.approx(pplab.chapter.bubble_formula(d, m, "looped-bfs", v))


def test_looped_bfs_with_one_chunk_is_gpipe():
    assert looped_bfs(4, 8, num_chunks=1) == pplab.gpipe(4, 8)


def test_forward_only_takes_the_time_of_its_formula_and_keeps_nothing():
    for d, m, v in itertools.product(range(1, 6), range(1, 14), range(1, 5)):
        t = simulate(forward_only(d, m, num_chunks=v))
        assert peak_in_flight(t).tolist() == [1] * d
        if m >= d:
            assert makespan(t) == v * m + d - 1
            assert bubble_fraction(t) == pytest.approx(pplab.chapter.bubble_formula(d, m, "forward-only", v))


def test_forward_only_runs_the_forwards_of_interleaved_1f1b():
    for d, m, v in itertools.product(range(1, 5), range(1, 10), range(1, 4)):
        forwards = [[op for op in row if op.kind == "F"] for row in pplab.interleaved_1f1b(d, m, num_chunks=v).rows]
        assert [list(row) for row in forward_only(d, m, num_chunks=v).rows] == forwards


def test_a_run_of_pipedream_has_the_rows_of_1f1b_and_at_most_d_micro_batches_in_flight():
    for d, m in GRID:
        t = simulate(pipedream(d, m))
        assert t.schedule == pplab.one_f_one_b(d, m)
        assert peak_in_flight(t)[0] == min(d, m)
        assert bubble_fraction(t) == pytest.approx(pplab.chapter.bubble_formula(d, m, "pipedream"))


@pytest.mark.parametrize("name", ["looped-bfs", "zb-h1", "forward-only"])
def test_chunks_that_go_round_refuse_a_v(name):
    assert SCHEDULES[name](4, 8, 2, placement="wrap") == SCHEDULES[name](4, 8, 2)
    with pytest.raises(ValueError, match=f"the placement has stages 0 and 7 on device 0: {name} needs a wrap"):
        SCHEDULES[name](4, 8, 2, placement="v")


# ── Zero bubble ───────────────────────────────────────────────────────────────────────────────────────────────────

PASSES = [(1, 1, 1), (2, 2, 1), (3, 2, 1), (2, 3, 2), (2.5, 2, 0.5), (1, 1, 0)]  # F, I, W with W ≤ min(F, I)


def longest_span(t):
    """The longest time of a device from its first start to its last end."""
    return max(float(t.end[a:b].max() - t.start[a:b].min()) for a, b in t.schedule.row_slices)


def by_the_rule(d, m, ahead):
    """Forwards first; then in turn a forward, an I, and the oldest W once more than a lag of them wait; then the Ws."""
    rows = []
    for k in range(d):
        forwards, waiting = [Op(k, "F", b) for b in range(m)], []
        row, forwards = forwards[: ahead * (d - k - 1)], forwards[ahead * (d - k - 1) :]
        for b in range(m):
            row += [*forwards[:1], Op(k, "I", b)]
            forwards = forwards[1:]
            waiting.append(Op(k, "W", b))
            if len(waiting) > ahead * k:
                row.append(waiting.pop(0))
        rows.append(row + waiting)
    return pplab.Schedule(rows)


def test_zero_bubble_rows_follow_the_rule():
    for d, m in GRID:
        assert zb_h1(d, m) == by_the_rule(d, m, 1)
        assert zb_h2(d, m) == by_the_rule(d, m, 2 if m > d else 1)


@pytest.mark.parametrize("passes", PASSES)
def test_zero_bubbles_spans_by_the_papers_formulas(passes):
    """Qi et al. 2024: bubbles (p−1)(F+I+W), (p−1)(F+I−W), (p−1)(F+I−2W) beside m(F+I+W) of work."""
    f, i, w = passes
    for build, gain, least in ((pplab.one_f_one_b, -1, 1), (zb_h1, 1, 1), (zb_h2, 2, 2)):
        for d in range(1, 8):
            for m in range(least * (d - 1) + 1, 3 * d + 2):
                t = simulate(build(d, m), Costs(f, i, w))
                bubble = (d - 1) * (f + i - gain * w)
                assert longest_span(t) == m * (f + i + w) + bubble
                assert bubble_fraction(t, over="span") == pytest.approx(bubble / (m * (f + i + w) + bubble))


@pytest.mark.parametrize("passes", PASSES)
def test_with_few_micro_batches_zero_bubble_takes_what_the_paper_says(passes):
    """m ≤ p: (m+p−1)(F+I) + W against 1F1B's (m+p−1)(F+I+W)."""
    f, i, w = passes
    for d in range(1, 8):
        for m in range(1, d + 1):
            assert makespan(simulate(pplab.one_f_one_b(d, m), Costs(f, i, w))) == (m + d - 1) * (f + i + w)
            for build in (zb_h1, zb_h2):
                t = simulate(build(d, m), Costs(f, i, w))
                assert makespan(t) == longest_span(t) == (m + d - 1) * (f + i) + w


@pytest.mark.parametrize(("d", "m", "slots"), [(4, 8, 27), (4, 4, 15), (4, 2, 11), (8, 16, 55)])
def test_makespans_of_zb_h1_on_which_other_tools_agree(d, m, slots):
    t = simulate(zb_h1(d, m))
    assert makespan(t) == slots
    assert peak_in_flight(t).max() == min(d, m)


def test_zb_h2_gains_in_span_and_not_in_makespan():
    h1, h2 = simulate(zb_h1(4, 8)), simulate(zb_h2(4, 8))
    assert (makespan(h1), longest_span(h1)) == (27, 27)
    assert (makespan(h2), longest_span(h2)) == (27, 24)
    assert bubble_fraction(h2, over="span") == pytest.approx(0)


@pytest.mark.parametrize(("kept", "left"), [(1, 0), (1, 1), (34 + 5 * 24 * 1024 / 2304, 32)])
def test_zero_bubble_holds_what_the_paper_says(kept, left):
    """Worker i from 1: (p−i+1)M_B + (i−1)M_W for H1, (2p−2i+1)M_B + (2i−2)M_W for H2; the last case is its 1.5B model.

    F takes M_B; I gives it back but for M_W, which W gives back.
    """
    change = {"F": kept, "I": left - kept, "W": -left}
    for d, m in ((1, 3), (2, 5), (4, 8), (8, 24)):
        for build, ahead in ((zb_h1, 1), (zb_h2, 2)):
            t = simulate(build(d, m))
            for k in range(d):
                own = [span for span in t if span.device == k]
                moments = [(span.start if span.kind == "F" else span.end, change[span.kind]) for span in own]
                held = max(itertools.accumulate(delta for _, delta in sorted(moments)))
                assert held == pytest.approx((ahead * (d - k - 1) + 1) * kept + ahead * k * left), (build, d, k)


def test_interleaved_zero_bubble_has_the_bubble_and_the_memory_of_its_warm_up():
    """With V chunks still (D−1)(F+I−W) of a chunk by span for any M ≥ D, and one peak on all devices."""
    for d, m, v in itertools.product(range(1, 6), range(1, 14), range(1, 5)):
        t = simulate(zb_h1(d, m, num_chunks=v), Costs(3, 2, 1))
        group = -(-m // max(1, m // d))
        assert peak_in_flight(t).tolist() == [min(v * m, d + (v - 1) * group)] * d
        if m >= d:
            assert longest_span(t) == 6 * v * m + 4 * (d - 1)


TABLE_5 = json.loads((DATA / "zero_bubble_table5.json").read_text())["rows"]


@pytest.mark.parametrize("row", TABLE_5, ids=lambda row: f"{row['model']}-{row['m']}")
@pytest.mark.parametrize(
    ("name", "build", "v", "tolerance"),
    [
        ("1F1B", pplab.one_f_one_b, 1, 5e-5),
        ("ZB-H1", zb_h1, 1, 5e-5),
        ("ZB-H2", zb_h2, 1, 5e-5),
        ("1F1B-I", pplab.interleaved_1f1b, 3, 4e-3),
    ],
)
def test_bubble_rates_are_those_of_table_5(row, name, build, v, tolerance):
    """Qi et al. 2024, to all digits, but for interleaving: its V is inferred."""
    s = build(row["p"], row["m"], num_chunks=v)
    passes = dict(forward=row["T_F"], backward_input=row["T_B"], backward_weight=row["T_W"])
    t = simulate(s, Costs.per_device(s, **passes, hop=row["T_comm"]))
    cost, work = longest_span(t), row["m"] * (row["T_F"] + row["T_B"] + row["T_W"])
    assert bubble_fraction(t, over="span") == pytest.approx((cost - work) / cost)
    assert abs((cost - work) / cost - row["paper_bubble_rate"][name]) < tolerance
