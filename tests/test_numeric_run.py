"""A model cut into stages, run in the order of every schedule: the whole batch's gradients, and the bytes it holds."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drawn, examples

import pplab
from pplab import SCHEDULES, Costs, Op, Schedule, Timeline, in_flight, peak_in_flight, read_torch_csv, simulate
from pplab.numeric import MLP, Layer, MicroBatch, PipelineStage, full_batch, relative_difference, run

FILES = {path.name.split(".")[0]: path for path in sorted(Path(__file__).parent.glob("data/torch_csv/*only.csv"))}
SIZES = [(1, 1), (2, 3), (3, 2), (4, 8)]
EPS = np.finfo(float).eps


def data(samples, inputs, outputs=None, seed=0):
    """Random inputs and targets."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(samples, inputs)), draw.normal(size=(samples, outputs or inputs))


def training(name):
    """A schedule of SCHEDULES at every size that it takes, without those that never go backward."""
    for size in SIZES:
        try:
            s = SCHEDULES[name](*size)
        except ValueError:  # its paper gives the reason; test_schedules says which sizes may be refused
            continue
        if s.is_kind("BI").any():
            yield s


def flat(gradients):
    """Per stage and layer → per layer, in the model's order."""
    return [layer for stage in gradients for layer in stage]


def loss_of(weights, x, y, activation):
    """The forward pass and the loss once more, as short as they can be."""
    for w in weights[:-1]:
        x = np.tanh(x @ w) if activation == "tanh" else np.maximum(x @ w, 0)
    return ((x @ weights[-1] - y) ** 2).sum() / y.size


def agrees_with_the_whole_batch(s, model, x, y, **options):
    """Whether loss, outputs and gradients of a run are those of the whole batch."""
    result, whole = run(s, model, x, y, **options), full_batch(model, x, y)
    assert [len(stage) for stage in result.gradients] == [len(stage) for stage in model.cut(s.num_stages)]
    assert result.loss == pytest.approx(whole.loss, rel=1e-13)
    assert result.outputs == pytest.approx(whole.outputs, rel=1e-12, abs=1e-13)
    assert relative_difference(result.gradients, whole.gradients) < 1e-12
    return result


# ── The gradient is the same ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_whole_batchs_gradient_is_the_slope_of_the_loss(activation):
    """By central differences in every weight."""
    model, (x, y) = MLP([3, 5, 4, 2], activation, seed=1), data(6, 3, 2)
    whole = full_batch(model, x, y)
    assert whole.loss == pytest.approx(loss_of(model.weights, x, y, activation), rel=1e-14)
    for k, gradient in enumerate(whole.gradients):
        for i in np.ndindex(gradient.shape):
            up, down = ([w.copy() for w in model.weights] for _ in "+-")
            up[k][i] += 1e-6
            down[k][i] -= 1e-6
            slope = (loss_of(up, x, y, activation) - loss_of(down, x, y, activation)) / 2e-6
            assert gradient[i] == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_gives_the_whole_batchs_gradient(name, activation):
    for s in training(name):
        model, (x, y) = MLP.equal(2 * s.num_stages, 5, activation), data(6 * s.num_microbatches, 5)
        agrees_with_the_whole_batch(s, model, x, y)


@pytest.mark.parametrize("name", FILES)
def test_pytorchs_schedules_give_the_whole_batchs_gradient(name):
    s = read_torch_csv(FILES[name])
    model, (x, y) = MLP.equal(2 * s.num_stages, 5), data(3 * s.num_microbatches, 5)
    agrees_with_the_whole_batch(s, model, x, y)


@given(drawn(kinds=("B", "IW", "mixed")), st.data())
@examples(60)
def test_any_legal_order_gives_the_whole_batchs_gradient(case, choose):
    """Any placement, pairs, stages on two devices, unequal widths, unequal micro-batches."""
    s = case.build()
    widths = st.lists(st.integers(1, 6), min_size=s.num_stages + 1, max_size=s.num_stages + 4)
    model = MLP(choose.draw(widths), choose.draw(st.sampled_from(["tanh", "relu", "linear"])), seed=2)
    x, y = data(choose.draw(st.integers(s.num_microbatches, 20)), model.sizes[0], model.sizes[-1])
    agrees_with_the_whole_batch(s, model, x, y, unequal=True)


