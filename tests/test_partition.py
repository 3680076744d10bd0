"""Partitions against brute force and a plain O(L²·D) programme; and errors that say which layer or stage."""

import re
import time
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

from pplab import Costs, makespan, one_f_one_b, simulate
from pplab.hardware import ACCELERATORS, layer_times
from pplab.model import MODELS
from pplab.partition import Partition, optimal, profile_layers, uniform


def brute_force(times, num_stages, memory=None, limits=None):
    """The least slowest stage over all ways to cut, sums by Python; None where no way keeps to the limits."""
    best = None
    for inner in combinations(range(1, len(times)), num_stages - 1):
        cuts = (0, *inner, len(times))
        spans = [slice(a, b) for a, b in pairwise(cuts)]
        if memory is not None and any(sum(memory[k][s]) > limits[k] for k, s in enumerate(spans)):
            continue
        slowest = max(sum(times[s]) for s in spans)
        best = slowest if best is None else min(best, slowest)
    return best


def textbook(times, num_stages):
    """The O(L²·D) programme of E10."""
    sums = np.append(0, np.cumsum(times))
    best = np.where(np.arange(len(sums)) == 0, 0, np.inf)
    for _ in range(num_stages):
        best = np.array([np.inf, *(np.maximum(best[:j], sums[j] - sums[:j]).min() for j in range(1, len(sums)))])
    return best[-1]


whole = st.integers(0, 3) | st.integers(0, 10**6)  # many zeros and many ties, or few
floats = st.floats(0, 1e6) | st.sampled_from([0.0, 0.1, 0.2, 0.3])


@st.composite
def cases(draw, values):
    times = draw(st.lists(values, min_size=1, max_size=9))
    return times, draw(st.integers(1, len(times)))


@given(cases(whole))
@examples(400)
def test_the_slowest_stage_is_the_least_possible(case):
    times, num_stages = case
    found = optimal(times, num_stages)
    assert found.slowest == brute_force(times, num_stages)
    assert found.num_stages == num_stages and min(found.sizes) >= 1 and sum(found.sizes) == len(times)


@given(cases(floats))
@examples(300)
def test_and_with_fractions_within_rounding(case):
    times, num_stages = case
    assert optimal(times, num_stages).slowest == pytest.approx(brute_force(times, num_stages), rel=1e-12)


@given(cases(st.tuples(whole, st.integers(0, 5))), st.data())
@examples(400)
def test_and_under_a_memory_limit_of_each_stage(case, data):
    """Limits, and needs too, that differ from stage to stage: where no cut keeps to them, that is said."""
    pairs, num_stages = case
    times, memory = (list(column) for column in zip(*pairs, strict=True))
    limits = data.draw(st.lists(st.integers(0, 12), min_size=num_stages, max_size=num_stages))
    weights = data.draw(st.lists(st.integers(1, 3), min_size=num_stages, max_size=num_stages))
    needs = [[weight * need for need in memory] for weight in weights]
    for stages, given_memory in (([memory] * num_stages, memory), (needs, needs)):
        best = brute_force(times, num_stages, stages, limits)
        if best is None:
            with pytest.raises(ValueError, match=r"^(layer|stage|\d+ stages hold layers) .*memory_limit"):
                optimal(times, num_stages, given_memory, limits)
            continue
        found = optimal(times, num_stages, given_memory, limits)
        assert found.slowest == best
        used = [sum(stages[k][a:b]) for k, (a, b) in enumerate(pairwise(found.bounds))]
        assert all(u <= limit for u, limit in zip(used, limits, strict=True))


@given(st.integers(1, 200), st.data(), floats)
@examples(200)
def test_equal_layers_give_the_uniform_split(num_layers, data, each):
    num_stages = data.draw(st.integers(1, num_layers))
    assert optimal([each] * num_layers, num_stages).sizes == uniform(num_layers, num_stages)


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "sizes"),
    [(30, 4, (8, 8, 7, 7)), (96, 8, (12,) * 8), (5, 5, (1,) * 5), (7, 1, (7,)), (9, 4, (3, 2, 2, 2))],
)
def test_uniform_spreads_the_rest_over_the_first(num_layers, num_stages, sizes):
    assert uniform(num_layers, num_stages) == sizes


@pytest.mark.parametrize("num_stages", [1, 2, 7, 30])
def test_larger_cases_against_the_textbook_programme(num_stages):
    times = np.random.default_rng(num_stages).integers(0, 1000, 300)
    assert optimal(times, num_stages).slowest == textbook(times, num_stages)


