"""Memory against published tables, the chapter's figures, and a slow count that goes through each row op by op."""

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drawn, examples

import pplab
from pplab import Costs, Schedule, in_flight, peak_in_flight, read_torch_csv, simulate
from pplab.memory import (
    CONVENTIONS,
    PARTS,
    BytesPerParameter,
    MemoryEstimate,
    bytes_per_parameter,
    estimate_memory,
    layer_activation_bytes,
    layer_tensors,
    recompute_flops,
    weight_pass_bytes,
)
from pplab.model import MODELS, TransformerModel
from pplab.numeric import MLP, run
from pplab.partition import Partition

DATA = Path(__file__).parent / "data"
GPT3, LLAMA = MODELS["GPT-3 175B"], MODELS["Llama-3 8B"]
SBH = 2048 * 12288  # s · b · h of GPT-3 at b = 1
FIVE_AS_H = 5 * 96 * 2048 / 12288  # 80
GiB = 2**30
SMALL = TransformerModel(12, 16, 4, 100, 32)  # 5as/h = 40
SMALL_SBH = 32 * 16
KORTHIKANTI = json.loads((DATA / "memory/korthikanti2022.json").read_text())["configs"][0]
PER_STAGE = json.loads((DATA / "memory/gpt3_per_stage.json").read_text())["stages"]["b1_m64"]
# Korthikanti's rows: the keys of its table → options.
ROWS = {
    "none": {},
    "tp": {"tensor_parallel": 8},
    "tp+sp": {"tensor_parallel": 8, "sequence_parallel": True},
    "tp+sel": {"tensor_parallel": 8, "recompute": "selective"},
    "tp+sp+sel": {"tensor_parallel": 8, "sequence_parallel": True, "recompute": "selective"},
    "full": {"tensor_parallel": 8, "recompute": "full"},
    "full/t": {"tensor_parallel": 8, "sequence_parallel": True, "recompute": "full"},
}