def test_stages_get_the_layers_of_an_even_cut_larger_first():
    assert [len(stage) for stage in MLP.equal(30, 2).cut(4)] == [8, 8, 7, 7]
    model = MLP.equal(3, 2)
    cut = model.cut(2)
    assert [layer.activation for layer in cut[0] + cut[1]] == ["tanh", "tanh", "linear"]
    assert all(layer.weights is w for layer, w in zip(cut[0] + cut[1], model.weights, strict=True))


def test_a_step_along_the_gradient_lowers_the_loss():
    model, (x, y) = MLP.equal(4, 6), data(12, 6)
    before = run(pplab.gpipe(2, 3), model, x, y)
    stepped = [w - 0.05 * g for w, g in zip(model.weights, flat(before.gradients), strict=True)]
    after = run(pplab.gpipe(2, 3), replace(model, weights=stepped), x, y)
    squares = sum((g**2).sum() for g in flat(before.gradients))
    assert after.loss - before.loss == pytest.approx(-0.05 * squares, rel=0.2)


# ── Unequal micro-batches ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_mean_of_means_weighs_the_samples_of_small_micro_batches_more():
    """One weight w = 1, y = w·x: sample i has the gradient 2x(x − t), and x = 1 leaves 2(1 − t)."""
    t = [5, 2, 11, 3, 7]
    slopes = [Fraction(2 * (1 - v)) for v in t]  # in parts of 2, 2 and 1
    mean = sum(slopes) / 5
    mean_of_means = (sum(slopes[:2]) / 2 + sum(slopes[2:4]) / 2 + slopes[4]) / 3
    assert (mean, mean_of_means) == (Fraction(-46, 5), Fraction(-29, 3))
    s, model = pplab.gpipe(1, 3), MLP([1, 1], weights=[np.ones((1, 1))])
    x, y = np.ones((5, 1)), np.array(t, float)[:, None]
    right, wrong = (run(s, model, x, y, weighted=w, unequal=True) for w in (True, False))
    assert flat(right.gradients)[0].item() == pytest.approx(float(mean), rel=1e-15)
    assert flat(wrong.gradients)[0].item() == pytest.approx(float(mean_of_means), rel=1e-15)
    squares = [(1 - v) ** 2 for v in t]
    assert right.loss == pytest.approx(sum(squares) / 5, rel=1e-15)
    assert wrong.loss == pytest.approx((sum(squares[:2]) / 2 + sum(squares[2:4]) / 2 + squares[4]) / 3, rel=1e-15)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 30))
@examples(40)
def test_mean_of_means_is_the_mean_of_each_micro_batchs_own_gradient(d, m, more):
    s, model, (x, y) = pplab.one_f_one_b(d, m), MLP.equal(d, 3), data(m + more, 3)
    parts = [full_batch(model, a, b) for a, b in zip(*(np.array_split(array, m) for array in (x, y)), strict=True)]
    means = [sum(p.gradients[k] for p in parts) / m for k in range(d)]
    wrong = run(s, model, x, y, weighted=False, unequal=True)
    assert relative_difference(wrong.gradients, means) < 1e-12
    assert wrong.loss == pytest.approx(np.mean([p.loss for p in parts]), rel=1e-12)
    if (m + more) % m == 0:
        assert relative_difference(wrong.gradients, full_batch(model, x, y).gradients) < 1e-12


# ── The last bits ─────────────────────────────────────────────────────────────────────────────────────────────────


def same_bits(a, b):
    """Whether two runs have the same gradients, loss and outputs to the last bit."""
    gradients = zip(flat(a.gradients), flat(b.gradients), strict=True)
    return all(np.array_equal(x, y) for x, y in gradients) and a.loss == b.loss and np.array_equal(a.outputs, b.outputs)


def test_the_same_schedule_gives_the_same_bits_and_another_one_other_last_bits():
    """A sum of M terms changes with its order by at most (M − 1)·eps of Σ |terms| (each order errs by half of it)."""
    m, model, (x, y) = 8, MLP.equal(8, 16), data(64, 16)
    reverse, forward = (
        (lambda: run(pplab.gpipe(4, m), model, x, y)),
        (lambda: run(pplab.one_f_one_b(4, m), model, x, y)),
    )
    a, b = reverse(), forward()
    assert same_bits(a, reverse())
    assert same_bits(b, forward())
    assert not same_bits(a, b)
    assert a.loss == b.loss  # summed in the order of the micro-batches, whatever the schedule
    assert relative_difference(a.gradients, b.gradients) < 2e-15
    parts = [full_batch(model, p, q) for p, q in zip(np.split(x, m), np.split(y, m), strict=True)]
    for k, (g, h) in enumerate(zip(flat(a.gradients), flat(b.gradients), strict=True)):
        terms = sum(np.abs(p.gradients[k]) / m for p in parts)
        assert (np.abs(g - h) <= 1.01 * (m - 1) * EPS * terms + 1e-30).all()


