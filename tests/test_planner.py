"""Layouts of a cluster: what divides, what each part of a step takes by hand, and published runs."""

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pplab
from pplab.cluster import Cluster, mesh
from pplab.hardware import LINKS, Accelerator, Link
from pplab.layouts import Conditions, Layout
from pplab.memory import estimate_memory
from pplab.model import MODELS, TransformerModel
from pplab.plan_table import COLUMNS
from pplab.planner import evaluate, memory_parts, plan
from pplab.presets import UnknownPresetError
from pplab.step_time import PARTS, data_time, hop_times, pipeline_time, stage_times, step_time

GPT3 = MODELS["GPT-3 175B"]
SMALL = TransformerModel(8, 64, 8, 100, 32, name="small")
CHIP = Accelerator("chip", peak_flops=1e9, memory_bytes=1e8, memory_bandwidth=1e9)
NEAR, FAR = Link("near", 1e6), Link("far", 1e5)
CLUSTER = Cluster(CHIP, num_nodes=4, devices_per_node=4, inside=NEAR, between=FAR)
HALF = Conditions(efficiency=0.5, seq_len=32)
PUBLISHED = json.loads((Path(__file__).parent / "data" / "published_steps.json").read_text(encoding="utf-8"))
EFFICIENCY, WITHIN = 0.55, 0.10
NOT_PLANNED = ("forward-only", "dualpipe", "chimera")  # no step; two copies of each stage


@pytest.fixture(scope="module")
def big() -> pplab.planner.Plan:
    return plan(
        GPT3, Cluster("A100 80GB", 128), 1536, efficiency=EFFICIENCY, schedules="interleaved-1f1b", num_chunks=3
    )


@pytest.fixture(scope="module")
def small() -> pplab.planner.Plan:
    return plan(SMALL, CLUSTER, 32, efficiency=0.5, recompute=("none", "full"))


def block_flops(b: int) -> int:
    return 24 * b * 32 * 64**2 + 4 * b * 32**2 * 64


def test_every_layout_divides_and_fits(small, big):
    for found, model, devices, batch in ((small, SMALL, 16, 32), (big, GPT3, 1024, 1536)):
        for row in found.rows + found.rejected:
            x = row.layout
            assert x.tensor * x.pipeline * x.data == x.num_devices == devices
            assert x.data * x.micro_batch_size * x.num_microbatches == batch
            assert model.num_layers % (x.pipeline * x.num_chunks) == model.num_heads % x.tensor == 0
            assert found.cluster.devices_per_node % x.tensor == 0
            assert (x.num_chunks > 1) == (x.schedule == "interleaved-1f1b")
            assert row.fits == (row in found.rows) == (row.memory_bytes <= found.cluster.accelerator.memory_bytes)


def test_ranked_by_time_and_every_time_is_the_sum_of_its_parts(small):
    times = [row.step_time for row in small]
    assert (
        times == sorted(times) and small.best is small[0] and [row.rank for row in small] == [*range(1, len(small) + 1)]
    )
    for row in small:
        assert row.step_time == pytest.approx(sum(getattr(row.time, part) for part in PARTS))
        assert all(getattr(row.time, part) >= 0 for part in PARTS)
        flops = SMALL.iteration_flops(32, recompute=False)
        assert row.mfu == pytest.approx(flops / (row.step_time * 16 * 1e9)) and row.mfu < 0.5


def test_the_best_is_the_best_of_all_that_the_search_leaves_in(small):
    best = small.best
    for row in small:
        again = evaluate(SMALL, CLUSTER, row.layout, HALF)
        assert again.step_time == row.step_time >= best.step_time


def test_compute_by_hand():
    """Blocks at half of the peak: F once, I and W once each, and I once more under full recomputation."""
    layout = Layout(tensor=2, pipeline=2, data=4, num_chunks=1, micro_batch_size=2, num_microbatches=4)
    block, head = block_flops(2) / 2 / 0.5e9, 2 * 2 * 32 * 64 * 100 / 2 / 0.5e9
    compute, _ = stage_times(SMALL, CLUSTER, layout, HALF)
    np.testing.assert_allclose(compute, [[4 * block, 4 * block + head]] * 3)
    full, _ = stage_times(SMALL, CLUSTER, replace(layout, recompute="full"), HALF)
    np.testing.assert_allclose(full - compute, [[0, 0], [4 * block, 4 * block], [0, 0]], atol=1e-15)
    some, _ = stage_times(SMALL, CLUSTER, replace(layout, recompute="selective"), HALF)
    scores = 4 * 4 * 2 * 32**2 * 64 / 2 / 0.5e9
    np.testing.assert_allclose((some - compute)[1], [scores, scores])


