"""The chapter's figures 1 to 9, to the digit, faults included, and what is true beside them."""

import inspect

import numpy as np
import pytest

import pplab
from pplab import Costs, bubble_fraction, chapter, makespan, peak_in_flight, simulate
from pplab.chapter import (
    bubble_formula,
    comparison_table,
    estimate_activation_memory,
    message_bytes,
    simulate_1f1b,
    simulate_gpipe,
    stage_bytes,
    transfer_time,
    true_activation_memory,
    true_utilization,
)

MESSAGE = message_bytes(micro_batch_size=4, seq_len=2048, hidden_size=12288)
GPT3 = dict(num_stages=8, num_microbatches=16, micro_batch_size=4, seq_len=2048, hidden_size=12288, bytes_per_element=2)


def test_figure_1_a_message():
    assert MESSAGE == 201_326_592
    assert message_bytes(4, 2048, 12288, bytes_per_element=4) == 2 * 201_326_592


def test_figure_2_its_transfer():
    assert f"{transfer_time(MESSAGE, 600e9) * 1e3:.3f}" == "0.336"
    assert f"{transfer_time(MESSAGE, 300e9) * 1e3:.2f}" == "0.67"  # E1: one way
    assert f"{transfer_time(MESSAGE, 200e9 / 8) * 1e3:.2f}" == "8.05"


def test_figure_3_parameters_of_a_stage():
    assert [stage_bytes(175e9, d) / 1e9 for d in (1, 8, 16)] == [350, 43.75, 21.875]
    assert stage_bytes(175e9, 8, bytes_per_parameter=14) == 306.25e9  # E5


BUBBLES = {
    (4, 1): 0.75, (4, 2): 0.60, (4, 4): 0.4286, (4, 8): 0.2727, (4, 16): 0.1579, (4, 32): 0.0857, (4, 64): 0.0448,
    (16, 128): 0.1049,
}  # fmt: skip