def test_ten_thousand_layers():
    """E10: L = 10,000 and D = 64; a plain O(L²·D) programme would take 6.4e9 steps."""
    times = np.random.default_rng(0).random(10_000)
    found = optimal(times, 64)
    assert times.sum() / 64 <= found.slowest < times.sum() / 64 + times.max()


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e300])
def test_the_unit_of_time_does_not_matter(scale):
    times = np.array([3.0, 1, 4, 1, 5, 9, 2, 6])
    found = optimal(times * scale, 3)
    assert found.slowest == pytest.approx(brute_force(times.tolist(), 3) * scale)


def test_a_slow_stage_is_repaired():
    """24 layers, the first six 1.2 times slower: the uniform split waits for 7.2, the best one for at most 6.4."""
    times = np.r_[np.full(6, 12), np.full(18, 10)]
    even, best = Partition(uniform(24, 4), times), optimal(times, 4)
    assert (even.slowest, best.slowest) == (72, brute_force(times.tolist(), 4))
    assert best.slowest < even.slowest


def test_the_head_takes_the_place_of_blocks():
    """Llama-3 8B: 8 blocks a stage put the head, 1.8 blocks, on top of the last; the best split takes one off it."""
    times = layer_times(MODELS["Llama-3 8B"], ACCELERATORS["H100"], 1, efficiency=0.5)
    found = optimal(times, 4)
    assert found.slowest == pytest.approx(textbook(times, 4))
    assert found.sizes == (9, 9, 8, 8)  # embedding + 8 blocks, 9, 8, 7 + head
    assert found.slowest / times[1] == pytest.approx(9)
    naive = Partition((9, 8, 8, 9), times)
    assert naive.slowest / times[1] == pytest.approx(8 + MODELS["Llama-3 8B"].head_in_blocks())


def test_memory_moves_the_cut():
    """By time alone 2 + 2; the first stage may hold only one of these layers."""
    assert optimal([1, 1, 1, 1], 2).sizes == (2, 2)
    assert optimal([1, 1, 1, 1], 2, memory=[4, 4, 1, 1], memory_limit=6).sizes == (1, 3)
    assert optimal([1, 1, 1, 1], 2, memory=[1, 1, 1, 1], memory_limit=[3, 1]).sizes == (3, 1)
    in_flight = [[2, 2, 2, 2], [1, 1, 1, 1]]  # 1F1B: the first stage holds twice as many micro-batches
    assert optimal([1, 1, 1, 1], 2, memory=in_flight, memory_limit=3).sizes == (1, 3)


def test_a_limit_that_is_met_but_for_rounding_is_met():
    assert optimal([1, 1, 1, 1], 2, memory=[0.1, 0.1, 0.1, 0.7], memory_limit=[0.3, 0.7]).sizes == (3, 1)


def test_what_a_partition_tells():
    p = Partition((2, 1, 3), (1, 2, 3, 4, 5, 6))
    assert p.bounds == (0, 2, 3, 6)
    assert p.stage_times.tolist() == [3, 3, 15] and p.slowest == 15
    assert [p.stage_of(layer) for layer in range(6)] == [0, 0, 1, 2, 2, 2]
    assert p.stage_sums([1, 1, 1, 10, 10, 10]).tolist() == [2, 1, 30]
    assert p.stage_sums(np.ones((4, 6))).tolist() == [[2, 1, 3]] * 4
    assert p == Partition([2, 1, 3], np.arange(1, 7)) and hash(p) == hash(Partition((2, 1, 3), range(1, 7)))
    with pytest.raises(ValueError, match="read-only"):
        p.stage_times[0] = 1


