"""Training with and without a flush: papers' formulas for versions, slow references for weights, closed times."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

import pplab
from pplab import Costs
from pplab.asynchronous import flushed, versions_met
from pplab.numeric import MLP, MODES, full_batch, relative_difference, train

SIZES = [(1, 4), (2, 8), (3, 8), (4, 16), (5, 8)]
ONE_AT_A_TIME = ("stashed", "unstashed", "vertical")


def problem(samples=32, width=6, layers=5, seed=0):
    """A model of ``layers`` layers, inputs, and what another model makes of them."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(samples, width))
    y = np.tanh(x @ draw.normal(size=(width, width))) @ draw.normal(size=(width, 4)) / width
    return MLP([width] * layers + [4], seed=seed), x, y


def run(mode, num_devices, num_microbatches, passes=3, rate=0.1, **options):
    """A training run of the problem with 2 samples a micro-batch."""
    model, x, y = problem(2 * num_microbatches)
    sizes = dict(num_devices=num_devices, num_microbatches=num_microbatches, passes=passes)
    return train(model, x, y, mode, learning_rate=rate, **sizes, **options)


def gradient(forward, backward, x, y):
    """The gradient of every layer, by hand: outputs of some weights, taken back through others."""
    outputs = [x]
    for w in forward[:-1]:
        outputs.append(np.tanh(outputs[-1] @ w))
    delta, out = 2 / y.size * (outputs[-1] @ forward[-1] - y), []
    for w, inputs in zip(reversed(backward), reversed(outputs), strict=True):
        out.append(inputs.T @ delta)
        delta = (delta @ w.T) * (1 - inputs**2)
    return out[::-1]


def delayed(model, x, y, num_devices, num_microbatches, passes, rate, delay, unstashed=False):
    """w_k ← w_k − rate · the gradient at each stage's weights of ``delay(k)`` updates ago; every version is kept.

    ``unstashed``: a stage takes the gradient back through its newest weights, those after its own earlier updates.
    """
    stages = np.array_split(np.arange(len(model.weights)), num_devices)
    stage_of = np.repeat(np.arange(num_devices), list(map(len, stages)))
    history = [[w] for w in model.weights]
    parts = [(x[i : i + 2], y[i : i + 2]) for i in range(0, len(x), 2)] * passes
    for t, part in enumerate(parts):
        old = [history[i][max(0, t - delay(k))] for i, k in enumerate(stage_of)]
        newest = [versions[t] for versions in history]
        for versions, g in zip(history, gradient(old, newest if unstashed else old, *part), strict=True):
            versions.append(versions[-1] - rate * g)
    assert len(parts) == passes * num_microbatches
    return history


# ── Weights ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_pipeline_every_mode_but_2bw_is_plain_gradient_descent_to_the_last_bit():
    model, x, y = problem()
    weights = list(model.weights)
    for i in [*range(0, 32, 2)] * 3:
        by_hand = gradient(weights, weights, x[i : i + 2], y[i : i + 2])
        weights = [w - 0.1 * g for w, g in zip(weights, by_hand, strict=True)]
    for mode in ("synchronous", *ONE_AT_A_TIME):
        options = {"per_update": 1} if mode == "synchronous" else {}
        result = run(mode, 1, 16, **options)
        assert all(np.array_equal(a, b) for a, b in zip(result.weights, weights, strict=True)), mode


@pytest.mark.parametrize(("num_devices", "num_microbatches"), SIZES)
def test_synchronous_is_full_batch_gradient_descent(num_devices, num_microbatches):
    model, x, y = problem(2 * num_microbatches)
    result, losses = run("synchronous", num_devices, num_microbatches, passes=6), []
    for _ in range(6):
        whole = full_batch(model, x, y)
        losses.append(whole.loss)
        model = MLP(model.sizes, weights=[w - 0.1 * g for w, g in zip(model.weights, whole.gradients, strict=True)])
    assert relative_difference(result.weights, model.weights) < 1e-12
    assert result.losses == pytest.approx([*losses, full_batch(model, x, y).loss], rel=1e-12)


