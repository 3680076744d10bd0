"""Parameters, FLOPs and boundary bytes against published counts and closed forms."""

import re
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from pplab.model import MODELS, TransformerModel

GPT3 = MODELS["GPT-3 175B"]
TINY = dict(num_layers=2, hidden_size=8, num_heads=2, vocab_size=10, seq_len=4)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("Llama-2 7B", 6_738_415_616),
        ("Llama-2 70B", 68_976_648_192),
        ("Llama-3 8B", 8_030_261_248),
        ("Llama-3 70B", 70_553_706_496),
        ("Llama-3 405B", 405_853_388_800),
    ],
)
def test_llama_counts_are_exactly_the_published_ones(name, published):
    assert MODELS[name].parameters == MODELS[name].active_parameters == published


def test_mixtral_holds_47_billion_and_uses_13_billion():
    """arXiv 2401.04088 rounds to 47B and 13B, Mistral's announcement to 46.7B and 12.9B."""
    assert round(MODELS["Mixtral 8x7B"].parameters / 1e9, 1) == 46.7
    assert round(MODELS["Mixtral 8x7B"].active_parameters / 1e9, 1) == 12.9


# SC'21, Table 1: billions of parameters, heads, hidden size, layers, GPUs, batch, TFLOP/s a GPU.
SC21 = [
    (1.7, 24, 2304, 24, 32, 512, 137),
    (7.5, 32, 4096, 36, 128, 512, 142),
    (39.1, 64, 8192, 48, 512, 1536, 138),
    (145.6, 96, 12288, 80, 1536, 2304, 148),
    (529.6, 128, 20480, 105, 2520, 2520, 163),
    (1008.0, 160, 25600, 128, 3072, 3072, 163),
]


@pytest.mark.parametrize(("billions", "heads", "hidden", "layers", "gpus", "batch", "tflops"), SC21)
def test_megatron_models_have_the_parameters_of_sc21(billions, heads, hidden, layers, gpus, batch, tflops):
    model = TransformerModel(layers, hidden, heads, vocab_size=51_200, seq_len=2048)
    assert round(model.parameters / 1e9, 1) == billions
    eq2 = 12 * layers * hidden**2 + 13 * layers * hidden + (51_200 + 2048) * hidden
    assert model.parameters == eq2 + 2 * hidden  # the final norm, which eq. 2 leaves out
    assert model.active_parameters == model.parameters


@pytest.mark.parametrize(
    ("name", "layers", "hidden"),
    [("GPT-3 175B", 96, 12288), ("GPT 22B", 48, 6144), ("GPT 530B", 105, 20480), ("GPT 1T", 128, 25600)],
)
def test_gpt_presets_equal_eq_2_within_its_rounding(name, layers, hidden):
    eq2 = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (51_200 + 2048) / (12 * layers * hidden))
    assert MODELS[name].parameters == pytest.approx(eq2, rel=1e-6)
    nominal = {"GPT-3 175B": 175, "GPT 22B": 22, "GPT 530B": 530, "GPT 1T": 1008}[name]
    assert round(MODELS[name].parameters / 1e9) == nominal


@pytest.mark.parametrize(("billions", "heads", "hidden", "layers", "gpus", "batch", "tflops"), SC21)
def test_flops_of_a_step_are_eq_3_of_sc21(billions, heads, hidden, layers, gpus, batch, tflops):
    model = TransformerModel(layers, hidden, heads, vocab_size=51_200, seq_len=2048)
    s, v = 2048, 51_200
    eq3 = 96 * batch * s * layers * hidden**2 * (1 + s / (6 * hidden) + v / (16 * layers * hidden))
    assert model.iteration_flops(batch) == pytest.approx(eq3, rel=1e-12)


def test_without_recomputation_the_blocks_run_three_quarters_of_it():
    blocks = 96 * sum(GPT3.block_flops(8).values())
    assert GPT3.iteration_flops(8) - GPT3.iteration_flops(8, recompute=False) == blocks
    forward = sum(layer.forward_flops for layer in GPT3.layers(8))
    assert GPT3.iteration_flops(8, recompute=False) == 3 * forward