def interleaved(num_devices, num_microbatches, num_chunks):
    """Megatron-LM's interleaved order for M a multiple of D: warm-up 2(D − k − 1) + (V − 1)D, then one F, one B."""
    d, m, v = num_devices, num_microbatches, num_chunks
    rows = []
    for k in range(d):
        order = [(c, g * d + i) for g in range(m // d) for c in range(v) for i in range(d)]
        forward = [f"{c * d + k}F{b}" for c, b in order]
        backward = [f"{(v - 1 - c) * d + k}B{b}" for c, b in order]
        warm = min(m * v, 2 * (d - k - 1) + (v - 1) * d)
        steady = [op for pair in zip(forward[warm:], backward, strict=False) for op in pair]
        rows.append([*forward[:warm], *steady, *backward[m * v - warm :]])
    return Schedule(rows, name="interleaved")


def zero_bubble(num_devices, num_microbatches, warm_up, lag):
    """references.md: so many forwards first, then [F if any is left, I, and the oldest W once more than lag wait]."""
    rows = []
    for k in range(num_devices):
        row = [f"{k}F{m}" for m in range(warm_up(k))]
        forwards, weights = list(range(warm_up(k), num_microbatches)), []
        for m in range(num_microbatches):
            row += [f"{k}F{forwards.pop(0)}"] if forwards else []
            row.append(f"{k}I{m}")
            weights.append(f"{k}W{m}")
            row += [weights.pop(0)] if len(weights) > lag(k) else []
        rows.append(row + weights)
    return Schedule(rows)


# ── One block ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "per_sbh"),
    [
        ("none", 34 + FIVE_AS_H),
        ("tp", 10 + 24 / 8 + FIVE_AS_H / 8),
        ("tp+sp", (34 + FIVE_AS_H) / 8),
        ("tp+sel", 10 + 24 / 8),
        ("tp+sp+sel", 34 / 8),
        ("full", 2),
        ("full/t", 2 / 8),
    ],
)
def test_a_gpt_block_keeps_what_korthikanti_says(row, per_sbh):
    assert layer_activation_bytes(GPT3, **ROWS[row]) == per_sbh * SBH
    assert layer_activation_bytes(GPT3, 4, **ROWS[row]) == 4 * per_sbh * SBH
    expected = KORTHIKANTI["first_stage_activation_GiB"][row]
    first_stage = 96 * (1 + 7 / 24) * layer_activation_bytes(GPT3, **ROWS[row])
    assert first_stage / GiB == pytest.approx(expected, abs=6e-4)


def test_shares_of_figure_7():
    full = layer_activation_bytes(GPT3, **ROWS["tp"])
    for row, percent in KORTHIKANTI["paper_fig7_percent"].items():
        assert 100 * layer_activation_bytes(GPT3, **ROWS[row]) / full == pytest.approx(percent, abs=0.15)


@given(*(st.integers(1, 4) for _ in range(4)), st.sampled_from([1, 2, 4]))
@examples(100)
def test_any_gpt_block_keeps_34_plus_5as_over_h(width, heads, batch, length, t):
    model = TransformerModel(2, 4 * heads * width, 4 * heads, 10, 4 * length)
    sbh = batch * model.seq_len * model.hidden_size
    scores = 5 * model.num_heads * model.seq_len / model.hidden_size
    for parallel, expected in ((False, 10 + (24 + scores) / t), (True, (34 + scores) / t)):
        found = layer_activation_bytes(model, batch, tensor_parallel=t, sequence_parallel=parallel)
        assert found == pytest.approx(expected * sbh)
    assert weight_pass_bytes(model, batch) == 32 * sbh


def test_tensors_of_a_block():
    tensors = layer_tensors(GPT3)
    by_rule = {
        "norm inputs": 4, "queries": 2, "keys": 2, "values": 2, "activation input": 8, "last projection input": 8,
        "attention dropout mask": 1, "feed-forward dropout mask": 1, "softmax dropout mask": FIVE_AS_H / 5,
    }  # fmt: skip
    assert {name: tensors[name] / SBH for name in by_rule} == by_rule
    assert sum(tensors.values()) == 114 * SBH
    assert layer_activation_bytes(GPT3, dropout=False) == (32 + 2 / 5 * FIVE_AS_H) * SBH
    assert layer_activation_bytes(GPT3, activation_bytes=4) == (2 * 34 - 2 + (2 * 5 - 1) / 5 * FIVE_AS_H) * SBH


def test_llama_blocks_are_counted_by_the_same_rule():
    """By hand, in sbh: norms 4, qkv in 2, Q 2, K and V 2 · 8/32 each, out in 2, feed-forward in 2, four of 2 · 3.5."""
    sbh, grouped = 8192 * 4096, 8 / 32
    kept = layer_activation_bytes(LLAMA, recompute="selective", dropout=False)
    assert kept == (4 + 2 + 2 + 4 * grouped + 2 + 2 + 4 * 2 * 3.5) * sbh
    assert layer_activation_bytes(LLAMA, dropout=False) - kept == 2 * 32 * 8192 * 8192
    # what goes into matrices: 2 + 2 + 2 + 7; gradients of what comes out: Q 2, K, V, out 2, gate and up 14, down 2
    assert weight_pass_bytes(LLAMA) == (2 + 2 + 2 + 7 + 2 + 4 * grouped + 2 + 14 + 2) * sbh


def test_figure_9_full_recomputation_adds_a_third_and_selective_less():
    step = 3 * sum(GPT3.block_flops().values())
    assert recompute_flops(GPT3, recompute="full") / step == pytest.approx(1 / 3)
    assert recompute_flops(GPT3, recompute="stage") == recompute_flops(GPT3, recompute="full")
    assert recompute_flops(GPT3, recompute="selective") == 4 * 2048**2 * 12288
    assert 0 == recompute_flops(GPT3, recompute="none") < recompute_flops(GPT3, recompute="selective") < step / 3


# ── Parameters ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("names", "split"),
    [(("14", 14, "chapter"), (2, 0, 12)), (("16", "zero"), (2, 2, 12)), (("18", "megatron"), (2, 4, 12)),
     (("fp32",), (4, 4, 8))],
)  # fmt: skip
def test_conventions_by_name(names, split):
    for name in names:
        estimate = estimate_memory(SMALL, Schedule(["0F0 0B0"]), convention=name)
        parts = [float(part[0]) for part in (estimate.weights, estimate.gradients, estimate.optimizer)]
        assert parts == [SMALL.parameters * bytes_ for bytes_ in split]
    assert bytes_per_parameter(names[0]).total == sum(split)


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_a_sharded_optimizer_takes_6_and_12_over_d(replicas):
    assert bytes_per_parameter("18", replicas, sharded_optimizer=True).total == 6 + 12 / replicas
    assert bytes_per_parameter("18", replicas).total == 18
    s = pplab.gpipe(2, 2)
    one, many = (estimate_memory(SMALL, s, data_parallel=r, sharded_optimizer=True) for r in (1, replicas))
    assert many.optimizer == pytest.approx(one.optimizer / replicas)
    assert np.array_equal(many.gradients, one.gradients)


