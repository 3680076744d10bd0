"""The explorer of memory, moved from code, shows what estimate_memory gives; its bars are as long as their bytes."""

import re
import xml.etree.ElementTree as ET
from html import unescape
from itertools import pairwise

import ipywidgets
import numpy as np
import pytest

import pplab
from pplab.hardware import ACCELERATORS
from pplab.memory import CONVENTIONS, PARTS, RECOMPUTE, estimate_memory
from pplab.memory_bars import memory_bars
from pplab.memory_figures import LOOKS, describe_memory
from pplab.model import MODELS, TransformerModel
from pplab.presets import UnknownPresetError
from pplab.schedules import SCHEDULES
from pplab.widgets import MemoryExplorer, explore_memory
from pplab.widgets.memory import gigabytes

SVG = "{http://www.w3.org/2000/svg}"
LARGE = estimate_memory(
    MODELS["GPT-3 175B"], pplab.gpipe(8, 16), micro_batch_size=4, tensor_parallel=8, recompute="full"
)  # fmt: skip
ALL_PARTS = estimate_memory(
    MODELS["GPT-3 175B"], pplab.SCHEDULES["pipedream"](8, 16), micro_batch_size=4, tensor_parallel=8, recompute="full"
)  # fmt: skip
SMALL = estimate_memory(TransformerModel(12, 16, 4, 100, 32), pplab.one_f_one_b(4, 8))


def cells(html):
    """The texts of a table's cells, a list a row, the heading first."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    return [[unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]


def all_widgets(widget):
    """A widget and all within it."""
    return [widget, *(deep for child in getattr(widget, "children", ()) for deep in all_widgets(child))]


def lengths(picture):
    """Pixels of each part of each bar, as its tooltip names them: {(device, part): width}; and the lanes' width."""
    root = ET.fromstring(picture)
    out = {}
    for g in root.iter(f"{SVG}g"):
        if g.find(f"{SVG}title") is not None:
            device, part = re.match(r"device (\d+): (\w+) ", g.find(f"{SVG}title").text).groups()
            out[int(device), part] = float(g.find(f"{SVG}rect").get("width"))
    return out, {float(r.get("width")) for r in root.iter(f"{SVG}rect") if r.get("class") == "lane"}


def line_at(picture):
    """The pixel of the accelerator's line, counted from the lanes' left end; None without one."""
    found = re.search(r'class="limit" d="M([\d.]+) ', picture)
    return found and float(found[1]) - 74


def direct(x, schedule):
    """What estimate_memory gives for an explorer's controls."""
    return estimate_memory(
        MODELS[x.model.value],
        SCHEDULES[schedule](x.devices.value, x.microbatches.value),
        micro_batch_size=x.micro_batch_size.value,
        tensor_parallel=int(x.tensor_parallel.value),
        sequence_parallel=x.sequence_parallel.value,
        recompute=x.recompute.value,
        convention=x.convention.value,
    )


def check(x):
    """Estimates, pictures and table are those of the controls."""
    wanted, limit = [direct(x, name) for name in x.schedules], ACCELERATORS[x.accelerator.value]
    until = max(limit.memory_bytes, *(e.total.max() for e in wanted))
    assert len(x.estimates) == len(wanted)
    for e, shown, picture in zip(wanted, x.estimates, x.pictures, strict=True):
        assert all((getattr(e, part) == getattr(shown, part)).all() for part in PARTS)
        title = f"{x.model.value}, {e.schedule.name}: each device at its fullest"
        assert picture.value == memory_bars(e, limit, until, title=title)
    for e, row in zip(wanted, cells(x.numbers.value)[1:], strict=True):
        k, room = e.fullest, limit.memory_bytes
        total = e.total[k]
        assert row[:2] == [e.schedule.name, str(k)]
        parts = [float(text.replace(",", "")) for text in row[2:7]]
        assert sum(parts[:-1]) == pytest.approx(parts[-1], rel=2e-3)
        assert parts == pytest.approx(
            [part / 1e9 for part in (e.states[k], e.activations[k], e.logits[k], e.temporary[k], total)], rel=6e-4
        )
        assert row[7] == f"{total / room:,.1%}"
        assert row[8] == ("yes" if total <= room else f"no, {gigabytes(total - room)} GB too much")


# ── The explorer ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_control_moved_from_code_gives_what_estimate_memory_gives():
    x = explore_memory()
    assert x.schedules == ("gpipe", "1f1b")
    check(x)
    moves = [
        ("devices", 4), ("microbatches", 24), ("micro_batch_size", 2), ("tensor_parallel", "4"),
        ("sequence_parallel", True), ("model", "Llama-3 70B"), ("accelerator", "H200"),
        *(("recompute", name) for name in RECOMPUTE), *(("convention", name) for name in ("zero", "chapter", "fp32")),
    ]  # fmt: skip
    for name, value in moves:
        before = x.numbers.value
        getattr(x, name).value = value
        check(x)
        assert x.numbers.value != before or (name, value) == ("recompute", "none")