@pytest.mark.parametrize(("num_devices", "num_microbatches"), SIZES)
@pytest.mark.parametrize("mode", ONE_AT_A_TIME)
def test_asynchronous_is_the_delayed_gradient_of_the_paper(mode, num_devices, num_microbatches):
    """PipeDream, section 3.3: w(t+1) = w(t) − rate · ∇f(w₁(t−n+1), …, wₙ(t)); in vertical sync all are of t − n + 1."""
    model, x, y = problem(2 * num_microbatches)
    result = run(mode, num_devices, num_microbatches)
    history = delayed(
        model, x, y, num_devices, num_microbatches, 3, 0.1,
        delay=lambda k: num_devices - 1 - (0 if mode == "vertical" else k), unstashed=mode == "unstashed",
    )  # fmt: skip
    assert relative_difference(result.weights, [versions[-1] for versions in history]) < 1e-12
    expected = [full_batch(MLP(model.sizes, weights=w), x, y).loss for w in zip(*history, strict=True)]
    assert result.losses == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("num_devices", "per_update"), [(1, 1), (1, 2), (2, 4), (4, 4), (4, 8), (3, 8)])
def test_2bw_is_the_gradient_of_one_update_ago(num_devices, per_update):
    """PipeDream-2BW, section 3.1: W(t+1) = W(t) − rate · ∇f(W(t−1)), ∇f a mean over m micro-batches."""
    model, x, y = problem(16)
    result = run("2bw", num_devices, 8, per_update=per_update)
    history, size = [model.weights], 2 * per_update
    for part in [slice(i, i + size) for i in range(0, 16, size)] * 3:
        old = history[max(0, len(history) - 2)]
        history.append([w - 0.1 * g for w, g in zip(history[-1], gradient(old, old, x[part], y[part]), strict=True)])
    assert relative_difference(result.weights, history[-1]) < 1e-12


def test_unstashed_is_the_gradient_of_no_weights_that_there_were():
    """Two stages, each at any version that it has ever had: none of these models has the gradient that was applied."""
    model, x, y = problem(16, layers=3)
    rate, halves = 0.1, (slice(0, 2), slice(2, 4))
    options = dict(mode="unstashed", learning_rate=rate, num_devices=2)
    runs = [train(model, x[: 2 * n], y[: 2 * n], num_microbatches=n, **options) for n in range(1, 7)]
    history = [model.weights, *(r.weights for r in runs)]
    for t in range(2, 6):
        part = slice(2 * t, 2 * t + 2)
        applied = (history[t][0] - history[t + 1][0]) / rate  # of the first layer
        for a, b in product(range(t + 1), repeat=2):
            mixed = [*history[a][halves[0]], *history[b][halves[1]]]
            difference = np.abs(gradient(mixed, mixed, x[part], y[part])[0] - applied).max()
            assert difference > 1e-4 * np.abs(applied).max()


def test_one_layer_a_stage_needs_no_stash_for_two_stages():
    """Stage 0 has nobody to send a gradient to, and stage 1 is never stale: only what lies between is at risk."""
    model, x, y = problem(16, layers=2)
    options = dict(learning_rate=0.1, num_devices=2, num_microbatches=8)
    a, b = (train(model, x, y, mode, **options) for mode in ("stashed", "unstashed"))
    assert all(np.array_equal(v, w) for v, w in zip(a.weights, b.weights, strict=True))


