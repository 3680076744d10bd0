"""One stage's arithmetic: a product forward, its transpose backward, and counts."""

import numpy as np
import pytest

import pplab
from pplab.numeric import MLP, MicroBatch, PipelineStage, run

RNG = np.random.default_rng(0)


@pytest.fixture
def stage():
    np.random.seed(3)
    return PipelineStage(stage_id=1, num_layers=4, hidden_size=5)


def test_forward_is_a_product_and_leaves_its_input_alone(stage):
    x = RNG.normal(size=(8, 5))
    batch = MicroBatch(batch_id=2, activations=x.copy())
    out = stage.forward(batch)
    assert out.batch_id == 2
    assert out.gradients is None
    assert np.array_equal(out.activations, x @ stage.weights)
    assert np.array_equal(batch.activations, x)


def test_backward_is_the_gradient_of_forward(stage):
    """Of the sum of g · output, by central differences in each input."""
    x, g = RNG.normal(size=(2, 5)), RNG.normal(size=(2, 5))
    gradients = stage.backward(MicroBatch(0, x, g)).gradients
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-4
        up, down = ((g * stage.forward(MicroBatch(0, x + s)).activations).sum() for s in (step, -step))
        assert gradients[i] == pytest.approx((up - down) / 2e-4, rel=1e-6, abs=1e-12)


def test_counts(stage):
    batch = stage.forward(MicroBatch(0, np.ones((1, 5))))
    stage.forward(batch)
    stage.backward(MicroBatch(0, batch.activations, np.ones((1, 5))))
    assert (stage.forward_count, stage.backward_count, stage.active_steps, stage.idle_steps) == (2, 1, 3, 0)
    assert (stage.stage_id, stage.num_layers, stage.hidden_size) == (1, 4, 5)


def test_weights_are_small_and_drawn_from_numpys_global_generator():
    np.random.seed(3)
    expected = np.random.randn(5, 5) * 0.01
    np.random.seed(3)
    assert PipelineStage(0, 4, 5).weights == pytest.approx(expected, abs=0)


def test_a_micro_batch_without_gradients_is_refused(stage):
    with pytest.raises(
        ValueError, match="micro-batch 6 brings no gradients to stage 1: run the next stage backward first"
    ):
        stage.backward(MicroBatch(6, np.ones((1, 5))))
    assert stage.backward_count == stage.active_steps == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: MLP(4), "sizes is 4: give two widths or more"),
        (lambda: MLP([2, True]), "sizes is "),
        (lambda: MLP([2, 2], activation=["tanh"]), "choose one of tanh, relu, linear"),
        (lambda: MLP([2, 2], weights=[np.full((2, 2), np.nan)]), "holds nan: give finite numbers only"),
        (lambda: MLP.equal(True, 4), "num_layers is True: give a whole number of 1 or more"),
        (lambda: run(pplab.gpipe(1, 1), MLP([1, 1]), [[1j]], [[0]]), "batch is not an array of numbers"),
        (lambda: run(pplab.gpipe(1, 1), MLP([1, 1]), np.ones((1, 1), complex), [[0]]), "batch is not an array of num"),
        (lambda: run(pplab.gpipe(1, 1), MLP([1, 1]), [[10**400]], [[0]]), "batch is not an array of numbers"),
    ],
)
def test_a_senseless_model_or_batch_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="None is not a model: give an MLP"):
        run(pplab.gpipe(1, 1), None, [[1]], [[0]])