def test_arguments_set_the_controls():
    x = explore_memory(
        "1f1b", "interleaved-1f1b", model="GPT 22B", num_devices=4, num_microbatches=8, micro_batch_size=2,
        tensor_parallel=2, recompute="selective", convention="18", accelerator="H100",
    )  # fmt: skip
    controls = (x.model, x.devices, x.microbatches, x.micro_batch_size, x.tensor_parallel, x.recompute, x.convention)
    assert [c.value for c in controls] == ["GPT 22B", 4, 8, 2, "2", "selective", "megatron"]
    assert (x.accelerator.value, x.sequence_parallel.value) == ("H100", False)
    check(x)


def test_gpt_3_under_gpipe_does_not_fit_and_under_1f1b_does():
    _, gpipe, flat = cells(explore_memory(micro_batch_size=4, recompute="full").numbers.value)
    assert (gpipe[0], flat[0]) == ("gpipe", "1f1b")
    assert re.fullmatch(r"no, [\d.]+ GB too much", gpipe[-1]) and flat[-1] == "yes"


def test_every_model_that_is_offered_is_counted_and_every_other_refused():
    x = explore_memory(tensor_parallel=1)
    for name, model in MODELS.items():
        if name in x.model.options:
            x.model.value = name
            check(x)
        else:
            with pytest.raises(ValueError, match="experts"):
                estimate_memory(model, pplab.gpipe(1, 1))


def test_conventions_are_offered_once_with_their_bytes():
    options = explore_memory().convention.options
    assert {CONVENTIONS[name] for _, name in options} == set(CONVENTIONS.values())
    assert len(options) == len(set(CONVENTIONS.values()))
    for text, name in options:
        assert text == f"{CONVENTIONS[name].total:g}, as {name}"
        assert explore_memory("1f1b", convention=name).convention.value == name


def test_what_is_refused_is_told_in_the_tables_place_until_it_is_put_right():
    x = explore_memory(model="Llama-2 7B")
    x.devices.value = 33
    with pytest.raises(ValueError, match="32 layers") as refused:
        direct(x, "gpipe")
    assert unescape(x.numbers.value) == f'<p class="pplab-numbers" role="status">{refused.value}</p>'
    assert x.estimates == [] and {picture.value for picture in x.pictures} == {""}
    x.devices.value = 32
    check(x)


def test_heads_that_do_not_divide_are_told_too(monkeypatch):
    odd = TransformerModel(8, 60, 6, 100, 32, name="six heads")
    monkeypatch.setitem(MODELS, "GPT-3 175B", odd)
    x = explore_memory(tensor_parallel=4)
    assert "num_heads 6 is not a multiple of tensor_parallel 4" in x.numbers.value
    x.tensor_parallel.value = "2"
    check(x)


def test_controls_have_labels_numbers_have_boxes_and_pictures_have_words():
    widgets = all_widgets(explore_memory())
    sliders = [w for w in widgets if isinstance(w, ipywidgets.IntSlider)]
    boxes = [w for w in widgets if isinstance(w, ipywidgets.BoundedIntText)]
    choices = [w for w in widgets if isinstance(w, (ipywidgets.Dropdown, ipywidgets.Checkbox))]
    assert (len(sliders), len(boxes), len(choices)) == (3, 3, 6)
    labels = [w.description for w in (*sliders, *choices)]
    assert all(labels) and len(set(labels)) == len(labels)
    *pictures, numbers = [w.value for w in widgets if isinstance(w, ipywidgets.HTML)]
    assert [ET.fromstring(picture).get("role") for picture in pictures] == ["img", "img"]
    assert 'class="pplab-numbers" role="status"' in numbers
    assert repr(MemoryExplorer()) == "[explorer of memory: run this cell to move its sliders]"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "Mixtral 8x7B"}, "model is 'Mixtral 8x7B': choose one of GPT-3 175B"),
        ({"num_devices": 0}, "devices D is 0: give a whole number from 1 to 64"),
        ({"num_microbatches": 1.5}, "micro-batches M is 1.5"),
        ({"micro_batch_size": "2"}, "micro-batch size B is '2'"),
        ({"tensor_parallel": 3}, "tensor parallel is '3': choose one of 1, 2, 4, 8"),
        ({"recompute": "some"}, "recomputation is 'some': choose one of none, selective, full, stage"),
        ({"convention": "20"}, "convention is '20': choose one of '14'"),
        ({"accelerator": "A200"}, "accelerator is 'A200': choose one of V100 32GB"),
    ],
)
def test_bad_arguments_are_named(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        explore_memory("1f1b", **given)


def test_unknown_schedules_and_bytes_of_ones_own_are_refused():
    with pytest.raises(ValueError, match=r"explore_memory needs schedules out of naive, gpipe, .*; not \['2f2b'\]"):
        explore_memory("gpipe", "2f2b")
    with pytest.raises(ValueError, match=r"bytes a parameter is .*choose one of chapter, zero, megatron, fp32"):
        explore_memory(convention=pplab.memory.BytesPerParameter(1, 1, 1))


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1.23456e9, "1.235"), (999.4e9, "999.4"), (9742.3e9, "9,742"), (3.2e16, "32,000,000")]
)
def test_gigabytes_are_read_without_powers_of_ten(size, text):
    assert gigabytes(size) == text