def test_first_in_first_out_gpipe_adds_up_as_1f1b_does():
    model, (x, y) = MLP.equal(4, 8), data(24, 8)
    fifo = pplab.gpipe(4, 6, backward_order="fifo")
    assert same_bits(run(fifo, model, x, y), run(pplab.one_f_one_b(4, 6), model, x, y))


@given(drawn(kinds=("B", "IW", "mixed")), st.integers(0, 2**32))
@examples(40)
def test_times_do_not_change_a_bit(case, seed):
    """Whatever each op and hop takes, a device adds up in the order of its row."""
    s, draw = case.build(), np.random.default_rng(seed)
    model, (x, y) = MLP.equal(s.num_stages, 3), data(2 * s.num_microbatches, 3)
    costs = Costs(*draw.choice([0.0, 0.3, 1.0, 7.0], (3, s.num_stages)), hop=draw.choice([0.0, 2.5]))
    a, b = run(s, model, x, y), run(simulate(s, costs), model, x, y)
    assert same_bits(a, b)
    assert np.array_equal(a.live_bytes, b.live_bytes)
    assert np.array_equal(a.waiting_bytes, b.waiting_bytes)


# ── What is held ──────────────────────────────────────────────────────────────────────────────────────────────────


def check_bytes(s, layers=2, samples=3, width=4):
    """Bytes against the counts of pplab.in_flight and peak_in_flight, with equal stages."""
    model, (x, y) = MLP.equal(layers * s.num_stages, width), data(samples * s.num_microbatches, width)
    result = run(s, model, x, y)
    unit = (layers + 1) * samples * width * 8  # a stage's input and its layers' outputs
    t = simulate(s)
    assert (result.live_bytes % unit == 0).all()
    assert np.array_equal(result.peak_bytes, unit * peak_in_flight(t))
    for device, (a, b) in enumerate(s.row_slices):
        moments, counts = in_flight(t, device)
        now = np.searchsorted(moments, t.start[a:b], side="right") - 1
        assert np.array_equal(result.live_bytes[a:b], unit * counts[now])
        half_done = [
            sum(
                t.start[i] <= start and t.end[j] > start
                for i in range(a, b)
                for j in range(a, b)
                if (t.kind[i], t.kind[j]) == ("I", "W")
                and (t.stage[i], t.microbatch[i]) == (t.stage[j], t.microbatch[j])
            )
            for start in t.start[a:b]
        ]
        assert result.waiting_bytes[a:b].tolist() == [n * layers * samples * width * 8 for n in half_done]


@pytest.mark.parametrize("name", SCHEDULES)
def test_bytes_are_the_micro_batches_in_flight_times_a_stages_bytes(name):
    for s in training(name):
        check_bytes(s)


@pytest.mark.parametrize("name", FILES)
def test_bytes_of_pytorchs_schedules(name):
    check_bytes(read_torch_csv(FILES[name]), layers=1)


@given(drawn(kinds=("B", "IW", "mixed")), st.integers(1, 3))
@examples(40)
def test_bytes_of_any_schedule(case, layers):
    check_bytes(case.build(), layers)


def test_1f1b_holds_d_minus_k_micro_batches_and_gpipe_all():
    """E3, in bytes of arrays: 2 layers of 8 × 16 float64 values, and the input."""
    model, (x, y) = MLP.equal(8, 16), data(64, 16)
    unit = 3 * 8 * 16 * 8
    assert run(pplab.one_f_one_b(4, 8), model, x, y).peak_bytes.tolist() == [4 * unit, 3 * unit, 2 * unit, unit]
    assert run(pplab.gpipe(4, 8), model, x, y).peak_bytes.tolist() == [8 * unit] * 4


def test_a_split_backward_frees_when_its_weights_are_done():
    s = Schedule(["0F0 0F1 0I0 0I1 0W0 0W1"])
    result = run(s, MLP([2, 3, 1]), *data(2, 2, 1))
    kept, deltas = (2 + 3 + 1) * 8, (3 + 1) * 8  # a sample a micro-batch
    assert result.live_bytes.tolist() == [kept * n for n in (1, 2, 2, 2, 2, 1)]
    assert result.waiting_bytes.tolist() == [deltas * n for n in (0, 0, 1, 2, 2, 1)]