def test_bytes_of_your_own():
    estimate = estimate_memory(SMALL, pplab.gpipe(2, 2), convention=BytesPerParameter(1, 0.5, 0))
    assert np.array_equal(estimate.gradients, estimate.weights / 2)


def test_e5_a_stage_of_175_billion_takes_306_gb_and_a_share_of_it_38():
    s = pplab.one_f_one_b(8, 8)
    whole = estimate_memory(GPT3, s, convention="14").states
    eighth = estimate_memory(GPT3, s, convention="14", tensor_parallel=8).states
    # 14 · 175e9 / 8; the model has 0.2% fewer parameters than its name says, and a copy of its tied matrix
    assert whole.mean() == pytest.approx(306.25e9, rel=2e-3)
    assert eighth.mean() == pytest.approx(38.3e9, rel=2e-3)
    assert whole.min() > 80e9 and eighth.max() < 80e9


def test_a_stage_on_two_devices_is_held_twice():
    """DualPipe's placement, by hand: micro-batch 0 goes down the devices, 1 goes up."""
    s = Schedule(["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"])
    plain = estimate_memory(SMALL, pplab.gpipe(2, 2))
    both = estimate_memory(SMALL, s)
    tied = 16 * 100  # each device has the embedding and the head, so neither needs a copy
    assert both.weights.tolist() == [2 * SMALL.parameters] * 2
    assert plain.weights.sum() == 2 * (SMALL.parameters + tied)


def test_v_schedules_hold_each_stage_once():
    """Four devices, first and last stage on the same one: the tied matrix stands once."""
    for name in ("DualPipeV_D4_M8_V2", "ZBVZeroBubble_D4_M8_V2"):
        estimate = estimate_memory(SMALL, read_torch_csv(DATA / f"torch_csv/{name}.compute_only.csv"))
        assert estimate.weights.sum() == 2 * SMALL.parameters
        assert estimate.embedding.tolist() == [18 * (SMALL.embedding_parameters + SMALL.head_parameters), 0, 0, 0]


def test_an_untied_head_has_a_matrix_of_its_own():
    untied = TransformerModel(4, 16, 4, 100, 32, tied_head=False)
    estimate = estimate_memory(untied, pplab.gpipe(4, 4))
    assert estimate.weights.sum() == 2 * untied.parameters
    assert estimate.embedding.tolist() == [18 * (1600 + 32 * 16), 0, 0, 18 * (1600 + 32)]


def test_sizes_of_stages():
    block, ends = SMALL.block_parameters, SMALL.embedding_parameters
    uneven = estimate_memory(SMALL, pplab.one_f_one_b(3, 4), sizes=[2, 4, 8])
    assert (uneven.weights / 2).tolist() == [block + ends, 4 * block, 7 * block + 32 + 1600]
    kept = (34 + 40) * SMALL_SBH
    assert uneven.activations.tolist() == [3 * (kept + SMALL_SBH), 2 * 4 * kept, 7 * kept]
    assert uneven.temporary.tolist() == [0, 0, 0]
    cut = Partition((2, 4, 8), (1.0,) * 14)
    assert np.array_equal(estimate_memory(SMALL, pplab.one_f_one_b(3, 4), sizes=cut).total, uneven.total)
    default = estimate_memory(TransformerModel(5, 16, 4, 100, 32), pplab.gpipe(3, 1))
    assert (default.activations / kept).astype(int).tolist() == [2, 2, 1]
    bare = estimate_memory(SMALL, pplab.gpipe(3, 2), sizes=[1, 12, 1], recompute="stage")
    assert bare.activations.tolist() == [2 * SMALL_SBH, 2 * 2 * SMALL_SBH, 0]
    assert bare.temporary.tolist() == [0, (12 * (34 + 40) - 2) * SMALL_SBH, 0]


# ── Published tables ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stage", range(8))
def test_gpt3_stage_by_stage(stage):
    estimate = estimate_memory(GPT3, pplab.one_f_one_b(8, 64), **ROWS["tp+sp+sel"])
    expected = PER_STAGE[stage]
    assert estimate.weights[stage] / 2 == expected["params_per_gpu"]
    assert estimate.states[stage] / GiB == pytest.approx(expected["states_GiB_18B"], abs=6e-4)
    assert estimate.activations[stage] / GiB == pytest.approx(expected["activation_GiB"], abs=6e-4)
    assert estimate.logits[stage] / GiB == pytest.approx(expected["logits_and_final_norm_GiB"], abs=6e-4)
    # one block's scores, recomputed in the backward under way
    assert estimate.temporary[stage] == FIVE_AS_H / 8 * SBH
    assert estimate.fullest == 0


