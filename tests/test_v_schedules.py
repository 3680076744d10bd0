"""ZB-V, V-Half and V-Min: PyTorch's order, the papers' counts of activations and shares of bubble, exact optima."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples, is_legal

import pplab
from pplab import Schedule, bubble_fraction, makespan, peak_in_flight, simulate
from pplab.memory import estimate_memory
from pplab.model import TransformerModel
from pplab.numeric import MLP, full_batch, relative_difference, run
from pplab.placement import wave
from pplab.schedules import v_half, v_min, zb_v
from pplab.schedules._block import block_times

DATA = Path(__file__).parent / "data"
BUILDERS = {"zb-v": zb_v, "v-half": v_half, "v-min": v_min}
# Qi et al. 2024 (arXiv 2405.15362): the most micro-batches of two chunks that a device of D holds.
COUNTS = {"zb-v": lambda d: d, "v-half": lambda d: (d + 2) // 2, "v-min": lambda d: (d + 4) // 3}
SIZES = [(d, m) for d in (*range(1, 17), 32) for m in {1, d // 3 + 1, d, 2 * d, 3 * d}]

every_builder = pytest.mark.parametrize("name", BUILDERS)


def longest_span(t):
    """From the first start to the last end of the device where this takes longest."""
    return max(t.end[a:b].max() - t.start[a:b].min() for a, b in t.schedule.row_slices)


# ── ZB-V is PyTorch's, and better where PyTorch's is not good ─────────────────────────────────────────────────────


def torch_cases():
    """(D, M) and the rows of ScheduleZBVZeroBubble, drawing blanks left out."""
    for case, recorded in json.loads((DATA / "torch_orders/ZBVZeroBubble.json").read_text())["cases"].items():
        if recorded["ok"]:
            d, m, _ = (int(part[1:]) for part in case.split("_"))
            yield d, m, [[op for op in rank.split() if re.fullmatch(r"\d+[FIW]\d+", op)] for rank in recorded["ranks"]]


def test_zb_v_runs_pytorchs_order_where_that_never_pauses():
    cases = [case for case in torch_cases() if case[1] >= 2 * case[0] - 1]
    assert len(cases) == 32
    for d, m, rows in cases:
        assert [list(map(str, row)) for row in zb_v(d, m).rows] == rows, (d, m)


def test_zb_v_of_few_micro_batches_is_quicker_than_pytorchs_and_holds_no_more():
    cases = [case for case in torch_cases() if case[1] < 2 * case[0] - 1]
    assert len(cases) == 12
    for d, m, rows in cases:
        theirs, ours = simulate(Schedule(rows)), simulate(zb_v(d, m))
        assert makespan(ours) < makespan(theirs) or makespan(ours) == 6 * m + d - 1
        assert peak_in_flight(ours).max() <= peak_in_flight(theirs).max()
    assert makespan(simulate(Schedule(next(rows for d, m, rows in cases if (d, m) == (4, 2))))) == 22


@pytest.mark.parametrize(("d", "m", "slots"), [(4, 8, 51), (3, 6, 38), (2, 4, 25)])
def test_zb_v_makespans_on_which_other_tools_agree(d, m, slots):
    assert makespan(simulate(zb_v(d, m))) == slots


def test_zb_v_never_pauses_once_begun():
    """The last device can begin after D − 1 slots, and its 6M passes follow; no device's span is longer."""
    for d in range(1, 13):
        for m in (2 * d - 1, 2 * d, 2 * d + 3, 5 * d):
            t = simulate(zb_v(d, m))
            assert makespan(t) == 6 * m + d - 1
            assert longest_span(t) == 6 * m
            assert bubble_fraction(t, over="span") == 0


def test_zb_v_of_any_number_of_micro_batches_by_formula():
    """No order of the passes can be shorter in all cases that were solved exactly: LEAST, below."""
    for d in (*range(1, 10), 16):
        for m in range(1, 2 * d + 1):
            assert makespan(simulate(zb_v(d, m))) == zb_v_slots(d, m)
    assert all(zb_v_slots(d, m) == slots for (name, d, m), slots in LEAST.items() if name == "zb-v")