# ── Versions ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("d", "n"), [(1, 4), (2, 8), (4, 16), (5, 16), (8, 32)])
def test_versions_and_staleness(d, n):
    """Read off the run, against the papers' formulas, micro-batch by micro-batch."""
    model, x, y = problem(n, layers=8)
    options = dict(learning_rate=0.01, num_devices=d, num_microbatches=n)
    runs = {mode: train(model, x, y, mode, **options) for mode in ONE_AT_A_TIME}
    k, m = np.arange(d)[:, None], np.arange(n)
    newest, first = np.maximum(m - (d - 1 - k), 0), np.maximum(m - (d - 1), 0) + 0 * k
    for mode, version, held in (
        ("stashed", newest, d - k[:, 0]),
        ("unstashed", newest, np.ones(d)),
        ("vertical", first, np.full(d, d)),
    ):
        assert np.array_equal(runs[mode].versions, version), mode
        assert np.array_equal(runs[mode].staleness, m - version), mode
        assert np.array_equal(runs[mode].versions_held, held), mode
    assert runs["stashed"].staleness[:, -1].tolist() == list(range(d - 1, -1, -1))
    assert runs["vertical"].staleness[:, -1].tolist() == [d - 1] * d
    flushed = train(model, x, y, "synchronous", per_update=2, **options)
    assert flushed.staleness.tolist() == [[0] * (n // 2)] * d and flushed.versions_held.tolist() == [1] * d
    assert flushed.versions.tolist() == [(m // 2).tolist()] * d


@pytest.mark.parametrize(("d", "per_update"), [(1, 1), (2, 2), (4, 4), (4, 8), (3, 12)])
def test_2bw_keeps_two_versions_and_is_one_update_late(d, per_update):
    result = run("2bw", d, 24, per_update=per_update)
    n = np.arange(1, 24 * 3 + 1)  # the paper counts micro-batches from 1
    assert result.versions.tolist() == [np.maximum((n - 1) // per_update - 1, 0).tolist()] * d
    assert result.staleness[:, 0].tolist() == [0] * d and (result.staleness[:, 1:] == 1).all()
    assert result.versions_held.tolist() == [2] * d


@pytest.mark.parametrize("d", [3, 4, 5, 8])
def test_why_2bw_needs_as_many_micro_batches_as_devices(d):
    """The version that it asks for has been made by then: from D − 1 on; with fewer, stage 0 has not got it yet."""
    schedule = pplab.SCHEDULES["pipedream"](d, 60)
    there = {m: versions_met(schedule, "stashed", m) - versions_met(schedule, "2bw", m) for m in (d - 2, d - 1, d, 60)}
    assert there[d - 2][0].min() < 0
    assert all(there[m].min() >= 0 for m in (d - 1, d, 60))


# ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 8), (4, 8), (4, 2), (5, 3)])
def test_only_the_flush_pays_the_bubble_each_step(d, m):
    """A flushed step takes (M + D − 1)(F + B); without, a run of N micro-batches takes (N + D − 1)(F + B)."""
    costs = Costs(forward=1.0, backward=3.0)
    flushed = run("synchronous", d, m, passes=5, costs=costs)
    assert flushed.times.tolist() == [step * 4 * (m + d - 1) for step in range(6)]
    assert flushed.microbatches.tolist() == [m * step for step in range(6)]
    stream = run("stashed", d, m, passes=5, costs=costs)
    assert stream.times.tolist() == [0, *(4 * (n + d - 1) for n in range(1, 5 * m + 1))]
    assert stream.microbatches.tolist() == list(range(5 * m + 1))
    assert pplab.makespan(stream.timeline) == stream.times[-1]
    assert pplab.peak_in_flight(stream.timeline).tolist() == [min(5 * m, d - k) for k in range(d)]


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 3), st.sampled_from(list(MODES)), st.floats(0, 2))
@examples(40)
def test_times_change_no_numbers(d, m, passes, mode, hop):
    m += d * (mode == "2bw")
    a, b = (run(mode, d, m, passes, costs=c) for c in (None, Costs(forward=np.arange(1.0, d + 1), hop=hop)))
    assert np.array_equal(a.losses, b.losses) and np.isfinite(a.losses).all()
    assert len(a.losses) == len(a.times) == len(a.microbatches) == a.staleness.shape[1] + 1
    assert (np.diff(b.times) > 0).all() and a.microbatches[-1] == m * passes


def test_stale_gradients_are_as_good_while_steps_are_small_and_fail_first_when_they_are_large():
    """Five seeds. Per update as good at a small rate, and D times as quick; at a large one vertical sync, the stalest
    of them, diverges on each, without a stash one does, and with the flush, or the stash, all still learn."""
    small, large = {}, {}
    for seed in range(5):
        model, x, y = problem(64, 16, 8, seed)
        sizes = dict(num_devices=4, num_microbatches=8, passes=20)
        for mode in ("synchronous", "stashed", "unstashed", "vertical"):
            one = {"per_update": 1} if mode == "synchronous" else {}
            small.setdefault(mode, []).append(train(model, x, y, mode, learning_rate=0.05, **sizes, **one))
            large.setdefault(mode, []).append(train(model, x, y, mode, learning_rate=1.8, **sizes))
    for mode in ONE_AT_A_TIME:
        for a, b in zip(small["synchronous"], small[mode], strict=True):
            assert b.losses[-1] == pytest.approx(a.losses[-1], rel=0.1) and a.losses[-1] < a.losses[0] / 2
            assert a.times[-1] / b.times[-1] == pytest.approx(4 * 160 / 163)
    ends = {mode: [r.losses[-1] / r.losses[0] for r in runs] for mode, runs in large.items()}
    assert max(ends["synchronous"]) < 0.5 and max(ends["stashed"]) < 0.5
    assert min(ends["vertical"]) > 1e6 and max(ends["unstashed"]) > 1e6


def test_time_to_a_loss_is_no_dip():
    """Losses 8, 1, 9, 2, 2, 2 after 0 to 5 updates of 2 micro-batches: 1 is a dip, and 2 stays."""
    plain = run("synchronous", 1, 2, passes=5)
    result = replace(plain, losses=np.array([8.0, 1, 9, 2, 2, 2]), times=np.arange(6) * 10.0)
    for microbatches, target, time in ((1, 2, 10), (2, 2, 10), (4, 2, 40), (5, 2, 40), (4, 5, 10), (8, 3.5, 40)):
        assert result.time_to(target, microbatches) == time
    assert result.time_to(0.9) == result.time_to(1.9, 10) == np.inf
    wild = run("vertical", 4, 8, passes=60, rate=50.0)
    assert wild.time_to(1e-9, 8) == np.inf
    for args, says in (((np.nan,), "target is nan"), ((1, 0), "microbatches is 0"), ((1, 12), "this run has 10, so")):
        with pytest.raises(ValueError, match=says):
            result.time_to(*args)


def test_a_run_that_diverges_says_inf():
    result = run("vertical", 4, 8, passes=60, rate=50.0)
    assert np.isinf(result.losses[-1]) and not np.isnan(result.losses).any()
    assert repr(result).endswith("→ inf>")


# ── What is refused ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(mode="async"), "mode is 'async': choose one of synchronous, stashed, unstashed, vertical, 2bw"),
        (dict(learning_rate=0), "learning_rate is 0: give a finite number above 0"),
        (dict(learning_rate=np.inf), "learning_rate is inf: give a finite number above 0"),
        (dict(learning_rate="fast"), "learning_rate is 'fast'"),
        (dict(num_devices=0), "num_devices is 0"),
        (dict(num_devices=9), "the model has 5 layers, too few for 9 stages"),
        (dict(num_microbatches=7), "a batch of 32 samples does not split into 7 equal micro-batches"),
        (dict(num_microbatches=64), "a batch of 32 samples is too small for 64 micro-batches"),
        (dict(passes=0), "passes is 0: give a whole number of 1 or more"),
        (dict(per_update=2), "per_update is 2, but stashed updates after every backward: leave it out, or choose 2bw"),
        (dict(mode="2bw", per_update=3), "do not make whole updates of .* 3: the nearest that do have 2 and 4"),
        (dict(mode="synchronous", per_update=9), "8 micro-batches do not .* = 9: the nearest that do have 8"),
        (dict(mode="2bw", per_update=2), "per_update is 2, but 2bw needs 4 micro-batches an update or more"),
        (dict(mode="2bw", num_microbatches=2), "per_update is 2, but 2bw needs 4"),
        (dict(per_update=1.5), "per_update is 1.5: give a whole number"),
        (dict(targets=np.ones((32, 3))), r"targets has shape \(32, 3\), but the model needs \(samples, 4\)"),
        (dict(costs=Costs(forward=[1, 2])), "forward has 2 values, but the schedule has 4"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change, says):
    model, x, y = problem()
    given = dict(batch=x, targets=y, mode="stashed", learning_rate=0.1, num_devices=4, num_microbatches=8)
    with pytest.raises(ValueError, match=says):
        train(model, **(given | change))


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="None is not a model"):
        train(None, [[1.0]], [[1.0]], learning_rate=0.1, num_devices=1, num_microbatches=1)


@pytest.mark.parametrize(("d", "m", "steps"), [(1, 1, 1), (2, 3, 2), (4, 4, 3), (3, 1, 4)])
def test_flushed_is_1f1b_again_and_again(d, m, steps):
    rows = [[], *[[] for _ in range(d - 1)]]
    for step, (k, row) in product(range(steps), enumerate(pplab.one_f_one_b(d, m).rows)):
        rows[k] += [(op.stage, op.kind, op.microbatch + step * m) for op in row]
    s = flushed(d, m, steps)
    assert s == pplab.Schedule(rows)
    assert pplab.makespan(pplab.simulate(s)) == steps * 3 * (m + d - 1)
    with pytest.raises(ValueError, match="num_steps is 0"):
        flushed(2, 2, 0)