def test_results_are_read_only():
    result = run(pplab.gpipe(2, 2), MLP.equal(2, 3), *data(4, 3))
    for array in (result.outputs, result.live_bytes, result.waiting_bytes, *flat(result.gradients)):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


# ── A stage by itself ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_chapters_toy_is_a_linear_layer_of_the_same_class():
    np.random.seed(1)
    toy = PipelineStage(0, 4, 5)
    stage = PipelineStage(0, 1, 5, [Layer(toy.weights, "linear")])
    x, g = data(3, 5)
    assert np.array_equal(stage.forward(MicroBatch(0, x)).activations, toy.forward(MicroBatch(0, x)).activations)
    passed = [s.backward(MicroBatch(0, x, g)).gradients for s in (stage, toy)]
    assert np.array_equal(*passed)
    assert np.array_equal(stage.gradients[0], x.T @ g)
    assert (toy.gradients, toy.saved, stage.saved) == ([], {}, {})


def test_the_toys_weights_can_be_set():
    toy = PipelineStage(0, 4, 2)
    toy.weights = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert toy.forward(MicroBatch(0, np.array([[3.0, 4.0]]))).activations.tolist() == [[4.0, 3.0]]


def test_b_is_i_and_w():
    layers = MLP.equal(3, 4).cut(1)[0]
    whole, split = PipelineStage(0, 3, 4, layers), PipelineStage(0, 3, 4, layers)
    x, g = data(2, 4)
    for stage in (whole, split):
        stage.forward(MicroBatch(7, x))
    a, b = whole.backward(MicroBatch(7, x, g)), split.backward_input(MicroBatch(7, x, g))
    assert list(split.saved) == list(split.waiting) == [7]
    split.backward_weight(7)
    assert np.array_equal(a.gradients, b.gradients)
    assert all(map(np.array_equal, whole.gradients, split.gradients))
    assert whole.saved == whole.waiting == split.saved == split.waiting == {}
    counts = [(s.forward_count, s.backward_count, s.active_steps) for s in (whole, split)]
    assert counts == [(1, 1, 2), (1, 1, 3)]


def test_a_stage_keeps_its_own_copy_of_what_it_received():
    stage, (x, g) = PipelineStage(0, 1, 4, MLP.equal(1, 4).cut(1)[0]), data(2, 4)
    stage.forward(MicroBatch(0, x))
    expected = x.T @ g
    x[:] = 0
    stage.backward(MicroBatch(0, x, g))
    assert stage.gradients[0] == pytest.approx(expected, rel=1e-14)


def test_a_stage_refuses_backwards_without_what_they_need():
    stage, (x, g) = PipelineStage(2, 1, 4, MLP.equal(1, 4).cut(1)[0]), data(2, 4)
    with pytest.raises(ValueError, match="stage 2 keeps nothing of micro-batch 3: run it forward first"):
        stage.backward(MicroBatch(3, x, g))
    stage.forward(MicroBatch(3, x))
    with pytest.raises(ValueError, match="stage 2 has no gradients of micro-batch 3 that wait: run backward_input"):
        stage.backward_weight(3)
    with pytest.raises(ValueError, match="brings no gradients to stage 2"):
        stage.backward_input(MicroBatch(3, x))
    stage.backward(MicroBatch(3, x, g))
    with pytest.raises(ValueError, match="once for each backward"):
        stage.backward(MicroBatch(3, x, g))
    assert (stage.backward_count, stage.active_steps) == (1, 2)


# ── Bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────

SPLITS = [
    (10, 4, "10 samples does not split into 4 equal micro-batches: the nearest that do have 8 and 12; .* unequal=True"),
    (9, 8, "9 samples .* nearest that do have 8 and 16"),
    (3, 4, "3 samples is too small for 4 micro-batches: give 4 samples or more, or a schedule with 3 micro-batches or"),
    (0, 4, "batch has 0 samples and targets 0: .* at least one"),
]


@pytest.mark.parametrize(("samples", "m", "text"), SPLITS)
def test_a_batch_that_does_not_split(samples, m, text):
    with pytest.raises(ValueError, match=text):
        run(pplab.gpipe(2, m), MLP.equal(2, 3), *data(samples, 3))


