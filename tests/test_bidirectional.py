"""DualPipe, DualPipeV, Chimera and Hanayo: PyTorch's orders, the papers' formulas, and what reads their schedules."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

import pplab
from pplab import Costs, Op, Schedule, bubble_fraction, busy_time, lower_bound, makespan, peak_in_flight, simulate
from pplab.layouts import Layout
from pplab.memory import estimate_memory
from pplab.model import TransformerModel
from pplab.numeric import MLP, full_batch, relative_difference, run
from pplab.placement import wave
from pplab.schedules import chimera, dualpipe, dualpipe_v, hanayo

ORDERS = Path(__file__).parent / "data/torch_orders/DualPipeV.json"
EQUAL = Costs(forward=1, backward=1)
SMALL = {
    "dualpipe": dualpipe(4, 8),
    "dualpipe-v": dualpipe_v(3, 6),
    "chimera": chimera(4, 6),
    "hanayo": hanayo(3, 5, num_chunks=4),
}
each = pytest.mark.parametrize("s", SMALL.values(), ids=SMALL)


def in_torch(s):
    """Each row as PyTorch spells it, pairs in brackets."""
    first = {a: b for a, b in s.pairs}
    second = set(first.values())
    return [
        [f"({op};{first[op]})OVERLAP_F_B" if op in first else str(op) for op in row if op not in second]
        for row in s.rows
    ]


def longest_idle(s, costs):
    t = simulate(s, costs)
    return float((makespan(t) - busy_time(t)).max())


# ── DualPipe and DualPipeV ────────────────────────────────────────────────────────────────────────────────────────


def test_dualpipe_vs_rows_are_pytorchs():
    cases = {case: c for case, c in json.loads(ORDERS.read_text())["cases"].items() if c["ok"]}
    assert len(cases) == 28
    for case, recorded in cases.items():
        d, m, _ = (int(part[1:]) for part in case.split("_"))
        assert in_torch(dualpipe_v(d, m)) == [[op for op in r.split() if op != "."] for r in recorded["ranks"]], case


def test_dualpipe_v_takes_what_pytorch_takes():
    for case, recorded in json.loads(ORDERS.read_text())["cases"].items():
        d, m, v = (int(part[1:]) for part in case.split("_"))
        if v == 2 and not recorded["ok"]:
            with pytest.raises(ValueError, match=f"dualpipe-v needs 2 · num_devices = {2 * d} or more"):
                dualpipe_v(d, m)


@pytest.mark.parametrize(
    ("d", "m", "pairs", "one_by_one"), [(4, 8, 54, 51), (4, 10, 66, 63), (2, 4, 26, None), (1, 2, 12, 12)]
)
def test_makespans_of_dualpipe_v_on_which_other_tools_agree(d, m, pairs, one_by_one):
    """All but D = 1: there nothing can wait."""
    s = dualpipe_v(d, m)
    assert makespan(simulate(s)) == pairs
    assert one_by_one in (None, makespan(simulate(Schedule(s.rows))))


@pytest.mark.parametrize("overlap", [1.0, 0.8, 0.7])
def test_the_device_that_idles_most_idles_the_readmes_formula(overlap):
    """(PP/2 − 1)(F&B + B − 3W) at F = I = W, PP being the stages; README of the DualPipe repository, table."""
    f, b, w = 1.0, 2.0, 1.0
    pair = overlap * (f + b)
    costs = Costs(f, w, w, pair=pair)
    for d in (2, 4, 6, 10):
        for m in (2 * d, 2 * d + 2, 5 * d):
            assert longest_idle(dualpipe(d, m), costs) == pytest.approx((d / 2 - 1) * (pair + b - 3 * w), abs=1e-9)
    for d in (1, 2, 3, 5):
        for m in (2 * d, 2 * d + 1, 5 * d):
            assert longest_idle(dualpipe_v(d, m), costs) == pytest.approx((d - 1) * (pair + b - 3 * w), abs=1e-9)


def test_held_as_the_readme_says():
    """PP + 1 of a stage's activations on each device, PP being the stages."""
    for d in (2, 4, 6, 8):
        assert (peak_in_flight(simulate(dualpipe(d, 2 * d))) == d + 1).all()
    for d in (2, 3, 4, 7):
        assert (peak_in_flight(simulate(dualpipe_v(d, 2 * d))) == 2 * d + 1).all()