def test_all_reduces_by_hand():
    """2 forward and 2 backward a layer, 2 more under full recomputation, each 2 (t − 1)/t of B · T · H · 2 bytes."""
    layout = Layout(tensor=4, pipeline=2, data=2, num_chunks=1, micro_batch_size=2, num_microbatches=4)
    one = 2 * 3 / 4 * (2 * 32 * 64 * 2) / 1e6
    for recompute, backward in (("none", 2), ("selective", 2), ("full", 4)):
        _, tensor = stage_times(SMALL, CLUSTER, replace(layout, recompute=recompute), HALF)
        np.testing.assert_allclose(tensor[:, 0], [4 * 2 * one, 4 * backward * one, 0])


def test_a_ring_pays_for_the_slowest_link_and_for_latency():
    slow = replace(CLUSTER, inside=replace(NEAR, latency=1e-3), between=replace(FAR, latency=1e-2))
    assert CLUSTER.ring_time(1e6, 4) == pytest.approx(1.5)
    assert slow.ring_time(1e6, 4) == pytest.approx(1.5 + 6e-3)
    assert CLUSTER.ring_time(1e6, 1) == 0
    assert CLUSTER.ring_time(1e6, 4, stride=4) == pytest.approx(15)  # each of 4 rings has one of a node's 4 links
    assert CLUSTER.ring_time(1e6, 8, stride=2) == pytest.approx(1.75 / 0.2)  # 2 rings share the 4
    assert CLUSTER.ring_time(1e6, 16) == pytest.approx(1.875 / 0.4)  # one ring has them all
    assert slow.ring_time(1e6, 4, stride=4) == pytest.approx(15 + 6e-2)
    assert replace(CLUSTER, links_per_node=1).ring_time(1e6, 4, stride=4) == pytest.approx(60)


def test_hops_by_hand():
    """Inside a node the whole message at once; between nodes a t-th each, and the rest gathered inside."""
    size = 2 * 32 * 64 * 2
    layout = Layout(tensor=2, pipeline=8, data=1, num_chunks=1, micro_batch_size=2, num_microbatches=8)
    near, far = size / 1e6, size / 2 / 1e5 + size / 2 / 1e6
    np.testing.assert_allclose(hop_times(SMALL, CLUSTER, layout, HALF), [near, far] * 3 + [near])
    plain = replace(HALF, scatter_gather=False)
    np.testing.assert_allclose(hop_times(SMALL, CLUSTER, layout, plain), [near, size / 1e5] * 3 + [near])
    few = replace(CLUSTER, links_per_node=2)  # two devices share a link
    np.testing.assert_allclose(hop_times(SMALL, few, layout, plain)[1], 2 * size / 1e5)
    around = replace(layout, pipeline=2, data=4, num_chunks=2, schedule="interleaved-1f1b")
    np.testing.assert_allclose(hop_times(SMALL, CLUSTER, around, HALF), [far] * 3)


def test_the_reduction_by_hand_and_how_much_of_it_backward_hides():
    """Two stages: the last has 4 blocks, the head and a copy of the embedding's matrix, in fp32 gradients."""
    layout = Layout(tensor=2, pipeline=2, data=4, num_chunks=1, micro_batch_size=2, num_microbatches=4)
    first = 4 * SMALL.block_parameters + 64 * (100 + 32)
    expected = 2 * 3 / 4 * first / 2 * 4 / (4 * 1e5 / 2)
    assert data_time(SMALL, CLUSTER, layout, HALF) == pytest.approx(expected)
    assert data_time(SMALL, CLUSTER, layout, replace(HALF, convention="zero")) == pytest.approx(expected / 2)
    assert data_time(SMALL, CLUSTER, replace(layout, data=1, tensor=8), HALF) == 0
    compute, tensor = stage_times(SMALL, CLUSTER, layout, HALF)
    hidden = (compute + tensor)[1:, 0].sum()
    both = [step_time(SMALL, CLUSTER, layout, replace(HALF, overlap_data=o)) for o in (False, True)]
    assert both[0].data - both[1].data == pytest.approx(hidden)
    assert both[0].total - both[1].total == pytest.approx(hidden)