def test_profile_partition_schedule_simulate_is_one_path():
    """A layer that sleeps ten times as long as the others gets a stage of its own, and the simulation is no worse."""
    calls = []

    def layer(number, seconds):
        def forward(x):
            calls.append(number)
            time.sleep(seconds)
            return x + 1

        return forward

    received = []
    layers = [layer(k, 0.02 if k == 2 else 0.002) for k in range(5)]
    times = profile_layers([*layers, lambda x: received.append(x) or x], lambda: 0, repeats=3)
    assert calls == [0, 1, 2, 3, 4] * 4 and received == [5] * 4  # one warm-up, each layer fed by the one before
    assert np.argmax(times) == 2 and times.shape == (6,) and times.min() >= 0
    best, even = optimal(times, 3), Partition(uniform(6, 3), times)
    steps = [
        makespan(simulate(one_f_one_b(3, 8), Costs(forward=p.stage_times, backward=2 * p.stage_times)))
        for p in (best, even)
    ]
    assert best.slowest <= even.slowest and steps[0] >= 8 * 3 * best.slowest * 0.999


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: optimal([1, 2], 3), "num_stages is 3, but there are 2 layers and each stage needs one: use at most 2"),
        (lambda: uniform(2, 3), "num_stages is 3, but there are 2 layers and each stage needs one: use at most 2"),
        (lambda: optimal([1, 2], 0), "num_stages is 0: give a whole number of 1 or more"),
        (lambda: uniform(2, 0), "num_stages is 0: give a whole number of 1 or more"),
        (lambda: uniform(0, 1), "num_layers is 0: give a whole number of 1 or more"),
        (lambda: optimal([], 1), "times is empty: a model has at least one layer"),
        (lambda: optimal([1, float("nan")], 1), "times[1] is nan: a time must be finite and not negative"),
        (lambda: optimal([1, 2, -3], 1), "times[2] is -3: a time must be finite and not negative"),
        (lambda: optimal([float("inf"), 1], 1), "times[0] is inf: a time must be finite and not negative"),
        (lambda: optimal(3, 1), "times must be one number a layer, not 3"),
        (lambda: optimal(["1", "2"], 1), "times must be one number a layer, not ['1', '2']"),
        (lambda: optimal([1], 1, memory=[1]), "memory and memory_limit belong together: pass both, or neither"),
        (lambda: optimal([1], 1, memory=[1, 2], memory_limit=3), "memory has shape (2,): give (1,) or (1, 1)"),
        (
            lambda: optimal([1, 1], 2, [1, 1], [1, 1, 1]),
            "memory_limit has shape (3,): give (2,), or one number for all",
        ),
        (lambda: optimal([1], 1, [-1], 3), "memory has a value that is negative or not a number"),
        (lambda: optimal([1], 1, [1], float("nan")), "memory_limit has a value that is negative or not a number"),
        (lambda: Partition((1, 2), (1, 1)), "sizes add up to 3 layers, but times has 2: each layer goes to one stage"),
        (lambda: Partition((2, 0), (1, 1)), "sizes[1] is 0: give a whole number of 1 or more"),
        (lambda: Partition((2,), (1, 1)).stage_of(2), "there is no layer 2: they are numbered 0 to 1"),
        (lambda: Partition((2,), (1, 1)).stage_sums([1]), "values has shape (1,), but there are 2 layers"),
        (lambda: profile_layers([], lambda: 0), "layers is empty: there is nothing to measure"),
        (lambda: profile_layers([3], lambda: 0), "layers[0] is 3, which cannot be called: give a function"),
        (lambda: profile_layers([abs], 1), "make_input is 1, which cannot be called: give a function"),
        (lambda: profile_layers([abs], int, repeats=0), "repeats is 0: give a whole number of 1 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(call, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        call()


@pytest.mark.parametrize(
    ("memory", "limit", "text"),
    [
        ([1, 9, 1], 5, "layer 1 needs 9 bytes, more than memory_limit 5: a cut runs between layers"),
        ([1, 9, 1], 5, "tensor parallelism"),
        ([3, 3, 3], 3, "2 stages hold layers 0 to 1 at most, and layer 2 finds no room: all layers need 9 bytes"),
        ([3, 1, 1], [2, 9], "stage 0 stays empty: no layer whose turn it could be fits its memory_limit of 2 bytes"),
        ([1, 3, 1], [2, 2.5], "layer 1 needs 3 bytes"),
        ([1, 3, 3], [9, 2], "stage 1 stays empty: no layer whose turn it could be fits its memory_limit of 2 bytes"),
    ],
)
def test_a_limit_that_nothing_fits_says_where(memory, limit, text):
    """E26: a pipeline cuts between layers, so a layer that does not fit alone needs tensor parallelism."""
    with pytest.raises(ValueError, match=re.escape(text)):
        optimal([1, 1, 1], 2, memory, limit)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: optimal([10**400], 1), "times must be one number a layer, not [1000"),
        (lambda: optimal([1, 2], 1, memory="abc", memory_limit=3), "memory is 'abc': give bytes of 0 or more"),
        (lambda: optimal([1, 2], 1, memory=[1, 2], memory_limit=10**400), "memory_limit is 1000"),
        (lambda: Partition(None, [1.0]), "sizes is None: give the number of layers of each stage"),
    ],
)
def test_what_is_no_number_is_refused_in_words(call, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        call()