@pytest.mark.parametrize("size", BUBBLES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_figure_4_bubbles_by_formula_and_by_simulation(name, size):
    assert round(bubble_formula(*size), 4) == BUBBLES[size]
    assert bubble_fraction(simulate(pplab.SCHEDULES[name](*size))) == pytest.approx(bubble_formula(*size))


def test_a_schedule_without_a_formula_is_refused_and_those_with_one_are_told():
    with pytest.raises(ValueError, match=r"there is a formula for naive, gpipe, 1f1b, .*, pipedream, not for 'zb-h1'"):
        bubble_formula(4, 8, "zb-h1")


def test_naives_bubble_is_the_same_for_any_number_of_micro_batches():
    for d in (1, 2, 4, 9):
        for m in (1, 4, 16):
            assert bubble_formula(d, m, "naive") == 1 - 1 / d
            assert bubble_fraction(simulate(pplab.naive(d, m))) == pytest.approx(1 - 1 / d)


def test_figure_5_the_traced_example():
    """Its slots are a picture in test_simulate."""
    t = simulate(pplab.one_f_one_b(4, 4), Costs(backward=1))
    assert makespan(t) == 14
    assert pplab.busy_time(t).tolist() == [8] * 4
    assert bubble_fraction(t) == pytest.approx(6 / 14)
    assert peak_in_flight(t).tolist() == [4, 3, 2, 1]


def test_figure_5_the_naive_trace_over_four_steps():
    rows = [[("F0" if k == step else ".") for step in range(4)] for k in range(4)]
    shown = str(simulate(pplab.naive(4, 1))).splitlines()[1:]
    assert [line.split()[2:6] for line in shown] == rows


FIGURE_6 = """\
1 | 100.0% | 160.0% | 75.0% | 25.0%
2 | 100.0% | 145.5% | 60.0% | 40.0%
4 | 100.0% | 123.1% | 42.9% | 57.1%
8 | 100.0% | 110.3% | 27.3% | 72.7%
16 | 100.0% | 104.9% | 15.8% | 84.2%
32 | 100.0% | 102.4% | 8.6% | 91.4%"""


def test_figure_6_the_printed_comparison_and_the_truth_beside_it():
    head, line, *rows = comparison_table().splitlines()
    assert [name.strip() for name in head.split("|")] == [
        "M", "GPipe util", "1F1B util", "bubble formula", "true utilisation",
    ]  # fmt: skip
    assert set(line) == {"-"}
    assert [" ".join(row.split()) for row in rows] == FIGURE_6.splitlines()
    assert len({len(row) for row in (head, line, *rows)}) == 1


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_true_utilisation_is_m_of_m_plus_d_minus_1(name):
    for d in (1, 2, 4, 7):
        for m in (1, 2, 4, 8, 32):
            assert true_utilization(name, d, m) == pytest.approx(m / (m + d - 1))


def test_figure_7_activation_memory():
    estimate = estimate_activation_memory(**GPT3)
    assert estimate == {"gpipe_gb": 24.0, "fb1b_gb": 1.5, "reduction_factor": 16}
    assert f"{32 * 8 * MESSAGE / 1e9:.1f}" == "51.5"
    assert estimate_activation_memory(**GPT3 | {"num_microbatches": 32})["gpipe_gb"] * 2**30 == 32 * 8 * MESSAGE


def test_figure_7_what_is_true_beside_it():
    """E3: device by device M against min(M, D − k): 3.0 against at most 1.5 GiB, 24.0 against 6.75 in all."""
    true = true_activation_memory(**GPT3)
    assert true["gpipe"].tolist() == [3.0] * 8
    assert true["1f1b"].tolist() == [1.5, 1.3125, 1.125, 0.9375, 0.75, 0.5625, 0.375, 0.1875]
    assert (true["gpipe"].sum(), true["1f1b"].sum()) == (24.0, 6.75)
    more = true_activation_memory(**GPT3 | {"num_microbatches": 32})
    assert more["gpipe"][0] / more["1f1b"][0] == 4
    assert f"{more['gpipe'][0] * 2**30 / 1e9:.1f}" == "6.4"


def test_figure_8_gpus_of_a_cluster():
    tensor, pipeline, data = 8, 12, 32
    assert tensor * pipeline * data == 3072


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b"])
def test_figure_9_full_recomputation_adds_a_third(name):
    s = pplab.SCHEDULES[name](4, 8)
    with_it, without = (makespan(simulate(s, Costs(1, backward=b))) for b in (1 + 2, 2))
    assert with_it / without == pytest.approx(4 / 3)


# ── What the chapter's code gives, key by key ─────────────────────────────────────────────────────────────────────

KEYS = ["schedule", "total_time_steps", "bubble_steps", "utilization", "stages", "schedule_log"]


@pytest.mark.parametrize(("run", "name"), [(simulate_gpipe, "GPipe"), (simulate_1f1b, "1F1B")])
def test_result_keys_are_the_chapters(run, name):
    result = run(num_stages=4, num_microbatches=8, hidden_size=16)
    assert list(result) == KEYS
    assert result["schedule"] == name
    assert len(result["schedule_log"]) == result["total_time_steps"]
    assert result["bubble_steps"] == 0
    assert [stage.stage_id for stage in result["stages"]] == [0, 1, 2, 3]
    assert result["stages"][0].weights.shape == (16, 16)
    assert result["stages"][0].num_layers == 4


def test_gpipes_log_is_stage_by_stage_and_backward_in_reverse():
    assert simulate_gpipe(2, 2, 4)["schedule_log"] == [
        ("F", 0, 0), ("F", 0, 1), ("F", 1, 0), ("F", 1, 1), ("B", 1, 1), ("B", 1, 0), ("B", 0, 1), ("B", 0, 0),
    ]  # fmt: skip


def test_1f1bs_log_leaves_forwards_of_the_warm_up_out():
    """E2: micro-batch 0 runs stage 0 only, micro-batch 1 all two of them; then F2, B0, B1, B2."""
    assert simulate_1f1b(2, 3, 4)["schedule_log"] == [
        ("F", 0, 0), ("F", 0, 1), ("F", 1, 1), ("F", 0, 2), ("F", 1, 2),
        ("B", 1, 0), ("B", 0, 0), ("B", 1, 1), ("B", 0, 1), ("B", 1, 2), ("B", 0, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("d", "m"), [(1, 1), (4, 1), (4, 3), (4, 4), (4, 32), (7, 5)])
def test_step_counts_by_formula(d, m):
    w = min(d, m)
    assert simulate_gpipe(d, m, 4)["total_time_steps"] == 2 * d * m
    assert simulate_1f1b(d, m, 4)["total_time_steps"] == w * (w + 1) // 2 + (m - w) * d + m * d
    assert sum(stage.backward_count for stage in simulate_1f1b(d, m, 4)["stages"]) == m * d


def test_the_arithmetic_is_that_of_the_stages():
    """GPipe's gradients come down through all weights: ones · (W₀W₁)ᵀ."""
    np.random.seed(0)
    result = simulate_gpipe(2, 1, 4)
    np.random.seed(0)
    first, second = (0.01 * np.random.randn(4, 4) for _ in range(2))
    assert np.array_equal(result["stages"][0].weights, first)
    assert np.array_equal(result["stages"][1].weights, second)


@pytest.mark.parametrize("run", [simulate_gpipe, simulate_1f1b])
def test_the_same_seed_gives_the_same_weights(run):
    runs = []
    for _ in range(2):
        np.random.seed(7)
        runs.append(run(3, 4, 8)["stages"][2].weights)
    assert np.array_equal(*runs)


@pytest.mark.parametrize(
    ("function", "erratum"),
    [(simulate_gpipe, "E2"), (simulate_1f1b, "E2"), (estimate_activation_memory, "E3"), (transfer_time, "E1")],
)
def test_faults_are_named_where_they_live(function, erratum):
    assert f"({erratum})" in inspect.getdoc(function)
    for named in ("E2:", "E3:"):
        assert named in inspect.getdoc(chapter)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: simulate_gpipe(0, 4, 8), "num_stages is 0: it says into how many stages the model is cut"),
        (lambda: simulate_1f1b(4, -1, 8), "num_microbatches is -1"),
        (lambda: simulate_1f1b(4, 4, 2.5), "hidden_size is 2.5: it says how wide the model is"),
        (lambda: message_bytes(4, "2048", 1), "seq_len is '2048'"),
        (lambda: message_bytes(True, 2048, 1), "micro_batch_size is True"),
        (lambda: message_bytes(4, 2048, 1, 0), "bytes_per_element is 0"),
        (lambda: estimate_activation_memory(8, 0, 1, 1, 1), "num_microbatches is 0"),
        (lambda: true_activation_memory(0, 1, 1, 1, 1), "num_devices is 0"),
        (lambda: transfer_time(1, 0), "bandwidth is 0: give a finite number above 0"),
        (lambda: transfer_time(1, float("nan")), "bandwidth is nan"),
        (lambda: transfer_time(1, "a"), "bandwidth is 'a': give a finite number above 0"),
        (lambda: transfer_time(-1, 5), "num_bytes is -1: give a finite number of 0 or more"),
        (lambda: transfer_time(float("nan"), 1), "num_bytes is nan"),
        (lambda: stage_bytes(-1, 4), "num_parameters is -1"),
        (lambda: stage_bytes(float("nan"), 4), "num_parameters is nan"),
        (lambda: true_utilization("x", 4, 4), "schedule is 'x': choose one of naive, gpipe"),
        (lambda: stage_bytes(1e9, 0), "num_stages is 0"),
        (lambda: bubble_formula(4, 0), "num_microbatches is 0"),
    ],
)
def test_bad_sizes_are_refused_by_name(call, says):
    with pytest.raises(ValueError, match=says):
        call()