def test_a_step_by_hand():
    """GPipe on two stages: every part, and their sum, from the formulas."""
    layout = Layout(
        tensor=1, pipeline=2, data=4, num_chunks=1, micro_batch_size=2, num_microbatches=4, schedule="gpipe"
    )
    time = step_time(SMALL, CLUSTER, layout, HALF)
    block, head = block_flops(2) / 0.5e9, 2 * 2 * 32 * 64 * 100 / 0.5e9
    first, last = 3 * 4 * block, 3 * (4 * block + head)
    hop = 2 * 32 * 64 * 2 / 1e5
    assert time.compute == pytest.approx(4 * (first + last) / 2) and time.tensor == 0
    assert time.bubble == pytest.approx(first + last + 3 * last - 4 * (first + last) / 2)
    assert time.pipeline == pytest.approx(2 * hop)
    assert time.total - time.data == pytest.approx(first + 4 * last + 2 * hop)


def test_equal_stages_without_hops_have_the_bubble_of_the_formula():
    """Nothing but blocks on fast links: bubble / ideal is (D − 1)/(V · M)."""
    model = replace(SMALL, vocab_size=1, positions="rotary")
    fast = replace(CLUSTER, inside=Link("fast", 1e30), between=Link("fast", 1e30))
    for chunks, schedule in ((1, "1f1b"), (1, "gpipe"), (2, "interleaved-1f1b")):
        layout = Layout(1, 4, 4, chunks, 1, 8, schedule=schedule)
        time = step_time(model, fast, layout, HALF)
        assert time.bubble / time.compute == pytest.approx(3 / (8 * chunks), rel=0.01)


def draw_costs(rng: np.random.Generator, stages: int) -> pplab.Costs:
    """Equal hops, equal stages but for the last."""
    forward, backward = np.ones(stages), np.full(stages, rng.choice([1, 1.07, 1.2, 2]))
    forward[-1] += (head := rng.choice([0, 0.01, 0.1, 0.5, 3]))
    backward[-1] += head
    return pplab.Costs(forward=forward, backward_input=backward, backward_weight=forward,
                       hop=float(rng.choice([0, 0.003, 0.05, 0.3, 0.7])))  # fmt: skip