@pytest.mark.parametrize("row", ROWS)
def test_korthikantis_first_stage(row):
    """Interleaved 1F1B, p = 8, v = 3, m = 64; the paper leaves out the mask of the embedding's dropout, sbh a chunk.

    Device 0 holds 31 chunks at most: 8 of each and 7 more of the first, which come to 16 as F of the next one
    replaces a chunk of the last.
    """
    estimate = estimate_memory(GPT3, interleaved(8, 64, 3), **ROWS[row])
    masks = 16 * SBH / (8 if ROWS[row].get("sequence_parallel") else 1)
    expected = KORTHIKANTI["first_stage_activation_GiB"][row]
    assert (estimate.activations[0] - masks) / GiB == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 8), (4, 8), (4, 12), (8, 16), (8, 20)])
@pytest.mark.parametrize("split_frees", [True, False])
def test_zero_bubble_workers(devices, microbatches, split_frees):
    """ZB-H1 (p − i + 1)M_B + (i − 1)M_W, ZB-H2 (2p − 2i + 1)M_B + (2i − 2)M_W, i from 1; M where I frees nothing."""
    model = TransformerModel(devices, 16, 4, 100, 32)
    m_b = (34 * 16 + 5 * 4 * 32) * 32
    m_w = 32 * SMALL_SBH if split_frees else m_b
    p = devices
    h1 = zero_bubble(p, microbatches, lambda k: p - k - 1, lambda k: k)
    h2 = zero_bubble(p, microbatches, lambda k: 2 * (p - k) - 2, lambda k: 2 * k)
    cases = [(h1, lambda i: ((p - i + 1), (i - 1)))]
    cases += [(h2, lambda i: ((2 * p - 2 * i + 1), (2 * i - 2)))] if microbatches >= 2 * p - 1 else []
    for s, rule in cases:
        found = estimate_memory(model, s, input_frees=split_frees).activations
        for i in range(1, p + 1):
            count_b, count_w = rule(i)
            mask = 0 if i > 1 else SMALL_SBH * count_b
            assert found[i - 1] == count_b * m_b + count_w * m_w + mask


def test_interleaved_first_stage_of_pytorch():
    """× (1 + (p − 1)/(pv)): 5.5 micro-batches of 4 stages against 4 (E25), whole devices counted."""
    s = read_torch_csv(DATA / "torch_csv/Interleaved1F1B_D4_M8_V2.compute_only.csv")
    model = TransformerModel(8, 16, 4, 100, 32)
    found = estimate_memory(model, s, dropout=False).activations
    layer = (32 + 2 / 5 * 40) * SMALL_SBH
    assert found[0] == model.num_layers * layer * (1 + 3 / 8)
    assert (found / layer).tolist() == [11, 9, 7, 5]
    assert [list(row) for row in interleaved(4, 8, 2).rows] == [list(row) for row in s.rows]


# ── The chapter ───────────────────────────────────────────────────────────────────────────────────────────────────


def chapter(schedule, num_microbatches, **options):
    """The chapter's example: 8 stages, B = 4, T = 2048, H = 12288, bf16; its masks are not in its figures."""
    s = pplab.SCHEDULES[schedule](8, num_microbatches)
    return estimate_memory(GPT3, s, micro_batch_size=4, **{"recompute": "stage", "dropout": False} | options)


def test_figure_7_and_e3():
    gpipe, one = (chapter(name, 16).activations / GiB for name in ("gpipe", "1f1b"))
    assert gpipe.sum() == 24.0 and one.max() == 1.5  # the chapter's "16x" compares these
    assert gpipe.tolist() == [3.0] * 8 and one.sum() == 6.75
    assert gpipe.max() / one.max() == 2
    gpipe, one = (chapter(name, 32).activations for name in ("gpipe", "1f1b"))
    assert gpipe.sum() == pytest.approx(51.5e9, rel=1e-3)
    assert gpipe.max() == pytest.approx(6.4e9, rel=1e-2)
    assert gpipe.max() / one.max() == 4


def test_e4_one_tensor_a_stage_is_12_times_short():
    stage, layer = (chapter("1f1b", 16, recompute=r).activations for r in ("stage", "full"))
    assert (layer / stage).tolist() == [12] * 8
    whole = chapter("1f1b", 16, recompute="none", dropout=True).activations
    assert (whole / layer).tolist() == pytest.approx([(34 + FIVE_AS_H) / 2] * 8, rel=1e-3)