def zb_v_slots(d, m):
    """Few micro-batches: the chain of one, and 2 slots for each other one; many: 6 slots of work for each."""
    return max(4 * d + 2 * m, 3 * d + 4 * m, d + 6 * m) - 1


# ── Exact optima ──────────────────────────────────────────────────────────────────────────────────────────────────

# The fewest slots of any order of these passes under the same limit of chunks held: a constraint program (a start slot
# a pass, one pass a device and slot, at most so many chunks between F and the end of W), solved to the end by CP-SAT.
LEAST = {
    ("zb-v", 3, 2): 16,
    ("zb-v", 4, 2): 19,
    ("zb-v", 4, 3): 23,
    ("zb-v", 5, 2): 23,
    ("zb-v", 5, 3): 26,
    ("zb-v", 5, 4): 30,
    ("zb-v", 6, 4): 33,
    ("zb-v", 6, 5): 37,
    ("zb-v", 7, 5): 40,
    ("zb-v", 8, 6): 47,
    ("zb-v", 2, 3): 19,
    ("v-half", 3, 3): 23,
    ("v-half", 3, 4): 29,
    ("v-min", 4, 4): 35,
}


@pytest.mark.parametrize("case", LEAST, ids=str)
def test_no_order_is_shorter(case):
    name, d, m = case
    assert makespan(simulate(BUILDERS[name](d, m))) == LEAST[case]


# ── Activations ───────────────────────────────────────────────────────────────────────────────────────────────────


@every_builder
def test_the_fullest_device_holds_the_papers_count(name):
    """In chunks: twice the count, or all 2M where there are fewer micro-batches."""
    for d, m in SIZES:
        assert peak_in_flight(simulate(BUILDERS[name](d, m))).max() == 2 * min(COUNTS[name](d), m), (d, m)


# ── Bubbles ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "share"), [("v-half", 1 / 2), ("v-min", 2 / 3)])
def test_bubbles_of_the_paper(name, share):
    """About D/2M and 2D/3M of 6M slots of work, 3D and 4D: of D − 1 hops, in fact, and with up to two slots less."""
    for d in (*range(2, 17), 32):
        for m in (2 * d, 4 * d):
            t = simulate(BUILDERS[name](d, m))
            lost = longest_span(t) - 6 * m
            assert 6 * share * (d - 1) - 2 <= lost <= 6 * share * d
            assert bubble_fraction(t, over="span") == pytest.approx(lost / (6 * m + lost))


def test_v_min_is_as_short_as_its_chain():
    """A micro-batch every 6 slots, and the last one's chain: 2D forwards and 2D backwards, then W on device 0."""
    for d in range(2, 13):
        for m in (d, 2 * d, 3 * d + 1):
            assert makespan(simulate(v_min(d, m))) == 6 * (m - 1) + 4 * d + 1


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 8, 13, 16])
def test_less_memory_takes_more_time(d):
    for m in {1, 2, d, 2 * d, 3 * d}:
        timelines = [simulate(build(d, m)) for build in BUILDERS.values()]
        times, held = list(map(makespan, timelines)), [peak_in_flight(t).max() for t in timelines]
        assert times == sorted(times)
        assert held == sorted(held)[::-1]
        if d > 5 and m >= 2 * d:
            assert len(set(times)) == len(set(held)) == 3


# ── The block ─────────────────────────────────────────────────────────────────────────────────────────────────────


def blocks(d):
    """The block of each schedule, as its docstring gives it."""
    yield block_times(d, (3, 3, 3, 3), (2, 0, 2))
    yield block_times(d, (1, 2, 1, 2), (0, 0, 1) if d % 2 else (3, 0, 4))
    yield block_times(d, (1, 1, 1, 1), (0, 0, 0) if d % 3 else (2, 0, 2))


def test_repeated_blocks_never_collide():
    for d in range(1, 65):
        for times in blocks(d):
            assert all(len(set(row % 6)) == 4 for row in times)


