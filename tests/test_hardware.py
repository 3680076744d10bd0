"""Links and accelerators against the chapter's figures, datasheets and closed forms."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pplab.hardware import ACCELERATORS, LINKS, Accelerator, Link, layer_times, traffic_per_step
from pplab.model import MODELS

GPT3 = MODELS["GPT-3 175B"]
A100, MESSAGE = ACCELERATORS["A100 80GB"], 201_326_592


def test_e1_one_way_takes_twice_as_long_as_the_sum_of_both_ways_promises():
    nvlink = LINKS["NVLink 3"]
    assert (nvlink.bandwidth, nvlink.both_ways_bandwidth) == (300e9, 600e9)
    assert MESSAGE / nvlink.both_ways_bandwidth == pytest.approx(0.336e-3, rel=1e-2)
    assert nvlink.time(MESSAGE) == pytest.approx(0.67e-3, rel=1e-2)


def test_figure_2_and_e1_over_infiniband():
    """One HDR link 8.05 ms; eight of them, one for each of 8 tensor ranks, about 1 ms."""
    hdr = LINKS["InfiniBand HDR"]
    assert hdr.time(MESSAGE) == pytest.approx(8.05e-3, rel=1e-3)
    assert hdr.time(MESSAGE, num_links=8) == pytest.approx(1.0e-3, rel=1e-2)
    assert LINKS["InfiniBand NDR"].time(MESSAGE) == pytest.approx(hdr.time(MESSAGE) / 2)


def test_figure_3_on_the_accelerators_of_the_chapter():
    """175e9 bf16 parameters: 350 GB; 43.75 GB on each of 8 stages, more than an A100 of 40 GB holds."""
    weights = 2 * 175e9
    assert (weights, weights / 8, round(weights / 16 / 1e9, 1)) == (350e9, 43.75e9, 21.9)
    assert ACCELERATORS["A100 40GB"].memory_bytes < weights / 8 < A100.memory_bytes


def test_latency_comes_on_top():
    link = replace(LINKS["Ethernet 100"], latency=5e-6)
    assert link.time(0) == 5e-6
    assert link.time(12.5e9, num_links=2) == pytest.approx(0.5 + 5e-6)


def test_e17_pipeline_traffic_against_data_parallel_traffic():
    gradients = 2 * 175e9 / 8
    few, many = (traffic_per_step(m, MESSAGE, gradients, num_replicas=8) for m in (64, 256))
    assert few["pipeline"] == pytest.approx(25.8e9, rel=2e-3)
    assert many["pipeline"] == pytest.approx(103e9, rel=2e-3)
    assert few["data"] == many["data"] == pytest.approx(76.6e9, rel=1e-3)
    assert few["pipeline"] < few["data"] < many["pipeline"]


def test_traffic_of_the_ends_and_of_what_is_not_parallel():
    assert traffic_per_step(4, 10, 100, num_neighbours=1) == {"pipeline": 40, "data": 0}
    assert traffic_per_step(4, 10, 100, num_replicas=2, num_neighbours=0) == {"pipeline": 0, "data": 100}


def test_e18_a_stage_takes_over_two_seconds_on_half_an_a100():
    block = GPT3.layers(4)[1]
    stage = 12 * A100.layer_time(block, efficiency=0.5)
    assert stage == pytest.approx(3.66e14 / 156e12, rel=1e-3) and stage > 2
    assert stage / 8 == pytest.approx(0.293, rel=1e-2)  # 8-way tensor parallel: a few hundred milliseconds


def test_a_layer_takes_the_longer_of_computing_and_moving():
    slow_memory = Accelerator("toy", peak_flops=100, memory_bytes=1, memory_bandwidth=10)
    assert slow_memory.time(flops=200, bytes_moved=5, efficiency=0.5) == 4
    assert slow_memory.time(flops=200, bytes_moved=70, efficiency=0.5) == 7
    assert slow_memory.time(flops=200, bytes_moved=5, efficiency=1) == 2


@pytest.mark.parametrize("accelerator", ACCELERATORS.values(), ids=list(ACCELERATORS))
def test_the_embedding_is_bound_by_memory_and_the_head_by_compute(accelerator):
    embedding, *blocks, head = GPT3.layers(4)
    assert [accelerator.bound(layer, efficiency=0.5) for layer in (embedding, blocks[0], head)] == [
        "memory", "compute", "compute",
    ]  # fmt: skip
    times = layer_times(GPT3, accelerator, 4, efficiency=0.5)
    assert times.shape == (98,) and np.all(times[1:-1] == times[1])
    assert times[0] == pytest.approx(embedding.bytes_moved / accelerator.memory_bandwidth)
    assert times[-1] / times[1] == pytest.approx(GPT3.head_in_blocks())


def test_one_token_leaves_even_a_block_bound_by_memory():
    assert A100.bound(GPT3.layers(1, 1)[1], efficiency=0.5) == "memory"


@pytest.mark.parametrize(
    ("name", "tflops", "gigabytes", "gigabytes_a_second"),
    [
        ("V100 32GB", 125, 32, 900),
        ("A100 40GB", 312, 40, 1555),
        ("A100 80GB", 312, 80, 2039),
        ("H100", 1979 / 2, 80, 3350),
        ("H200", 1979 / 2, 141, 4800),
        ("B200", 2250, 1440 / 8, 64_000 / 8),
    ],
)
def test_accelerators_have_the_figures_of_their_datasheets(name, tflops, gigabytes, gigabytes_a_second):
    chip = ACCELERATORS[name]
    assert (chip.peak_flops, chip.memory_bytes) == (tflops * 1e12, gigabytes * 1e9)
    assert chip.memory_bandwidth == gigabytes_a_second * 1e9
    assert chip.name == name and "NVIDIA" in chip.source


@pytest.mark.parametrize(
    ("name", "both_ways"),
    [
        ("NVLink 2", 300),
        ("NVLink 3", 600),
        ("NVLink 4", 900),
        ("NVLink 5", 1800),
        ("PCIe 4 x16", 63),
        ("PCIe 5 x16", 126),
        ("InfiniBand HDR", 50),
        ("InfiniBand NDR", 100),
        ("Ethernet 100", 25),
    ],
)
def test_links_have_their_published_figures(name, both_ways):
    """PCIe: 31.5 and 63 GB/s one way after its 128b/130b code; the others as printed."""
    link = LINKS[name]
    assert link.both_ways_bandwidth / 1e9 == pytest.approx(both_ways, rel=1e-3)
    assert (link.name, link.latency, bool(link.source)) == (name, 0, True)


@pytest.mark.parametrize("efficiency", [0, -0.5, 1.01, float("nan"), "half", None, True])
def test_efficiency_is_a_share(efficiency):
    with pytest.raises(ValueError, match=r"efficiency is .*: (give|the share of the peak that is reached is above 0)"):
        A100.time(1, 1, efficiency=efficiency)


def test_efficiency_must_be_said():
    with pytest.raises(TypeError, match="efficiency"):
        A100.layer_time(GPT3.layers()[0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Accelerator("x", 0, 1, 1), "peak_flops is 0: give a finite number above 0"),
        (lambda: Accelerator("x", 1, -1, 1), "memory_bytes is -1: give a finite number above 0"),
        (lambda: Accelerator("x", 1, 1, float("inf")), "memory_bandwidth is inf: give a finite number above 0"),
        (lambda: Link("x", 0), "bandwidth is 0: give a finite number above 0"),
        (lambda: Link("x", 1, latency=-1), "latency is -1: give a finite number of 0 or more"),
        (lambda: Link("x", 1).time(float("nan")), "num_bytes is nan: give a finite number of 0 or more"),
        (lambda: Link("x", 1).time(1, num_links=0), "num_links is 0: give a whole number of 1 or more"),
        (lambda: layer_times(GPT3, A100, 0, efficiency=1), "micro_batch_size is 0: give a whole number of 1 or more"),
        (lambda: traffic_per_step(0, 1, 1), "num_microbatches is 0: give a whole number of 1 or more"),
        (lambda: traffic_per_step(1, -1, 1), "message_bytes is -1: give a finite number of 0 or more"),
        (lambda: traffic_per_step(1, 1, 1, num_replicas=0), "num_replicas is 0: give a whole number of 1 or more"),
        (lambda: traffic_per_step(1, 1, 1, num_neighbours=3), "num_neighbours is 3: a stage of a pipeline has 0, 1"),
    ],
)
def test_what_makes_no_sense_is_refused(call, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        call()


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(KeyError) as caught:
        ACCELERATORS["A1000"]
    assert str(caught.value) == f"no accelerator is called 'A1000'; known are: {', '.join(ACCELERATORS)}"
    with pytest.raises(KeyError, match="no link is called 'wet string'; known are: NVLink 2, NVLink 3"):
        LINKS["wet string"]