# ── The bars ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("estimate", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("width", [600, 900])
def test_bars_are_as_long_as_their_bytes(estimate, width):
    until = 2 * estimate.total.max()
    found, lanes = lengths(memory_bars(estimate, until=until, width=width))
    assert lanes == {width - 74 - 134}
    held = {(d, part): float(getattr(estimate, part)[d]) for d in range(len(estimate.total)) for part in PARTS}
    assert found == {
        key: pytest.approx(size / until * (width - 74 - 134), abs=0.01) for key, size in held.items() if size
    }


def test_the_accelerators_line_stands_at_its_memory_with_its_name():
    picture = memory_bars(LARGE, "A100 80GB", 160e9)
    assert line_at(picture) == pytest.approx((900 - 74 - 134) / 2, abs=0.01)
    assert ">80 GB of the A100 80GB<" in picture
    assert picture.count("too much") == np.count_nonzero(LARGE.total > 80e9) == 8
    assert picture == memory_bars(LARGE, ACCELERATORS["A100 80GB"], 160e9)
    assert "too much" not in memory_bars(LARGE, "H200") and "too much" not in memory_bars(LARGE)
    assert line_at(memory_bars(LARGE)) is None
    assert line_at(memory_bars(SMALL, "H200")) == pytest.approx(900 - 74 - 134)  # no bar reaches so far


def test_colours_and_patterns_are_those_of_the_figures_and_neighbours_differ():
    picture = memory_bars(ALL_PARTS)
    for part in PARTS:
        drawn = re.findall(rf'<g class="part {part}">(.*?)</g>', picture)
        assert len(drawn) >= 2  # in the legend and in a bar
        assert all(f'fill="{LOOKS[part].fill}"' in box for box in drawn)
        assert all(("url(#m" in box) == bool(LOOKS[part].pattern) for box in drawn)
    assert all(LOOKS[a].pattern != LOOKS[b].pattern for a, b in pairwise(PARTS) if "activations" not in (a, b))
    marks = set(re.findall(r"url\(#(m\w+)\)", picture))
    assert marks == set(re.findall(r'<pattern id="(m\w+)"', picture))
    assert not marks & set(re.findall(r'<pattern id="(m\w+)"', memory_bars(SMALL)))  # two on a page do not mix
    assert ">temporary<" not in memory_bars(SMALL)  # nothing is recomputed, so the legend is without it
    assert ">versions<" not in memory_bars(LARGE)  # nor where there is a flush


@pytest.mark.parametrize("look", ["auto", "light", "dark"])
def test_bars_say_in_words_what_they_show(look):
    root = ET.fromstring(memory_bars(LARGE, "A100 80GB", look=look, title="a < b"))
    assert root.get("role") == "img"
    assert root.get("aria-label") == describe_memory(LARGE, "A100 80GB")
    assert "a < b" in [text.text for text in root.iter(f"{SVG}text")]
    assert ("#b3003c" in memory_bars(LARGE, look=look)) == (look != "dark")
    assert ("#ff7fa5" in memory_bars(LARGE, look=look)) == (look != "light")


def test_a_long_title_has_its_line_alone():
    short, long = (ET.fromstring(memory_bars(LARGE, title=title)).get("viewBox") for title in ("a", "a" * 80))
    assert float(long.split()[3]) == float(short.split()[3]) + 20


def test_many_devices_are_named_where_there_is_room():
    many = estimate_memory(MODELS["GPT 1T"], pplab.one_f_one_b(64, 64), tensor_parallel=8)
    texts = [text.text for text in ET.fromstring(memory_bars(many)).iter(f"{SVG}text")]
    assert 16 <= len([text for text in texts if text.startswith("device ")]) <= 32


def test_bars_refuse_what_cannot_be_drawn():
    with pytest.raises(ValueError, match=r"until is .*: the axis must reach to 8e\+10 bytes"):
        memory_bars(SMALL, "A100 80GB", 79e9)
    for until in (np.nan, np.inf, -1):
        with pytest.raises(ValueError, match="and be finite"):
            memory_bars(LARGE, until=until)
    with pytest.raises(ValueError, match="width is 599: a picture needs 600 pixels"):
        memory_bars(LARGE, width=599)
    with pytest.raises(ValueError, match="look is 'grey': choose 'light' or 'dark'"):
        memory_bars(LARGE, look="grey")
    with pytest.raises(UnknownPresetError, match="no accelerator is called 'A200'"):
        memory_bars(LARGE, "A200")


def test_the_table_says_where_older_versions_count():
    shown = explore_memory("1f1b", "pipedream").numbers.value
    assert cells(shown)[0][2] == "weights, versions, gradients, optimizer (GB)"
    assert cells(explore_memory("1f1b").numbers.value)[0][2] == "weights, gradients, optimizer (GB)"
