"""Every schedule of SCHEDULES over a grid of sizes, without a word about any of them; then what is known of each."""

import inspect
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pplab
from pplab import SCHEDULES, Costs, Op, bubble_fraction, makespan, peak_in_flight, simulate

ORDERS = Path(__file__).parent / "data/torch_orders"
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
def test_the_picture_in_the_docstring_is_right(name):
    picture = re.findall(r"device \d+ +(.+)", inspect.getdoc(SCHEDULES[name]))
    cells = [line.split() for line in picture]
    if cells:
        m = 1 + max(map(int, re.findall(r"[FBIW](\d+)", " ".join(picture))))
        t = simulate(SCHEDULES[name](len(cells), m), Costs(1, 1, 1, backward=1, pair=1))
        shown = [[cell for cell in line.split()[2:]] for line in str(t).splitlines()[1:]]
        assert cells == shown


# ── The orders that PyTorch runs ──────────────────────────────────────────────────────────────────────────────────


def torch_cases(name):
    """(D, M) and the ops of each rank, as PyTorch runs them; drawing blanks and gradient reductions left out."""
    for case, recorded in json.loads((ORDERS / f"{name}.json").read_text())["cases"].items():
        d, m, _ = (int(part[1:]) for part in case.split("_"))
        rows = [[op for op in rank.split() if re.fullmatch(r"\d+[FBIW]\d+", op)] for rank in recorded["ranks"]]
        yield d, m, rows


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("GPipe", lambda d, m: pplab.gpipe(d, m, backward_order="fifo")), ("1F1B", pplab.one_f_one_b)],
    ids=["gpipe", "1f1b"],
)
def test_orders_equal_pytorchs(theirs, ours):
    cases = list(torch_cases(theirs))
    assert len(cases) == 44
    assert any(m < d for d, m, _ in cases)
    for d, m, rows in cases:
        assert [[str(op) for op in row] for row in ours(d, m).rows] == rows, (d, m)


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


def test_interleaved_rows_are_pytorchs():
    for case, recorded in json.loads((ORDERS / "Interleaved1F1B.json").read_text())["cases"].items():
        d, m, v = (int(part[1:]) for part in case.split("_"))
        rows = [[op for op in rank.split() if op != "."] for rank in recorded["ranks"]]
        assert [list(map(str, row)) for row in pplab.interleaved_1f1b(d, m, num_chunks=v).rows] == rows, case


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