@pytest.mark.parametrize(("b", "t"), [(1, 2048), (4, 2048), (2, 512)])
def test_a_block_and_the_head_of_a_gpt_follow_the_closed_forms(b, t):
    h = 12288
    embedding, *blocks, head = GPT3.layers(b, t)
    assert {layer.forward_flops for layer in blocks} == {24 * b * t * h * h + 4 * b * t * t * h}
    assert sum(GPT3.block_flops(b, t).values()) == pytest.approx(24 * b * t * h**2 * (1 + t / (6 * h)))
    assert (embedding.forward_flops, head.forward_flops) == (0, 2 * b * t * h * 51_200)


def test_e18_a_stage_of_twelve_blocks_takes_3_7e14_flop():
    assert 12 * GPT3.layers(4)[1].forward_flops == pytest.approx(3.7e14, rel=0.02)


def test_figure_1_the_message_is_201_megabytes():
    layers = GPT3.layers(4)
    assert {layer.boundary_bytes for layer in layers[:-1]} == {201_326_592}
    assert layers[-1].boundary_bytes == 0
    assert GPT3.layers(4, bytes_per_element=4)[0].boundary_bytes == 402_653_184


@pytest.mark.parametrize("name", MODELS)
def test_layers_add_up_to_the_model(name):
    model = MODELS[name]
    layers = model.layers()
    assert [layer.kind for layer in layers] == ["embedding", *["block"] * model.num_layers, "head"]
    assert sum(layer.parameters for layer in layers) == model.parameters
    assert len({layer.name for layer in layers}) == len(layers)
    assert model.name == name and model.source


def test_the_untied_head_is_counted_and_the_tied_one_shared():
    tied, untied = TransformerModel(**TINY), TransformerModel(**TINY, tied_head=False)
    assert untied.parameters - tied.parameters == 10 * 8
    assert (tied.layers()[-1].parameters, tied.layers()[-1].shared_parameters) == (2 * 8, 80)
    assert (untied.layers()[-1].parameters, untied.layers()[-1].shared_parameters) == (80 + 2 * 8, 0)
    assert tied.layers()[-1].forward_flops == untied.layers()[-1].forward_flops == 2 * 4 * 8 * 10


def test_swiglu_has_three_matrices():
    plain = dict(TINY, biases=False, ffn_size=20)
    gelu, swiglu = TransformerModel(**plain), TransformerModel(**plain, activation="swiglu")
    assert swiglu.block_parameters - gelu.block_parameters == 8 * 20
    assert (gelu.block_flops()["feed_forward"], swiglu.block_flops()["feed_forward"]) == (2 * 4 * 320, 2 * 4 * 480)


def test_each_part_of_a_small_block_by_hand():
    """H 8, 2 heads: Q, K, V and output 64 + 8 each; 8·32 + 32 and 32·8 + 8; two norms of 16."""
    assert TransformerModel(**TINY).block_parameters == 4 * 72 + 288 + 264 + 32
    assert TransformerModel(**TINY, num_kv_heads=1).block_parameters == 2 * 72 + 2 * (32 + 4) + 288 + 264 + 32
    assert TransformerModel(**TINY, norm="rmsnorm").block_parameters == 4 * 72 + 288 + 264 + 16
    assert TransformerModel(**TINY).embedding_parameters == 14 * 8
    assert TransformerModel(**TINY, positions="rotary").embedding_parameters == 10 * 8
    swiglu = TransformerModel(**TINY, activation="swiglu")
    assert swiglu.block_parameters == 4 * 72 + 2 * 288 + 264 + 32


def test_experts_cost_parameters_but_only_the_chosen_ones_compute():
    dense = TransformerModel(**TINY, biases=False)
    routed = TransformerModel(**TINY, biases=False, num_experts=4, experts_per_token=2)
    assert routed.block_parameters - dense.block_parameters == 3 * 512 + 4 * 8
    assert routed.parameters - routed.active_parameters == 2 * 2 * 512
    parts, base = routed.block_flops(), dense.block_flops()
    assert (parts["feed_forward"], parts["router"]) == (2 * base["feed_forward"], 2 * 4 * 8 * 4)
    assert (parts["projections"], parts["scores"]) == (base["projections"], base["scores"])


def test_a_few_tokens_do_not_read_every_expert():
    routed = TransformerModel(**TINY, biases=False, num_experts=8, experts_per_token=2)
    one, all_of_them = (routed.layers(1, t)[1].bytes_moved for t in (1, 4))
    assert one == (routed.block_parameters - 6 * 512) * 2 + 2 * 8 * 2
    assert all_of_them == routed.block_parameters * 2 + 2 * 4 * 8 * 2