@pytest.mark.parametrize("seed", range(150))
def test_the_short_ways_to_a_pipelines_time_are_exact(seed):
    rng = np.random.default_rng(seed)
    schedule = ("gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b")[seed % 4]
    devices, chunks = int(rng.integers(1, 13)), int(rng.integers(2, 5)) if seed % 4 == 3 else 1
    count = int(rng.integers(1, 9)) * devices + (int(rng.integers(0, devices)) if rng.random() < 0.5 else 0)
    costs = draw_costs(rng, devices * chunks)
    whole = pplab.simulate(pplab.SCHEDULES[schedule](devices, count, num_chunks=chunks), costs)
    layout = Layout(1, devices, 1, chunks, 1, count, schedule=schedule)
    assert pipeline_time(layout, costs) == pytest.approx(pplab.makespan(whole), rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_uneven_hops_and_a_quicker_last_stage_are_simulated_whole(seed):
    rng = np.random.default_rng(seed)
    schedule, chunks = (("gpipe", 1), ("1f1b", 1), ("interleaved-1f1b", 2))[seed % 3]
    devices, count = int(rng.integers(2, 8)), int(rng.integers(2, 40))
    costs = replace(draw_costs(rng, devices * chunks), hop=rng.uniform(0, 0.5, devices * chunks - 1))
    if seed % 2:
        last = np.append(np.ones(devices * chunks - 1), rng.uniform(0.1, 0.9))
        costs = pplab.Costs(forward=last, backward_input=last, backward_weight=last, hop=rng.choice([0, 0.1]))
    whole = pplab.simulate(pplab.SCHEDULES[schedule](devices, count, num_chunks=chunks), costs)
    layout = Layout(1, devices, 1, chunks, 1, count, schedule=schedule)
    assert pipeline_time(layout, costs) == pytest.approx(pplab.makespan(whole), rel=1e-12)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved-1f1b"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("count", [1, 3, 8, 14, 24])
def test_memory_is_that_of_the_whole_schedule(schedule, recompute, count):
    """One sequence scaled, few micro-batches for many: the same bytes as the estimate of the layout itself."""
    chunks = 2 if schedule == "interleaved-1f1b" else 1
    layout = Layout(2, 4, 2, chunks, 3, count, recompute, schedule)
    s = pplab.SCHEDULES[schedule](4, count, num_chunks=chunks)
    expected = estimate_memory(SMALL, s, micro_batch_size=3, recompute=recompute, tensor_parallel=2, data_parallel=2,
                               sequence_parallel=True, sharded_optimizer=True)  # fmt: skip
    found = memory_parts(SMALL, layout, replace(HALF, sequence_parallel=True, sharded_optimizer=True))
    assert sum(found.values()) == pytest.approx(expected.total.max(), rel=1e-12)
    for part, value in found.items():
        assert value == pytest.approx(getattr(expected, part)[expected.fullest], rel=1e-12)


@pytest.mark.parametrize("source", PUBLISHED)
def test_published_steps_are_met_within_the_stated_mean(source):
    off = []
    for row in PUBLISHED[source]:
        model = TransformerModel(row["num_layers"], row["hidden_size"], row["num_heads"], 51_200, 2048)
        names = ("tensor", "pipeline", "data", "recompute", "num_chunks", "micro_batch_size", "sequence_parallel")
        cluster = Cluster("A100 80GB", row["tensor"] * row["pipeline"] * row["data"] // 8)
        given = {name: row[name] for name in names if name in row}
        found = plan(
            model, cluster, row["batch"], efficiency=EFFICIENCY, schedules=("1f1b", "interleaved-1f1b"), **given
        )
        off.append(abs(found.best.step_time / row["step_seconds"] - 1))
    assert np.mean(off) <= WITHIN and max(off) <= 2 * WITHIN


def test_why_the_losers_lose(small, big):
    assert big.best.why == ""
    for row in big.rows[1:]:
        assert re.match(r"as fast|\d+\.\d% slower, mainly ", row.why)
    lost = big.rejected[0]
    over = (lost.memory_bytes - 80e9) / 1e9
    assert f"{over:.3g} GB more than A100 80GB has room for" in lost.why and lost.time is lost.mfu is None
    again = small.rows[-1]
    slower = again.step_time / small.best.step_time - 1
    assert f"{slower:.1%} slower" in again.why


def test_tensor_stays_in_a_node_unless_asked():
    assert max(row.layout.tensor for row in plan(SMALL, CLUSTER, 32, efficiency=0.5)) == 4
    asked = plan(SMALL, CLUSTER, 32, efficiency=0.5, across_nodes=True)
    assert max(row.layout.tensor for row in asked) == 8
    with pytest.raises(ValueError, match="tensor is 8, which does not divide the 4 devices a node"):
        plan(SMALL, CLUSTER, 32, efficiency=0.5, tensor=8)


def test_a_measured_efficiency_takes_the_place_of_a_number():
    given = dict(tensor=1, pipeline=1, recompute="none", micro_batch_size=(1, 2), schedules="1f1b")
    found = plan(SMALL, CLUSTER, 32, efficiency=lambda size, tensor: 0.25 * size, **given)
    one, two = sorted(found, key=lambda row: row.layout.micro_batch_size)
    assert one.time.compute == pytest.approx(2 * two.time.compute) and found.best is two
    with pytest.raises(ValueError, match="efficiency is 4: "):
        plan(SMALL, CLUSTER, 32, efficiency=lambda size, tensor: 4, **given)


def test_reserved_bytes_are_nobodys():
    first = plan(SMALL, CLUSTER, 32, efficiency=0.5).best
    tight = plan(SMALL, CLUSTER, 32, efficiency=0.5, reserved_bytes=1e8 - first.memory_bytes * 0.99)
    assert first.layout not in [row.layout for row in tight] and tight.best.memory_bytes < first.memory_bytes


def test_sorting_keeps_the_best(small):
    for name, value in (
        ("memory_bytes", lambda r: r.memory_bytes),
        ("mfu", lambda r: r.mfu),
        ("tensor", lambda r: r.layout.tensor),
    ):
        for descending in (False, True):
            found = small.sorted_by(name, descending)
            values = [value(row) for row in found]
            assert values == sorted(values, reverse=descending) and found.best == small.best
            assert set(map(id, found)) == set(map(id, small))
    with pytest.raises(ValueError, match="no column 'speed': choose one of rank, tensor"):
        small.sorted_by("speed")


def test_csv_round_trip(small, tmp_path):
    small.to_csv(tmp_path / "plan.csv", rejected=True)
    with open(tmp_path / "plan.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == list(COLUMNS) and len(lines) == len(small.rows) + len(small.rejected)
    for line, row in zip(lines, small.rows + small.rejected, strict=True):
        for name, value in row.row().items():
            assert line[name] == "" if value is None else type(value)(line[name]) == value


def test_frame_text_and_html(big):
    frame = big.to_frame()
    assert list(frame.columns) == list(COLUMNS) and frame.step_time.is_monotonic_increasing
    text, html = str(big), big._repr_html_()
    assert (
        text.splitlines()[0]
        == f"Plan of GPT-3 175B on 1024 × A100 80GB: {len(big)} layouts fit, {len(big.rejected)} do not"
    )
    x = big.best.layout
    assert f"{x.tensor} × {x.pipeline} × {x.data}" in text.splitlines()[2]
    assert html.count("<tr") == 1 + min(20, len(big)) and "font-weight:bold" in html


def test_html_shows_twenty_rows_and_counts_the_rest():
    found = plan(SMALL, CLUSTER, 32, efficiency=0.5)
    assert len(found) > 20 and found._repr_html_().count("<tr") == 21
    assert f"… and {len(found) - 20} more" in found._repr_html_() and f"… and {len(found) - 20} more" in str(found)


def test_progress_counts_up():
    seen = []
    found = plan(SMALL, CLUSTER, 32, efficiency=0.5, progress=lambda done, count: seen.append((done, count)))
    count = len(found.rows) + len(found.rejected)
    assert seen == [(k, count) for k in range(count + 1)]


def test_the_bar_of_a_notebook_fills(monkeypatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    plan(SMALL, CLUSTER, 32, efficiency=0.5, progress=True)
    assert len(shown) == 1 and shown[0].value == shown[0].max > 1


def test_mesh_of_16_by_hand():
    """2 × 4 × 2 on nodes of 4: rank = (stage · 2 + replica) · 2 + tensor; a node is a stage."""
    m = mesh(2, 4, 2, devices_per_node=4)
    assert m.ranks.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]], [[12, 13], [14, 15]]]
    assert m.nodes[:, 0, 0].tolist() == [0, 1, 2, 3] and m.place(6) == (0, 1, 1)
    tensor, onward, back, data = m.peers(6, num_layers=8, num_microbatches=10)
    assert (tensor.ranks, tensor.link, tensor.times) == ((7,), "inside", 4 * 2 * 10)
    assert (onward.ranks, onward.link, onward.times) == ((10,), "between", 10)
    assert (back.ranks, back.link, back.times) == ((2,), "between", 10)
    assert (data.ranks, data.link, data.times) == ((4,), "inside", 1)
    assert m.peers(6, 8, 10, recompute="full")[0].times == 6 * 2 * 10


def test_mesh_ends_and_rings():
    m = mesh(2, 4, 2, devices_per_node=4)
    assert m.peers(0)[2].ranks == () and m.peers(0)[2].link == "" and m.peers(0)[2].times == 0
    assert m.peers(15)[1].ranks == ()
    last = m.peers(12, num_microbatches=10, num_chunks=3)
    assert (last[1].ranks, last[1].times, last[2].times) == ((0,), 20, 30)
    first = m.peers(0, num_microbatches=10, num_chunks=3)
    assert (first[2].ranks, first[2].times, first[1].times) == ((12,), 20, 30)
    alone = mesh(1, 1, 1).peers(0, num_chunks=2)
    assert all(peers.ranks == () and peers.times == 0 for peers in alone)


@pytest.mark.parametrize(("pipeline", "data"), [(12, 32), (64, 6)])
def test_figure_8_and_e20_a_mesh_of_3072(pipeline, data):
    """Tensor in the node, pipeline and data between nodes; every group is as large as its degree."""
    m = mesh(8, pipeline, data)
    assert m.num_devices == 3072 and m.nodes.max() == 383
    assert (np.ptp(m.nodes, axis=2) == 0).all()
    rank = int(m.ranks[1, 2, 3])
    tensor, onward, back, replicas = m.peers(rank)
    assert (len(tensor.ranks), len(onward.ranks), len(back.ranks), len(replicas.ranks)) == (7, 1, 1, data - 1)
    assert (tensor.link, onward.link, back.link, replicas.link) == ("inside", "between", "between", "between")
    assert onward.ranks == (rank + 8 * data,) and back.ranks == (rank - 8 * data,)
    assert tensor.ranks == tuple(k for k in range(8 * (data + 2), 8 * (data + 3)) if k != rank)


def test_presets_by_name():
    cluster = Cluster("H100", 2, inside="NVLink 4", between="InfiniBand NDR")
    assert cluster.accelerator.memory_bytes == 80e9 and cluster.between is LINKS["InfiniBand NDR"]
    assert plan("Llama-3 8B", cluster, 16, efficiency=0.4, schedules="1f1b").model is MODELS["Llama-3 8B"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Cluster("A99", 1), "no accelerator is called 'A99'; known are: V100 32GB, A100 40GB"),
        (lambda: Cluster("H100", 1, between="string"), "no link is called 'string'; known are: NVLink 2"),
        (lambda: plan("GPT-5", CLUSTER, 8, efficiency=0.5), "no model is called 'GPT-5'; known are: GPT-3 175B"),
    ],
)
def test_unknown_presets_list_the_known(make, text):
    with pytest.raises(UnknownPresetError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Cluster(CHIP, 0), "num_nodes is 0: give a whole number of 1 or more"),
        (lambda: Cluster(CHIP, 1, devices_per_node=0), "devices_per_node is 0"),
        (lambda: Cluster(CHIP, 1, links_per_node=-1), "links_per_node is -1"),
        (lambda: Cluster(CHIP, math.nan), "num_nodes is nan"),
        (lambda: Cluster(7, 1), "accelerator is 7: give a Accelerator, or one of V100"),
        (lambda: mesh(0, 1, 1), "tensor is 0"),
        (lambda: mesh(2, 2, 2).peers(8), "rank is 8: ranks are numbered 0 to 7"),
        (lambda: mesh(2, 4, 2).peers(0, num_layers=10), "not a multiple of pipeline 4: the nearest that is, is 8"),
        (lambda: plan(SMALL, "H100", 8, efficiency=0.5), "cluster is 'H100': give a Cluster"),
        (lambda: plan(SMALL, CLUSTER, -8, efficiency=0.5), "global_batch is -8"),
        (lambda: plan(SMALL, CLUSTER, 8, math.nan, efficiency=0.5), "seq_len is nan"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=math.nan), "efficiency is nan: give the share"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=55), "efficiency is 55"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, tensor=-1), "tensor is -1"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, num_chunks=()), "num_chunks is empty: give at least one"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, recompute="some"), "recompute is 'some': choose"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, schedules="2f2b"), "schedule is '2f2b': choose one of naive"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, schedules="chimera"), "which holds each stage on two devices"),
        (
            lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, schedules="hanayo", num_chunks=1),
            "num_chunks must divide them and suit the schedule: 1 for most",
        ),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, convention="12"), "convention is '12'"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, reserved_bytes=-1.0), "reserved_bytes is -1.0"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, overlap_data=2), "overlap_data must be True or False, not 2"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (dict(tensor=3), "tensor is 3, which does not divide the 16 devices and the 8 heads"),
        (dict(tensor=3), "the nearest that divides all it must is 2 or 4"),
        (dict(pipeline=3), "pipeline is 3, which does not divide the 8 blocks"),
        (dict(tensor=4, pipeline=8), "the nearest number of devices that is a multiple of 32 is 32"),
        (dict(data=3), "16 devices cannot be laid out with data 3: tensor · pipeline · data must be 16"),
        (dict(data=4, global_batch=30), "data · micro_batch_size, which can be 4: the nearest that is, is 28"),
        (dict(data=4, micro_batch_size=3, global_batch=32), "which can be 12: the nearest that is, is 36"),
        (dict(pipeline=4, num_chunks=3), "there are 2 a device; num_chunks must divide them"),
    ],
)  # fmt: skip
def test_what_does_not_divide_is_named_with_the_nearest_that_does(given, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        plan(SMALL, CLUSTER, given.pop("global_batch", 32), efficiency=0.5, **given)


def test_a_model_that_fits_no_layout_says_what_is_closest_and_what_it_lacks():
    with pytest.raises(
        ValueError, match=r"no layout of GPT-3 175B fits 8 × A100 80GB; the closest is 8 × 1 × 1"
    ) as caught:
        plan(GPT3, Cluster("A100 80GB", 1), 8, efficiency=0.5)
    assert re.search(r"it needs \d+(\.\d)? GB on its fullest device, \d+ GB more than A100 80GB", str(caught.value))
    assert "the largest part is optimizer" in str(caught.value)


def test_a_model_with_experts_is_refused_by_name():
    with pytest.raises(ValueError, match="Mixtral 8x7B has 8 experts a block"):
        plan("Mixtral 8x7B", Cluster("H100", 8), 64, efficiency=0.5)


@pytest.mark.parametrize("schedule", [name for name in pplab.SCHEDULES if name not in NOT_PLANNED])
def test_every_schedule_can_be_planned_with(schedule):
    found = plan(SMALL, CLUSTER, 64, efficiency=0.5, schedules=schedule, pipeline=4, tensor=1, recompute="none")
    for row in found:
        assert row.time.compute < row.step_time and row.layout.schedule == schedule


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, schedules=()), "schedules is empty: give at least one"),
        (lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, recompute=()), "recompute is empty: give at least one"),
        (lambda: plan(None, CLUSTER, 8, efficiency=0.5), "model is None: give a TransformerModel, or the name of one"),
        (
            lambda: plan(SMALL, CLUSTER, 8, efficiency=0.5, tensor=2, pipeline=2, data=2),
            "tensor 2 and pipeline 2 and data 2 make 8 devices, where there are 16",
        ),
        (
            lambda: evaluate(SMALL, CLUSTER, Layout(2, 2, 2, 1, 1, 4), HALF),
            "2 × 2 × 2 are 8 devices, but the cluster has 16",
        ),
        (
            lambda: evaluate(SMALL, Cluster(CHIP, 3, 4, NEAR, FAR), Layout(4, 3, 1, 1, 1, 4), HALF),
            "8 blocks do not share out evenly over 3 stages, pipeline 3 × num_chunks 1; nearest that do: 2 and 4",
        ),
        (lambda: estimate_memory("GPT-3 175B", pplab.gpipe(2, 2)), "model is 'GPT-3 175B': give a TransformerModel"),
        (
            lambda: estimate_memory(GPT3, pplab.gpipe(2, 2), sequence_parallel="no"),
            "sequence_parallel must be True or False, not 'no'",
        ),
        (lambda: pplab.draw_memory(pplab.gpipe(2, 2)), "give what pplab.estimate_memory returns"),
    ],
)
def test_slips_of_a_reader_are_told(make, text):
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        make()


def test_a_layout_that_computes_again_says_so(big):
    again = plan(
        GPT3, big.cluster, 1536, efficiency=EFFICIENCY, tensor=8, pipeline=8, schedules="1f1b", sequence_parallel=True
    )
    slow = [row.why for row in again.rows if row.layout.recompute == "full" and "mainly comput" in row.why]
    assert slow and all("computing blocks again, recompute full" in why for why in slow)