def test_an_unequal_batch_still_needs_a_sample_for_each():
    with pytest.raises(ValueError, match="too small for 4 micro-batches"):
        run(pplab.gpipe(2, 4), MLP.equal(2, 3), *data(3, 3), unequal=True)


def test_fewer_layers_than_stages():
    with pytest.raises(ValueError, match="the model has 3 layers, too few for 4 stages: give it 4 layers or more"):
        run(pplab.gpipe(4, 2), MLP.equal(3, 3), *data(4, 3))


def with_one(array, sample, column, value):
    """A copy with another value in one place."""
    copy = array.copy()
    copy[sample, column] = value
    return copy


X, Y = data(4, 3, 2)
ARRAYS = [
    (X[:, :2], Y, r"batch has shape \(4, 2\), but the model needs \(samples, 3\)"),
    (X, Y[:, 0], r"targets has shape \(4,\), but the model needs \(samples, 2\)"),
    (X, Y[:2], "batch has 4 samples and targets 2: give as many of both"),
    (with_one(X, 2, 1, np.nan), Y, "batch holds nan in sample 2, column 1: give finite numbers only"),
    (X, with_one(Y, 3, 0, -np.inf), "targets holds -inf in sample 3, column 0"),
    ("words", Y, r"batch is not an array of numbers: give one of shape \(samples, 3\)"),
    ([[1, 2, 3], [4]], Y, "batch is not an array of numbers"),
]


@pytest.mark.parametrize(("x", "y", "text"), ARRAYS)
def test_arrays_that_do_not_fit(x, y, text):
    model = MLP([3, 4, 2])
    for call in (lambda: run(pplab.gpipe(2, 2), model, x, y), lambda: full_batch(model, x, y)):
        with pytest.raises(ValueError, match=text):
            call()


def test_a_schedule_without_backwards():
    with pytest.raises(ValueError, match="forward-only runs forward only, so there are no gradients"):
        run(SCHEDULES["forward-only"](2, 2), MLP.equal(2, 3), *data(2, 3))
    with pytest.raises(TypeError, match="'1f1b' is not a schedule: give a Schedule or a Timeline"):
        run("1f1b", MLP.equal(1, 3), *data(2, 3))


def test_a_timeline_that_could_not_have_happened():
    s = pplab.gpipe(2, 1)
    assert [str(s.op(i)) for i in range(4)] == ["0F0", "0B0", "1F0", "1B0"]
    late_sender = Timeline(s, [5, 8, 4, 7], [6, 9, 5, 8])
    with pytest.raises(ValueError, match="1F0 starts before what it needs"):
        run(late_sender, MLP.equal(2, 3), *data(2, 3))
    s = pplab.gpipe(1, 2)
    swapped = Timeline(s, [1, 0, 2, 3], [2, 1, 3, 4])
    assert s.rows[0][:2] == (Op(0, "F", 0), Op(0, "F", 1))
    with pytest.raises(ValueError, match=r"0F1 starts before .* stands before it in its row"):
        run(swapped, MLP.equal(2, 3), *data(2, 3))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: MLP([4]), "give two widths or more"),
        (lambda: MLP([4, 0]), "whole numbers from 1"),
        (lambda: MLP([4, 2.5]), "whole numbers from 1"),
        (lambda: MLP([4, 4], "gelu"), "activation is 'gelu': choose one of tanh, relu, linear"),
        (lambda: MLP([4, 4], weights=[np.ones((4, 3))]), r"shapes \[\(4, 3\)\], but sizes ask for \[\(4, 4\)\]"),
        (lambda: MLP.equal(0, 4), "num_layers is 0"),
        (lambda: MLP.equal(2, 0), "whole numbers from 1"),
        (lambda: MLP.equal(2, 4).cut(0), "num_stages is 0"),
    ],
)
def test_models_that_cannot_be(build, text):
    with pytest.raises(ValueError, match=text):
        build()


def test_differences_compare_gradients_of_one_model():
    a, b = [np.array([1.0, 4.0])], [np.array([1.5, 4.0])]
    assert relative_difference(a, b) == 0.125
    assert relative_difference([a], b) == relative_difference((tuple(a),), (tuple(b),)) == 0.125
    assert relative_difference([np.zeros(2)], [np.zeros(2)]) == 0
    with pytest.raises(ValueError, match="compare runs of the same model"):
        relative_difference(a, [np.ones(3)])