def test_the_head_is_so_many_blocks():
    """The usual figures leave attention scores out: V / (12 H) for a GPT."""
    assert GPT3.head_in_blocks(seq_len=1) == pytest.approx(51_200 / (12 * 12288), rel=1e-4)
    assert round(GPT3.head_in_blocks(seq_len=1), 2) == 0.35
    assert round(MODELS["Llama-3 8B"].head_in_blocks(seq_len=1), 1) == 2.4
    assert GPT3.head_in_blocks() == pytest.approx(51_200 / (12 * 12288 * (1 + 2048 / (6 * 12288))))


def test_attention_takes_over_as_sequences_grow():
    """(8H² + 4TH) / (24H² + 4TH): a third at first, half at T = 2H, nearly all in the end."""
    assert GPT3.attention_share(1) == pytest.approx(1 / 3, abs=1e-4)
    assert GPT3.attention_share(2 * 12288) == 0.5
    shares = [GPT3.attention_share(2**k) for k in range(24)]
    assert shares == sorted(shares) and shares[-1] > 0.99


def test_the_embedding_reads_its_rows_not_its_table():
    embedding = GPT3.layers(4)[0]
    assert embedding.bytes_moved == 2 * 201_326_592 + 2048 * 12288 * 2
    assert embedding.bytes_moved < 2 * embedding.parameters


def test_numpy_sizes_do_not_overflow():
    model = TransformerModel(*(np.int32(x) for x in (128, 25600, 160, 51_200, 2048)))
    assert model.iteration_flops(np.int32(3072)) == MODELS["GPT 1T"].iteration_flops(3072) > 2**63
    assert model.parameters == MODELS["GPT 1T"].parameters


def test_a_model_is_a_value():
    assert replace(GPT3) == GPT3 and hash(replace(GPT3)) == hash(GPT3)
    with pytest.raises(FrozenInstanceError):
        GPT3.num_layers = 3
    assert (TransformerModel(**TINY).num_kv_heads, TransformerModel(**TINY).ffn_size) == (2, 32)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (dict(num_layers=0), "num_layers is 0: give a whole number of 1 or more"),
        (dict(hidden_size=0), "hidden_size is 0: give a whole"),
        (dict(hidden_size=8.0), "hidden_size is 8.0: give a whole"),
        (dict(num_heads=True), "num_heads is True: give a whole"),
        (dict(seq_len=0), "seq_len is 0: give a whole"),
        (dict(vocab_size=-1), "vocab_size is -1: give a whole"),
        (dict(ffn_size=0), "ffn_size is 0: give a whole"),
        (dict(num_heads=3), "hidden_size 8 is not a multiple of num_heads 3: each head takes an equal share"),
        (dict(num_heads=4, num_kv_heads=3), "num_heads 4 is not a multiple of num_kv_heads 3: each key/value head"),
        (dict(experts_per_token=2), "experts_per_token is 2, but a block has 1 experts: give at most 1"),
        (dict(num_experts=4, experts_per_token=5), "experts_per_token is 5, but a block has 4 experts"),
        (dict(activation="relu"), "activation is 'relu': choose 'gelu' or 'swiglu'"),
        (dict(norm="batch"), "norm is 'batch': choose 'layernorm' or 'rmsnorm'"),
        (dict(positions="sine"), "positions is 'sine': choose 'learned' or 'rotary'"),
        (dict(biases=2), "biases is 2: choose True or False"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(changes, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        TransformerModel(**(TINY | changes))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (dict(micro_batch_size=0), "micro_batch_size is 0: give a whole"),
        (dict(seq_len=0), "seq_len is 0: give a whole"),
        (dict(bytes_per_element=0), "bytes_per_element is 0: give a whole"),
    ],
)
def test_a_micro_batch_that_makes_no_sense_is_refused(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        GPT3.layers(**arguments)


def test_an_unknown_model_is_answered_with_the_known_ones():
    with pytest.raises(KeyError) as caught:
        MODELS["GPT-5"]
    assert str(caught.value).startswith("no model is called 'GPT-5'; known are: GPT-3 175B, GPT 22B")
    assert all(name in str(caught.value) for name in MODELS)