def test_e22_stage_wise_checkpoints_hold_all_inputs_and_one_pass():
    found = chapter("gpipe", 16, dropout=True)
    boundary = 4 * SBH * 2
    assert found.activations[1:].tolist() == [16 * boundary] * 7
    # 12 × 11.5 GB; the input of the first block is recomputed by none
    assert (found.temporary + boundary)[1:].tolist() == [12 * 114 * 4 * SBH] * 7
    assert f"{114 * 4 * SBH / 1e9:.1f}" == "11.5"
    finer = chapter("gpipe", 16, dropout=True, recompute="full")
    assert finer.temporary[1] == (114 - 2) * 4 * SBH
    assert finer.activations[1] == 12 * 16 * boundary


@pytest.mark.parametrize("devices", [1, 2, 4, 8, 16, 32])
def test_e24_weights_fall_and_the_first_stage_keeps_all_layers_worth(devices):
    found = estimate_memory(GPT3, pplab.one_f_one_b(devices, 32), dropout=False)
    assert found.activations[0] == 96 * (32 + 2 / 5 * FIVE_AS_H) * SBH
    blocks = (found.states - found.embedding) / 18
    assert blocks.tolist() == [96 * GPT3.block_parameters / devices] * devices


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 4), (2, 2), (4, 8), (8, 3), (8, 32)])
@pytest.mark.parametrize(("mode", "kept"), [
    (None, lambda d, m, k: min(m, d - k)), ("stashed", lambda d, m, k: min(m, d - k)),
    ("vertical", lambda d, m, k: min(m, d)), ("2bw", lambda d, m, k: 2),
    ("unstashed", lambda d, m, k: 1), ("synchronous", lambda d, m, k: 1),
])  # fmt: skip
def test_versions_of_the_weights(devices, microbatches, mode, kept):
    """PipeDream keeps a version a micro-batch in flight, at most D − k; 2BW two; in the bytes of the weights."""
    found = estimate_memory(GPT3, pplab.SCHEDULES["pipedream"](devices, microbatches), mode=mode)
    flushed = estimate_memory(GPT3, pplab.one_f_one_b(devices, microbatches))
    count = np.array([kept(devices, microbatches, k) for k in range(devices)])
    assert (found.weights + found.versions).tolist() == (count * flushed.weights).tolist()
    assert (found.total - flushed.total).tolist() == found.versions.tolist()
    assert all((getattr(found, part) == getattr(flushed, part)).all() for part in PARTS if part != "versions")
    assert ("versions" in str(found)) == bool(found.versions.any())


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_2bw_with_recomputation_is_its_papers_formula(devices):
    """2|W|/d + |A_tot|/d + d|A_in| on the first device; 1F1B with a flush |W|/d + |A_tot|/d + d|A_in| (section 3.3)."""
    schedule = pplab.SCHEDULES["pipedream"](devices, 4 * devices)
    found = estimate_memory(GPT3, schedule, mode="2bw", recompute="stage", dropout=False)
    weights, layer = 2 * 96 * GPT3.block_parameters, (32 + 2 / 5 * FIVE_AS_H) * SBH
    embedding = found.weights[0] - weights / devices
    assert embedding == 2 * GPT3.layers()[0].parameters
    assert found.weights[0] + found.versions[0] == 2 * (weights / devices + embedding)
    assert found.activations[0] == devices * 2 * SBH
    assert found.temporary[0] + 2 * SBH == 96 * layer / devices


def test_a_schedule_with_a_flush_keeps_no_versions():
    for mode in ("stashed", "vertical", "2bw"):
        with pytest.raises(ValueError, match=f"mode is '{mode}', but 1f1b has a flush and one version of its weights"):
            estimate_memory(SMALL, pplab.one_f_one_b(2, 4), mode=mode)
    for mode in ("stash", ["2bw"]):
        with pytest.raises(ValueError, match="choose one of synchronous, stashed, unstashed, vertical, 2bw"):
            estimate_memory(SMALL, pplab.one_f_one_b(2, 4), mode=mode)
    assert not estimate_memory(SMALL, pplab.one_f_one_b(2, 4), mode="synchronous").versions.any()