def test_dualpipe_is_symmetric_and_dualpipe_v_is_its_first_half():
    for d, m in [(2, 4), (4, 8), (6, 14)]:
        s, v = dualpipe(d, m), dualpipe_v(d // 2, m // 2)
        swapped = [[Op(k, kind, (i + m // 2) % m) for k, kind, i in row] for row in s.rows]
        assert swapped[::-1] == [list(row) for row in s.rows]
        assert [[Op(k, kind, i % (m // 2)) for k, kind, i in row] for row in s.rows[: d // 2]] == [*map(list, v.rows)]
        assert s.placement == tuple((min(k, d - 1 - k), max(k, d - 1 - k)) for k in range(d))
        assert makespan(simulate(s)) == makespan(simulate(v))


def test_only_forwards_and_backwards_of_different_directions_run_as_one():
    for s in (dualpipe(6, 16), dualpipe_v(4, 9)):
        assert len(s.pairs) > 0
        for a, b in s.pairs:
            assert (a.kind, b.kind, a.stage + b.stage) == ("F", "B", s.num_stages - 1)


# ── Chimera ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_chimera_with_equal_passes_takes_its_formula():
    for d in (2, 4, 6, 8, 12):
        for m in range(2, 4 * d + 2, 2):
            t = simulate(chimera(d, m), EQUAL)
            assert makespan(t) == m + (-(-m // d) + 1) * d - 2
            if m % d == 0:
                assert bubble_fraction(t) == pytest.approx((d - 2) / (2 * m + d - 2))


def test_chimera_holds_as_its_paper_says():
    """From D/2 + 1 micro-batches to D, for M ≥ D."""
    for d in (2, 4, 6, 8):
        for m in (d, 2 * d, 3 * d):
            peak = peak_in_flight(simulate(chimera(d, m)))
            assert (peak.min(), peak.max()) == (d // 2 + 1, d)


passes = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(sorted)


@given(st.integers(1, 6), st.integers(1, 5), passes)
@examples(60)
def test_chimera_with_longer_backwards_pays_for_each_further_unit(half, units, times):
    d, (f, b) = 2 * half, times
    m = units * d
    expected = m * (f + b) + (d - 2) * (b + (units - 1) * (b - f))
    assert makespan(simulate(chimera(d, m), Costs(f, backward=b))) == expected


# ── Hanayo ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_hanayo_with_equal_passes_takes_the_least_time_that_there_is():
    """The device where a wave turns gets its first pass after D − 1 others, and as many follow its last one."""
    for v in (2, 4, 6):
        for d in (1, 2, 3, 4, 7):
            for m in (*range(1, 2 * d + 2), 3 * d, 3 * d + 2):
                s = hanayo(d, m, num_chunks=v)
                t = simulate(s, EQUAL)
                if m < d:
                    assert makespan(t) == 2 * v * d + 2 * (m - 1)
                    continue
                assert makespan(t) == 2 * v * m + 2 * (d - 1) == lower_bound(s, EQUAL)
                assert bubble_fraction(t) == pytest.approx((d - 1) / (v * m + d - 1))


@given(st.integers(1, 8), st.integers(0, 20), st.integers(1, 3), passes)
@examples(80)
def test_hanayo_with_longer_backwards_pays_for_each_further_group(d, more, waves, times):
    m, v, (f, b) = d + more, 2 * waves, times
    t = simulate(hanayo(d, m, num_chunks=v), Costs(f, backward=b))
    assert makespan(t) == v * m * (f + b) + 2 * (d - 1) * (b + (m // d - 1) * (b - f))
    if m == d and b == 2 * f:
        assert bubble_fraction(t) == pytest.approx((2 * d - 2) / (3 * d * waves + 2 * d - 2))


def test_hanayo_stands_in_a_wave_and_holds_a_group():
    for d, m, v in [(3, 3, 2), (4, 9, 4), (2, 7, 6)]:
        s = hanayo(d, m, num_chunks=v)
        assert [sorted(row) for row in wave(d, v).tolist()] == [list(row) for row in s.placement]
        assert hanayo(d, m, num_chunks=v, placement="v") == hanayo(d, m, num_chunks=v, placement=wave(d, v)) == s
        assert peak_in_flight(simulate(s)).max() <= v * -(-m // max(1, m // d))


# ── What they refuse ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: dualpipe(5, 9),
            "num_devices must be even for dualpipe, not 5: stage k stands on devices k and D − 1 − k; "
            "take num_devices=4 with num_microbatches=10 or num_devices=6 with num_microbatches=12",
        ),
        (lambda: dualpipe(3, 8), "take num_devices=2 with num_microbatches=8 or num_devices=4 with num_microbatches=8"),
        (lambda: dualpipe(1, 8), "D − 1 − k; take num_devices=2 with num_microbatches=8"),
        (lambda: dualpipe(4, 6), "num_microbatches is 6: dualpipe needs 2 · num_devices = 8 or more, so that forwards"),
        (lambda: dualpipe(4, 6), "take 8, or fewer devices"),
        (
            lambda: dualpipe(4, 9),
            "num_microbatches must be even for dualpipe, not 9: half of them go each way; take num_devices=4 with "
            "num_microbatches=10",
        ),
        (
            lambda: dualpipe(4, 8, num_chunks=1),
            "dualpipe holds two stages a device, so num_chunks can only be 2, not 1: take V = 2 with these "
            "D = 4 and M = 8",
        ),
        (lambda: dualpipe_v(4, 7), "num_microbatches is 7: dualpipe-v needs 2 · num_devices = 8 or more"),
        (
            lambda: dualpipe_v(4, 8, placement="wrap"),
            'dualpipe-v needs a V, placement="v": device 0 with stages 0 and 7',
        ),
        (
            lambda: chimera(5, 4),
            "num_devices must be even for chimera, not 5: stage k stands on devices k and D − 1 − k",
        ),
        (
            lambda: chimera(4, 5),
            "num_microbatches must be even for chimera, not 5: half of them go each way; take 4 or 6",
        ),
        (lambda: chimera(4, 1), "half of them go each way; take 2"),
        (lambda: hanayo(4, 4, num_chunks=3), "num_chunks must be even for hanayo, not 3: each wave is two chunks of a"),
        (lambda: hanayo(4, 4, num_chunks=3), "take 2 or 4"),
        (lambda: hanayo(4, 4, placement="wrap"), 'hanayo needs a V, placement="v"'),
        (
            lambda: Layout(1, 4, 1, 2, 1, 8, schedule="dualpipe"),
            "holds each stage on two devices: layouts have one copy",
        ),
        (lambda: Layout(1, 4, 1, 2, 1, 8, schedule="chimera"), "so choose 'hanayo', which came of it and has one"),
    ],
)
def test_errors_say_what_to_do(build, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        build()


# ── What reads them ───────────────────────────────────────────────────────────────────────────────────────────────


@each
def test_every_device_has_the_same_work(s):
    """Two copies halve what each stage of a device does, so a whole stage's cost a stage is right."""
    t = simulate(s, Costs.per_device(s, forward=1.0, backward=2.0))
    assert busy_time(t) == pytest.approx(np.full(s.num_devices, 3.0 * s.num_microbatches))


@each
def test_gradients_are_the_whole_batchs_copies_added_up(s):
    model, draw = MLP.equal(s.num_stages + 1, 4), np.random.default_rng(0)
    x, y = draw.normal(size=(2, 2 * s.num_microbatches, 4))
    result = run(s, model, x, y)
    assert relative_difference(result.gradients, full_batch(model, x, y).gradients) < 1e-12
    assert relative_difference(run(simulate(s, Costs(hop=0.3)), model, x, y).gradients, result.gradients) < 1e-12


def test_a_stage_on_two_devices_is_paid_for_twice():
    model = TransformerModel(8, 64, 4, 100, 16, tied_head=False)
    one, *others = (estimate_memory(model, s) for s in (pplab.one_f_one_b(4, 8), dualpipe(4, 8), chimera(4, 8)))
    for two in others:
        for part in ("weights", "gradients", "optimizer"):
            alone = getattr(one, part)
            assert getattr(two, part) == pytest.approx(alone + alone[::-1])


@each
def test_files_give_them_back(s, tmp_path):
    t = simulate(s, Costs(hop=0.5))
    pplab.write_torch_csv(s, tmp_path / "s.csv")
    pplab.write_json(t, tmp_path / "t.json")
    pplab.write_chrome_trace(t, tmp_path / "t.trace")
    assert pplab.read_torch_csv(tmp_path / "s.csv") == s
    again = pplab.read_json(tmp_path / "t.json")
    assert again.schedule == s and (again.start == t.start).all()
    slices = [e for e in json.loads((tmp_path / "t.trace").read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(slices) == s.num_ops
    if s.pairs:
        a, b = (next(e for e in slices if e["name"] == str(op)) for op in s.pairs[0])
        assert (a["ts"], a["dur"], a["tid"]) == (b["ts"], b["dur"], b["tid"])


@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
def test_pictures_tell_the_two_directions_apart(name):
    """A bar in each box of what enters at the other end, in its own half of the row where it is one of a pair."""
    s = SMALL[name]
    t = simulate(s)
    marked = s.microbatch >= s.num_microbatches // 2
    drawn = pplab.svg.timeline(t)
    assert f"{name} (bar: enters on device 3)" in drawn
    bars = re.search('class="chunk" d="([^"]+)"', drawn)[1].count("M")
    assert bars == marked.sum() == s.num_ops // 2
    ax = pplab.draw_timeline(t)
    assert ax.get_title(loc="left") == f"{name} (bar: enters on device 3)"
    boxes = {round(path.get_extents().y0, 6) for path in ax.collections[-1].get_paths()}
    assert len(ax.collections[-1].get_paths()) == marked.sum()
    assert len(boxes) == (4 + 2 * 4 if s.pairs else 4)  # a whole box, and either half of one, in each of four rows


def test_pictures_of_one_direction_have_no_such_bar():
    for s in (SMALL["hanayo"], pplab.one_f_one_b(4, 8)):
        assert "enters" not in pplab.svg.timeline(simulate(s)) + pplab.draw_timeline(simulate(s)).get_title(loc="left")
