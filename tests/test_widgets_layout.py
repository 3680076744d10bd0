"""The explorer of layouts, moved from code: what it shows is what the planner gives, or the planner's reason."""

import re
import xml.etree.ElementTree as ET
from html import unescape

import pytest

from pplab.hardware import ACCELERATORS
from pplab.model import MODELS
from pplab.planner import Cluster, Conditions, Layout, StepTime, evaluate, plan
from pplab.step_time import PARTS
from pplab.time_bars import LOOKS, seconds, time_bars
from pplab.widgets import LayoutExplorer, explore_layout

SVG = "{http://www.w3.org/2000/svg}"
TIME = StepTime(compute=6.0, tensor=2.0, pipeline=0.5, bubble=1.0, data=0.5)


def cells(html):
    """The texts of a table's cells, a list a row, the heading first."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    return [[unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]


def evaluated(layout, model="GPT-3 175B", nodes=128, split=True):
    """What the planner says of a layout."""
    conditions = Conditions(0.55, MODELS[model].seq_len, sequence_parallel=split)
    return evaluate(MODELS[model], Cluster("A100 80GB", nodes), layout, conditions)


def row(name, planned):
    """A row of the table as it must read."""
    x, over = planned.layout, planned.memory_bytes - planned.room
    sizes = [f"{x.tensor} × {x.pipeline} × {x.data}", x.schedule, str(x.num_chunks), str(x.micro_batch_size)]
    times = [f"{planned.step_time:.4g} s", f"{planned.mfu:.1%}"] if planned.fits else ["–", "–"]
    fits = "yes" if planned.fits else f"no, {over / 1e9:.4g} GB too much"
    return [name, *sizes, str(x.num_microbatches), x.recompute, *times, f"{planned.memory_bytes / 1e9:.4g} GB", fits]


def test_the_names():
    assert explore_layout is LayoutExplorer
    e = explore_layout()
    assert repr(e) == "[explorer of layouts: run this cell to move its controls]"


@pytest.mark.parametrize(
    ("sizes", "layout"),
    [
        ({}, Layout(8, 8, 16, 1, 1, 96, "selective", "1f1b")),
        ({"num_chunks": "3"}, Layout(8, 8, 16, 3, 1, 96, "selective", "interleaved-1f1b")),
        (
            {"tensor": "4", "pipeline": "16", "num_chunks": "6"},
            Layout(4, 16, 16, 6, 1, 96, "selective", "interleaved-1f1b"),
        ),
        ({"micro_batch_size": "4", "recompute": "full"}, Layout(8, 8, 16, 1, 4, 24, "full", "1f1b")),
        ({"recompute": "none", "pipeline": "4"}, Layout(8, 4, 32, 1, 1, 48, "none", "1f1b")),
        ({"pipeline": "1", "nodes": "1"}, Layout(8, 1, 1, 1, 1, 1536, "selective", "1f1b")),
    ],
)  # fmt: skip
def test_what_is_shown_is_what_the_planner_gives(sizes, layout):
    e = explore_layout()
    for name, value in sizes.items():
        getattr(e, name).value = value
    expected = evaluated(layout, nodes=int(e.nodes.value))
    assert e.planned == expected
    assert cells(e.numbers.value)[1:] == [row("yours", expected)]
    assert 'class="pplab-numbers" role="status"' in e.numbers.value
    assert bool(e.picture.value) == expected.fits
    if expected.fits:
        assert e.picture.value == time_bars({"yours": expected.time}, title="GPT-3 175B on 1,024 × A100 80GB")


def test_other_models_and_no_sequence_parallelism():
    e = explore_layout()
    e.sequence_parallel.value = False
    assert e.planned == evaluated(Layout(8, 8, 16, 1, 1, 96, "selective", "1f1b"), split=False)
    e.model.value = "Llama-2 70B"
    layout = Layout(8, 8, 16, 1, 1, 96, "selective", "1f1b")
    assert e.planned == evaluated(layout, "Llama-2 70B", split=False)


def test_another_model_offers_its_own_pipelines_and_chunks():
    e = explore_layout(pipeline=12, num_chunks=4)
    assert e.num_chunks.options == ("1", "2", "4", "8")
    e.model.value = "GPT 530B"  # 105 blocks
    assert e.pipeline.options == ("1", "3", "5", "7", "15", "21", "35", "105")
    assert (e.pipeline.value, e.num_chunks.options, e.num_chunks.value) == ("7", ("1", "3", "5", "15"), "3")
    e.pipeline.value = "1"
    assert (e.num_chunks.options, e.num_chunks.value) == (("1",), "1")
    assert not any(MODELS[name].num_experts > 1 for name in e.model.options)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"pipeline": "12"}, "1024 devices cannot be laid out with tensor 8 and pipeline 12"),
        ({"nodes": "512", "tensor": "1", "pipeline": "1"}, "global_batch 1536 is not a multiple of data"),
    ],
)
def test_a_refused_layout_is_told_in_place_of_the_table(sizes, says):
    e = explore_layout()
    for name, value in sizes.items():
        getattr(e, name).value = value
    assert (e.planned, e.picture.value) == (None, "")
    assert says in unescape(e.numbers.value)
    assert "<table" not in e.numbers.value
    assert 'role="status"' in e.numbers.value
    e.nodes.value, e.tensor.value, e.pipeline.value = "128", "8", "8"
    assert e.planned == evaluated(Layout(8, 8, 16, 1, 1, 96, "selective", "1f1b"))


def test_the_planner_answers_beside_the_reader_and_sets_nothing():
    e = explore_layout("GPT 22B", num_nodes=4, global_batch=64, tensor=8, pipeline=4)
    before = [control.value for control in e._controls]
    assert e.answer is None
    e.ask.click()
    best = plan("GPT 22B", Cluster("A100 80GB", 4), 64, efficiency=0.55, sequence_parallel=True).best
    assert e.answer == best
    assert [control.value for control in e._controls] == before
    assert cells(e.numbers.value)[1:] == [row("yours", e.planned), row("planner's", best)]
    assert e.progress.value == e.progress.max > 1
    assert (e.progress.layout.visibility, e.ask.disabled) == ("hidden", False)
    assert len(re.findall(r'class="part ', e.picture.value)) > 2 * 4
    e.tensor.value = "4"
    assert e.answer == best
    e.nodes.value = "8"  # another question
    assert (e.answer, len(cells(e.numbers.value))) == (None, 2)
    e.nodes.value = "4"
    assert e.answer == best


def test_where_nothing_fits_the_planner_says_so():
    e = explore_layout(num_nodes=1, pipeline=1, tensor=8, recompute="full")
    e.ask.click()
    assert e.answer is None
    assert cells(e.numbers.value)[1:] == [row("yours", e.planned)]
    assert "The planner: no layout of GPT-3 175B fits 8 × A100 80GB" in e.numbers.value


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"model": "Mixtral 8x7B"}, "choose one of GPT-3 175B"),
        ({"accelerator": "A1000"}, "known are"),
        ({"num_nodes": 3}, "nodes of 8 devices is '3'"),
        ({"tensor": 3}, "tensor t is '3'"),
        ({"pipeline": 7}, "pipeline p is '7'"),
        ({"micro_batch_size": 3}, "micro-batch size is '3'"),
        ({"num_chunks": 5}, "chunks V is '5'"),
        ({"pipeline": 1, "num_chunks": 2}, "chunks V is '2'"),
        ({"recompute": "some"}, "recomputation is 'some'"),
        ({"efficiency": 1.5}, "efficiency is 1.5"),
        ({"sequence_parallel": "yes"}, "sequence_parallel must be True or False"),
        ({"global_batch": 0}, "global_batch is 0"),
    ],
)
def test_bad_starts_are_refused(sizes, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        explore_layout(**sizes)


def test_another_accelerator_is_measured_against_its_own_memory():
    e = explore_layout(accelerator="A100 40GB")
    over = e.planned.memory_bytes - ACCELERATORS["A100 40GB"].memory_bytes
    head, mine = cells(e.numbers.value)
    assert head[-2] == "fullest device, of 40 GB"
    assert mine[-1] == f"no, {over / 1e9:.4g} GB too much"


# ── Its picture ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("look", ["auto", "light", "dark"])
def test_bars_are_as_long_as_their_parts_and_say_them_in_words(look):
    root = ET.fromstring(time_bars({"yours": TIME}, look=look))
    assert root.get("role") == "img"
    for part in PARTS:
        assert f"{LOOKS[part].word} {getattr(TIME, part):.3g} s" in root.get("aria-label")
    parts = [
        g for g in root.iter(f"{SVG}g") if g.get("class", "").startswith("part") and g.find(f"{SVG}title") is not None
    ]
    wide = [float(g.find(f"{SVG}rect").get("width")) for g in parts]
    assert [g.get("class") for g in parts] == [f"part {part}" for part in PARTS]
    assert [w / wide[0] for w in wide] == pytest.approx([getattr(TIME, p) / TIME.compute for p in PARTS], abs=1e-3)
    for left, right, w in zip(parts, parts[1:], wide, strict=False):
        x = [float(g.find(f"{SVG}rect").get("x")) for g in (left, right)]
        assert x[1] - x[0] == pytest.approx(w, abs=0.02)


def test_parts_are_told_apart_without_colour():
    assert len({LOOKS[part].pattern for part in PARTS}) == len(PARTS) == len(LOOKS)


def test_bars_of_several_layouts_share_an_axis_and_names_are_escaped():
    picture = time_bars({"a <b>": TIME, "no time": StepTime(0, 0, 0, 0, 0)}, until=20.0)
    assert "a &lt;b&gt;" in picture
    widths = [float(w) for w in re.findall(r'<title>a &lt;b&gt;: [^<]*</title><rect [^>]*width="([\d.]+)"', picture)]
    assert sum(widths) == pytest.approx((900 - 74 - 84) / 2, abs=0.1)
    assert ET.fromstring(time_bars({"x": StepTime(0, 0, 0, 0, 0)})) is not None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (({},), "times is empty"),
        (({"x": TIME}, 5.0), "until is 5.0: the axis must reach to 10 seconds"),
        (({"x": TIME}, float("inf")), "until is inf"),
        (({"x": TIME}, None, 300), "width is 300"),
        (({"x": TIME}, None, 900, "blue"), "is 'blue': choose 'light' or 'dark'"),
    ],
)
def test_bars_refuse(given, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        time_bars(*given)


def test_seconds_are_read_without_powers_of_ten():
    assert [seconds(v) for v in (0.01234, 23.634, 12345.6)] == ["0.01234 s", "23.63 s", "12,346 s"]