@pytest.mark.parametrize(("devices", "microbatches"), [(4, 1), (4, 2), (4, 3), (4, 4), (4, 5), (1, 3)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_few_micro_batches(name, devices, microbatches):
    found = estimate_memory(SMALL, pplab.SCHEDULES[name](devices, microbatches), dropout=False)
    layer = (32 + 2 / 5 * 40) * SMALL_SBH
    held = [microbatches if name == "gpipe" else min(microbatches, devices - k) for k in range(devices)]
    assert found.activations.tolist() == [n * 12 / devices * layer for n in held]
    assert found.logits.tolist() == [0] * (devices - 1) + [held[-1] * (4 * 32 * 100 + 4 * SMALL_SBH)]


# ── Over time ─────────────────────────────────────────────────────────────────────────────────────────────────────


def slow_peaks(s, kept, again, left):
    """Bytes at each device's peak, and the bytes after each event, counted op by op along each row."""
    peaks, courses = [], []
    for a, b in s.row_slices:
        held, course, i = Counter(), [0], a
        while i < b:
            unit = [s.op(i), s.op(i + 1)] if s.paired[i] else [s.op(i)]
            i += len(unit)
            for stage, kind, m in unit:
                held[stage, m] += 0 if kind == "W" else (kept if kind == "F" else again)[stage]
            course.append(held.total())
            for stage, kind, m in unit:
                held[stage, m] = {"F": held[stage, m], "B": 0, "I": left[stage] if kind == "I" else 0, "W": 0}[kind]
            course.append(held.total())
        peaks.append(max(course))
        courses.append(course)
    return peaks, courses


@given(drawn(kinds=("B", "IW", "mixed")), st.sampled_from(["none", "selective", "full", "stage"]), st.booleans())
@examples(150)
def test_any_schedule_against_a_slow_count(case, recompute, frees):
    s = case.build()
    blocks = [1 + k % 3 for k in range(s.num_stages)]
    sizes = list(blocks)
    sizes[0] += 1
    sizes[-1] += 1
    model = TransformerModel(sum(blocks), 16, 4, 100, 32)
    head = (4 * 32 * 100 + 4 * SMALL_SBH) / SMALL_SBH
    per = {"none": 74, "selective": 34, "full": 2, "stage": 2}[recompute]
    kept = [per * (1 if recompute == "stage" else n) for n in blocks]
    at_once = [74 * n - 2 if recompute == "stage" else 74 - per for n in blocks]
    ends = [(k == 0) + head * (k == s.num_stages - 1) for k in range(s.num_stages)]
    whole = [74 * n for n in blocks]
    apart = [w - k for w, k in zip(whole, kept, strict=True)] if recompute in ("full", "stage") else at_once
    kept = [k + e for k, e in zip(kept, ends, strict=True)]
    left = [(w if recompute in ("full", "stage") else k - e) + e for w, k, e in zip(whole, kept, ends, strict=True)]
    if frees:
        left = [32 * n + head * (k == s.num_stages - 1) for k, n in enumerate(blocks)]
    split = {op[0] for row in s.rows for op in row if op.kind == "I"}
    if split and any(op.kind == "B" for row in s.rows for op in row):
        return  # what a backward recomputes depends on its kind; the slow count takes one kind
    peaks, courses = slow_peaks(s, kept, apart if split else at_once, left)
    t = simulate(s)
    found = estimate_memory(model, t, sizes=sizes, recompute=recompute, input_frees=frees)
    held = found.activations + found.logits + found.temporary
    assert (held / SMALL_SBH).tolist() == pytest.approx(peaks)
    for device, course in enumerate(courses):
        trace = found.trace(device)
        assert trace.total.max() == held[device]
        assert trace.total[-1] == 0 and (trace.total >= 0).all() and (np.diff(trace.times) >= 0).all()
        changed = [b for a, b in pairwise(course) if a != b]
        seen = trace.total[np.r_[True, np.diff(trace.total) != 0]] / SMALL_SBH
        if not s.paired.any():
            assert seen.tolist() == pytest.approx(changed)


@given(drawn(kinds=("B", "IW", "mixed")))
@examples(60)
def test_counts_agree_with_what_numeric_runs_hold_and_with_in_flight(case):
    """Equal stages of one block: bytes over time are one block's bytes times the micro-batches held."""
    s = case.build()
    model = TransformerModel(s.num_stages, 16, 4, 100, 32)
    t = simulate(s)
    found = estimate_memory(model, t, dropout=False, logits_bytes=0)
    layer = layer_activation_bytes(model, dropout=False)
    assert (found.activations / layer).tolist() == peak_in_flight(t).tolist()
    mlp = MLP.equal(2 * s.num_stages, 4)
    live = run(s, mlp, np.ones((3 * s.num_microbatches, 4)), np.ones((3 * s.num_microbatches, 4))).live_bytes
    for device, (a, b) in enumerate(s.row_slices):
        trace, (moments, counts) = found.trace(device), in_flight(t, device)
        assert set(moments) == set(trace.times)
        last = np.searchsorted(trace.times, moments, side="right") - 1
        assert (trace.activations[last] / layer).tolist() == counts.tolist()
        now = np.searchsorted(trace.times, t.start[a:b], side="right") - 1
        assert (trace.activations[now] / layer).tolist() == (live[a:b] / (3 * 3 * 4 * 8)).tolist()


def test_bytes_rise_with_each_forward_and_fall_with_each_backward():
    """By hand: device 1 of two, F at 1 and 4, B ends at 4 and 7; what B0 gives back goes before F1 takes."""
    found = estimate_memory(SMALL, simulate(pplab.one_f_one_b(2, 2)), dropout=False, recompute="full")
    trace = found.trace(1)
    kept, again = 6 * 2 * SMALL_SBH, (32 + 16 - 2) * SMALL_SBH
    logits = 4 * 32 * 100 + 4 * SMALL_SBH
    assert trace.times.tolist() == [1, 2, 4, 4, 5, 7]
    assert trace.activations.tolist() == [kept, kept, 0, kept, kept, 0]
    assert trace.temporary.tolist() == [0, again, 0, 0, again, 0]
    assert trace.logits.tolist() == [logits, logits, 0, logits, logits, 0]
    assert trace.total.tolist() == (trace.activations + trace.temporary + trace.logits).tolist()


def test_chunks_peak_together_in_time():
    """Stages of 1 and 2 blocks on one device: 1 · 2 while both are held, not the sum of each one's own peak."""
    s = Schedule(["0F0 0F1 1F0 1B0 0B0 1F1 1B1 0B1"])
    model = TransformerModel(3, 16, 4, 100, 32)
    found = estimate_memory(model, s, sizes=[2, 3], dropout=False, logits_bytes=0)
    layer = layer_activation_bytes(model, dropout=False)
    assert found.activations.tolist() == [4 * layer]
    apart = Schedule(["0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1"])
    assert estimate_memory(model, apart, sizes=[2, 3], dropout=False).activations.tolist() == [3 * layer]


def test_times_do_not_change_peaks():
    s = pplab.one_f_one_b(4, 6)
    slow = simulate(s, Costs(forward=[1, 5, 0, 2], backward=[3, 0, 4, 1], hop=0.7))
    a, b = (estimate_memory(SMALL, x, recompute="full") for x in (s, slow))
    assert np.array_equal(a.total, b.total)
    assert a.timeline == simulate(s) and b.timeline is slow and b.schedule is s
    for device in range(4):
        assert b.trace(device).total.max() == pytest.approx((b.total - b.states)[device])


def test_an_input_pass_frees_nothing_unless_asked():
    s = Schedule(["0F0 0I0 0W0"])
    keeps, frees = (estimate_memory(SMALL, simulate(s), input_frees=f, logits_bytes=0).trace(0) for f in (False, True))
    mask = SMALL_SBH
    assert keeps.activations.tolist() == [12 * 74 * SMALL_SBH + mask, 0]
    assert keeps.times.tolist() == [0, 3]
    assert frees.activations.tolist() == [12 * 74 * SMALL_SBH + mask, 12 * 32 * SMALL_SBH, 0]
    assert frees.times.tolist() == [0, 2, 3]


# ── The estimate ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_parts_add_up_and_cannot_be_changed():
    found = estimate_memory(GPT3, pplab.one_f_one_b(8, 16), recompute="selective", tensor_parallel=8)
    parts = (found.weights, found.gradients, found.optimizer, found.activations, found.logits, found.temporary)
    assert found.total == pytest.approx(sum(parts))
    assert found.total.argmax() == found.fullest
    with pytest.raises(ValueError, match="read-only"):
        found.weights[0] = 0
    with pytest.raises(AttributeError):
        found.weights = found.gradients
    assert str(found).splitlines()[0].split() == [
        "device", "weights", "gradients", "optimizer", "activations", "logits", "temporary", "total", "GB",
    ]  # fmt: skip
    assert len(str(found).splitlines()) == 9


@pytest.mark.parametrize("t", [1, 3, 6])
def test_thirds_of_bytes_leave_no_crumbs(t):
    """h = 18, 6 heads: tensors cut in three; a trace ends at nothing, a peak has no rounding in its empty parts."""
    model = TransformerModel(6, 18, 6, 101, 25, ffn_size=30)
    found = estimate_memory(model, simulate(pplab.one_f_one_b(3, 7)), tensor_parallel=t, recompute="selective")
    assert found.logits[:2].tolist() == [0, 0]
    for device in range(3):
        trace = found.trace(device)
        assert trace.total[-1] == 0 and trace.activations.min() == trace.temporary.min() == 0


def test_sizes_beyond_any_machine_do_not_overflow():
    small, huge = (estimate_memory(GPT3, pplab.gpipe(8, 64), micro_batch_size=b).activations for b in (1, 2**40))
    assert np.array_equal(huge, small * 2**40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel": 5}, "num_heads 96 is not a multiple of tensor_parallel 5: .* is 4 or 6"),
        ({"tensor_parallel": 200}, "nearest tensor_parallel that divides it is 96"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0"),
        ({"tensor_parallel": 3, "sequence_parallel": True}, "seq_len 2048 is not a multiple .* is 2 or 4"),
        ({"convention": "adam"}, "convention is 'adam': choose one of '14', 'chapter', '16'.*'fp32'"),
        ({"convention": 15}, "convention is 15: choose one of"),
        ({"recompute": "some"}, "recompute is 'some': choose one of 'none', 'selective', 'full', 'stage'"),
        ({"micro_batch_size": 0}, "micro_batch_size is 0: give a whole number of 1 or more"),
        ({"micro_batch_size": -1}, "micro_batch_size is -1"),
        ({"micro_batch_size": float("nan")}, "micro_batch_size is nan"),
        ({"seq_len": 0}, "seq_len is 0"),
        ({"activation_bytes": 0}, "activation_bytes is 0"),
        ({"logits_bytes": -4}, "logits_bytes is -4"),
        ({"data_parallel": 0}, "data_parallel is 0"),
        (
            {"sizes": [49, 48]},
            "sizes add up to 97 layers, but GPT-3 175B has 98: the embedding, 96 blocks and the head",
        ),
        ({"sizes": [98]}, "sizes has 1 entries, but the schedule has 2 stages"),
        ({"sizes": [98, 0]}, r"sizes\[1\] is 0"),
        ({"sizes": [float("nan"), 98]}, r"sizes\[0\] is nan"),
    ],
)
def test_errors_say_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        estimate_memory(GPT3, pplab.gpipe(2, 2), **options)


def test_more_errors():
    with pytest.raises(ValueError, match=r"num_kv_heads 8 is not a multiple of tensor_parallel 16: .* is 8"):
        layer_activation_bytes(LLAMA, tensor_parallel=16)
    with pytest.raises(ValueError, match="Mixtral 8x7B has 8 experts a block"):
        estimate_memory(MODELS["Mixtral 8x7B"], pplab.gpipe(2, 2))
    with pytest.raises(ValueError, match="the schedule forward-only runs forward only, so nothing is held"):
        estimate_memory(SMALL, pplab.SCHEDULES["forward-only"](2, 2))
    with pytest.raises(TypeError, match="is not a schedule"):
        estimate_memory(SMALL, "1f1b")
    with pytest.raises(ValueError, match="num_stages is 16, but there are 12 layers"):
        estimate_memory(SMALL, pplab.gpipe(16, 2))
    with pytest.raises(ValueError, match="there is no device 2: they are numbered 0 to 1"):
        estimate_memory(SMALL, pplab.gpipe(2, 2)).trace(2)
    for bad in (-1, float("nan"), float("inf"), "2", True):
        with pytest.raises(ValueError, match="gradients is "):
            BytesPerParameter(2, bad, 12)
    with pytest.raises(ValueError, match=re.escape("recompute is 'half'")):
        recompute_flops(GPT3, recompute="half")


@pytest.mark.parametrize("bad", [[1.0], [1.0, -1.0], [1.0, float("nan")]])
def test_an_estimate_checks_itself(bad):
    ok = np.ones(2)
    with pytest.raises(ValueError, match=r"logits is .*give 2 finite numbers of bytes, one a device"):
        MemoryEstimate(pplab.gpipe(2, 2), ok, ok, ok, ok, ok, np.array(bad), ok, ok, np.zeros((4, 2, 2, 3), int))


def test_conventions_all_train():
    assert all(each.total in (14, 16, 18) for each in CONVENTIONS.values())