def test_a_block_is_one_chain_of_4d_passes():
    for d in range(1, 20):
        for times in blocks(d):
            down = times[:, 0], times[::-1, 1], times[:, 2], times[::-1, 3]
            assert (np.diff(np.concatenate(down)) >= 1).all()


def test_what_a_block_holds_is_the_same_on_every_device():
    """From F to I: (a + b + c + d)(D − 1) + 4 + gap 0 + 2 · gap 1 + gap 2 slots where a + d = b + c."""
    for a, b, c, d, *gaps in itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (1, 2), (0, 2), (0, 3), (0, 1)):
        if a + d == b + c:
            f0, f1, i1, i0 = block_times(5, (a, b, c, d), gaps).T
            assert (i0 - f0 + i1 - f1 == 4 * (a + b + c + d) + 4 + gaps[0] + 2 * gaps[1] + gaps[2]).all()


# ── Any size, any consumer ────────────────────────────────────────────────────────────────────────────────────────


@given(st.sampled_from(sorted(BUILDERS)), st.integers(1, 7), st.integers(1, 16))
@examples(60)
def test_any_size_is_legal_and_stands_on_a_v(name, d, m):
    s = BUILDERS[name](d, m)
    assert is_legal([list(row) for row in s.rows])
    assert [list(stages) for stages in s.placement] == np.sort(wave(d, 2)).tolist()


@every_builder
@pytest.mark.parametrize("given", ["wrap", [[0, 4], [1, 5], [2, 6], [3, 7]], [[3, 4], [2, 5], [1, 6], [0, 7]]])
def test_a_placement_that_is_no_v_is_told_so(name, given):
    with pytest.raises(ValueError, match="the placement has stages") as error:
        BUILDERS[name](4, 8, placement=given)
    assert f'{name} needs a V, placement="v": device 0 with stages 0 and 7' in str(error.value)
    assert BUILDERS[name](4, 8, placement="v") == BUILDERS[name](4, 8, placement=wave(4, 2)) == BUILDERS[name](4, 8)


@every_builder
def test_gradients_are_the_whole_batchs(name):
    s = BUILDERS[name](3, 5)
    model, draw = MLP([4, 6, 5, 6, 5, 4, 3], seed=3), np.random.default_rng(0)
    x, y = draw.normal(size=(10, 4)), draw.normal(size=(10, 3))
    result, whole = run(s, model, x, y), full_batch(model, x, y)
    layers = [[layer for stage in result.gradients for layer in stage]]
    assert relative_difference(layers, [list(whole.gradients)]) < 1e-12
    assert result.loss == pytest.approx(whole.loss, rel=1e-13)


@every_builder
def test_memory_is_that_of_a_v(name):
    """Embedding and head stand on device 0, so the tied matrix is there once; chunks are held as they are in flight."""
    model = TransformerModel(16, 16, 4, 100, 32)  # 16 blocks, two a stage
    s = BUILDERS[name](4, 8)
    estimate = estimate_memory(model, s, logits_bytes=0, dropout=False)
    assert estimate.weights.sum() == 2 * model.parameters
    assert (estimate.embedding > 0).tolist() == [True, False, False, False]
    inner = estimate.activations[1:] / (2 * pplab.memory.layer_activation_bytes(model, dropout=False))
    assert inner.tolist() == peak_in_flight(simulate(s))[1:].tolist()


@every_builder
def test_pictures_and_files_show_every_pass(name, tmp_path):
    s = BUILDERS[name](4, 8)
    shown = pplab.svg.timeline(simulate(s))
    assert all(f"<title>{op}: " in shown for row in s.rows for op in row)
    pplab.write_torch_csv(s, tmp_path / "s.csv")
    assert pplab.read_torch_csv(tmp_path / "s.csv") == s


@pytest.mark.parametrize(("d", "m"), [(2, 4), (4, 8)])
def test_zb_v_is_the_schedule_of_pytorchs_file(d, m):
    assert pplab.read_torch_csv(DATA / f"torch_csv/ZBVZeroBubble_D{d}_M{m}_V2.compute_only.csv") == zb_v(d, m)
