"""The player: the data that it plays, the page without a kernel, and what explorers do with it."""

import base64
import gzip
import json
import re
import xml.etree.ElementTree as ET
from html import unescape

import numpy as np
import pytest
from hypothesis import given
from reference import examples, priced

import pplab
from pplab import Costs, Schedule, Timeline, idle_gaps, in_flight, makespan, simulate, svg
from pplab.idle import REASONS
from pplab.palette import LIGHT
from pplab.widgets import Player, explore, explore_cuts, explore_links, play
from pplab.widgets.player import columns, shown_data

T = simulate(pplab.one_f_one_b(4, 8))
PAIRED = Schedule(["0F0 0F1 0B0 0B1"], name="paired", pairs=[("0F1", "0B0")])


def through_json(t):
    """The columns as the browser reads them."""
    (item,) = shown_data([t])["items"]
    return json.loads(item["columns"])


def unpacked(html):
    """The data of a page."""
    (script,) = re.findall(r'<script type="text/plain">([^<]*)</script>', html)
    return json.loads(gzip.decompress(base64.b64decode(script)))


@given(priced())
@examples(40)
def test_what_a_device_holds_and_waits_for_is_what_the_timeline_says(case):
    """At the middle of every stretch in which nothing changes, by the player's rule: from a start to the end after."""
    d, prices = case
    t = simulate(d.build(), Costs(**prices._asdict()))
    data = through_json(t)
    rows = [row.split() for row in data["timeline"]["rows"]]
    assert [text for row in rows for text in row] == [str(span.op) for span in t]
    assert [len(row) for row in rows] == [b - a for a, b in t.schedule.row_slices]
    giver, moments = data["given_back_by"], np.unique([t.start, t.end])
    for device in range(t.schedule.num_devices):
        changes, holds = in_flight(t, device)
        own = np.flatnonzero(t.device == device)
        for time in ((moments[1:] + moments[:-1]) / 2).tolist():
            held = [i for i in own if giver[i] >= 0 and t.start[i] <= time < t.end[giver[i]]]
            before = np.flatnonzero(changes <= time)
            assert len(held) == (holds[before[-1]] if len(before) else 0)
            assert all(t.kind[i] == "F" for i in held)


@given(priced())
@examples(40)
def test_gaps_and_their_parts_are_those_of_idle_gaps(case):
    d, prices = case
    t = simulate(d.build(), Costs(**prices._asdict()))
    gaps = through_json(t)["gaps"]
    parts = [{} for _ in gaps["device"]]
    for gap, reason, time in gaps["parts"]:
        parts[gap][REASONS[reason]] = time
    awaited = [None if i < 0 else t[i].op for i in gaps["waiting_for"]]
    found = list(zip(gaps["device"], gaps["start"], gaps["end"], awaited, parts, strict=True))
    assert found == [(g.device, g.start, g.end, g.waiting_for, g.parts) for g in idle_gaps(t)]


@pytest.mark.parametrize(
    ("rows", "giver"),
    [
        (["0F0 0F1 0B0 0B1"], [2, 3, -1, -1]),
        (["0F0 0I0 0F1 0I1 0W0 0W1"], [4, -1, 5, -1, -1, -1]),  # W gives it back, not I
        (["0F0 0F1", "1F0 1F1"], [0, 1, 2, 3]),  # nothing goes backward
        (["0F0 1F0 1B0 0B0"], [3, 2, -1, -1]),
    ],
)
def test_what_a_forward_took_is_given_back_by(rows, giver):
    assert columns(simulate(Schedule(rows)))["given_back_by"] == giver


def test_the_columns_are_what_write_json_writes(tmp_path):
    measured = Timeline(T.schedule, T.start / 3 + 7, T.end / 3 + 7, measured=True)
    blocking = simulate(pplab.gpipe(3, 4), Costs(hop=0.3, blocking=True))
    for t in (T, measured, blocking, simulate(PAIRED), simulate(pplab.SCHEDULES["dualpipe"](4, 8))):
        (tmp_path / "t.json").write_text(json.dumps(through_json(t)["timeline"]))
        assert pplab.read_json(tmp_path / "t.json") == t


@pytest.mark.parametrize("costs", [Costs(), Costs(hop=0.5)], ids=["without messages", "with"])
def test_the_frame_says_where_the_picture_has_its_boxes(costs):
    t = simulate(pplab.one_f_one_b(3, 5), costs)
    frame = svg.frame(t, width=700, until=60)
    root = ET.fromstring(svg.timeline(t, width=700, until=60))
    assert root.get("viewBox") == f"0 0 {frame.width} {frame.height:.0f}"
    names = {f"{g[0].text.split(':')[0]}": g[1] for g in root.iter("{http://www.w3.org/2000/svg}g") if len(g) > 1}
    for span in t:
        box = names[str(span.op)]
        assert float(box.get("x")) == pytest.approx(frame.left + span.start * frame.scale, abs=0.01)
        top = frame.top + span.device * frame.row + (frame.row - frame.tall) / 2
        assert float(box.get("y")) == pytest.approx(top, abs=0.01)
        assert float(box.get("height")) == pytest.approx(frame.tall, abs=0.01)


def test_without_tooltips_a_path_a_kind_and_the_same_words():
    plain, full = (ET.fromstring(svg.timeline(T, tooltips=tooltips)) for tooltips in (False, True))
    space = "{http://www.w3.org/2000/svg}"
    assert not list(plain.iter(f"{space}title"))
    paths = {path.get("class"): path.get("d") for path in plain.iter(f"{space}path")}
    assert [paths[kind].count("M") for kind in "FB"] == [32, 32]
    assert [e.text for e in plain.iter(f"{space}text")] == [e.text for e in full.iter(f"{space}text")]
    assert plain.get("aria-label") == full.get("aria-label")


# ── In a notebook ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_timelines_of_ones_own_share_an_axis():
    long = simulate(pplab.gpipe(4, 16))
    player = play(T, "no such thing <here>", long)
    assert isinstance(player, Player)
    first, words, last = player.shown["items"]
    assert player.shown["until"] == makespan(long)
    assert first["html"].startswith(svg.timeline(T, until=makespan(long), tooltips=False))
    assert (first["name"], last["name"], first["num_devices"]) == ("1f1b", "gpipe", 4)
    assert set(words) == {"html"} and "no such thing &lt;here&gt;" in words["html"]
    assert player.shown["words"]["kinds"] == {kind: look.word for kind, look in LIGHT.kinds.items()}
    assert repr(player) == "[player of schedules: run this cell to play them]"
    json.dumps(player.shown)


def test_titles_name_the_timelines():
    player = play(T, T, titles=("before", "after & later"))
    assert [item["name"] for item in player.shown["items"]] == ["before", "after & later"]
    assert ">after &amp; later<" in player.shown["items"][1]["html"]
    assert unpacked(player.to_html())["names"] == ["before", "after & later"]
    with pytest.raises(ValueError, match="1 titles for 2 timelines: give one each, or none"):
        play(T, T, titles=["before"])


def test_what_cannot_be_played_is_named():
    with pytest.raises(TypeError, match="is not a timeline: simulate a schedule first"):
        play(T.schedule)
    with pytest.raises(TypeError, match="no control is called devices: there are num_devices, num_microbatches"):
        explore("1f1b").set(devices=3)


def test_a_timeline_without_length_is_shown_as_such():
    t = simulate(Schedule(["0F0 0B0"]), Costs(forward=0, backward=0))
    assert "every op takes no time" in play(t).shown["items"][0]["html"]


def test_reset_puts_every_control_back():
    e = explore("gpipe", "1f1b", num_devices=3, hop=0.25, recompute=True)
    opened = e.timelines
    e.set(num_devices=5, num_microbatches=20, hop=1.0, blocking=True, recompute=False)
    assert (e.devices.value, e.microbatches.value, e.timelines[0].schedule) == (5, 20, pplab.gpipe(5, 20))
    e.player._handle_custom_msg("reset", [])  # as the button sends it
    assert e.timelines == opened
    for other in (explore_links(), explore_cuts()):
        opened = other.timeline
        controls = [other.devices, other.link] if hasattr(other, "link") else [other.stages, other.model]
        controls[0].value += 1
        controls[1].value = next(o for o in controls[1].options if o != controls[1].value)
        assert other.timeline != opened
        other.player._handle_custom_msg("reset", [])
        assert other.timeline == opened


def test_moving_several_controls_shows_once():
    e, seen = explore("1f1b"), []
    e.player.observe(seen.append, names="shown")
    e.set(num_devices=6, num_microbatches=9, ratio=1.5)
    assert len(seen) == 1
    assert e.timelines == explore("1f1b", num_devices=6, num_microbatches=9, ratio=1.5).timelines


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"num_devices": 7, "num_microbatches": 21, "hop": 0.15},
        {"ratio": 1.5, "weight_share": 0.25, "num_chunks": 3},
        {"blocking": True, "recompute": True, "hop": 0.5},
    ],
)
def test_the_code_repeats_what_is_shown(changed):
    for names, options in ((("1f1b", "interleaved-1f1b"), {"recompute": False}), (("zb-h1",), {"over": "span"})):
        e = explore(*names, num_devices=3, num_microbatches=6, **options)
        e.set(**changed)
        again = eval(e.player.shown["code"], {"pplab": pplab})
        assert again.timelines == e.timelines
        assert again.numbers.value == e.numbers.value
        assert again.code == e.code
        assert len(again.children) == len(e.children)
    assert explore("gpipe").code == 'pplab.widgets.explore("gpipe", num_devices=4, num_microbatches=8)'


# ── In a page without a kernel ────────────────────────────────────────────────────────────────────────────────────


def test_a_page_holds_at_each_size_what_the_explorer_shows():
    e = explore("1f1b", "interleaved-1f1b", num_devices=3, num_microbatches=6, hop=0.5)
    before = e.timelines
    page = unpacked(e.to_html(num_devices=(2, 4), num_microbatches=(4, 8), num_chunks=(3,)))
    assert e.timelines == before
    assert [(s["label"], s["values"], s["first"]) for s in page["sizes"]] == [
        ("devices D", [2, 3, 4], 3),
        ("micro-batches M", [4, 6, 8], 6),
        ("chunks V", [2, 3], 2),
    ]
    assert len(page["points"]) == 3 * 3 * 2
    for key, point in page["points"].items():
        d, m, v = map(int, key.split(","))
        there = explore("1f1b", "interleaved-1f1b", num_devices=d, num_microbatches=m, num_chunks=v, hop=0.5)
        shown = there.player.shown
        for place, item in zip(point["items"], shown["items"], strict=True):
            stored, key = page["items"][place], re.search(r'class="(p[0-9a-f]{8})"', item["html"])
            assert stored["html"].replace("PICTURE", key[1][1:]) == item["html"]
            assert stored["frame"] == item["frame"]
            told, wanted = (json.loads(x["columns"]) for x in (stored, item))
            assert told["timeline"]["rows"] == wanted["timeline"]["rows"]
            assert told["timeline"]["end"] == pytest.approx(wanted["timeline"]["end"], rel=1e-8)
            assert told["given_back_by"] == wanted["given_back_by"]
        assert (point["until"], point["numbers"], point["code"]) == (shown["until"], there.numbers.value, shown["code"])


def test_a_page_needs_nothing_from_outside_and_is_small():
    e = explore("gpipe", "1f1b", num_devices=4, num_microbatches=8)
    html = e.to_html()
    assert len(html) < 150_000
    assert set(re.findall(r"https?://[^\s\"'<)]+", html)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<link|<img|src=|@import|url\(|\bfetch\(|\bimport\b", html.replace("important", ""))
    assert "num_chunks" not in [size["key"] for size in unpacked(html)["sizes"]]


def test_a_page_of_timelines_of_ones_own():
    name = "</script><b>"
    odd = simulate(Schedule(["0F0 0B0"], name=name))
    html = play(T, odd).to_html()
    assert name not in html
    page = unpacked(html)
    assert (page["names"], page["sizes"], list(page["points"])) == (["1f1b", name], [], [""])
    shown = [unescape(item["html"]) for item in page["items"]]
    assert f"timeline of {name}:" in shown[1]


def test_the_explorer_of_links_has_a_page_too():
    e = explore_links("Llama-3 8B", link="Ethernet 100")
    before = e.timeline
    html = e.to_html(micro_batch_size=(2,), num_devices=(2, 4), num_microbatches=(8,))
    page = unpacked(html)
    assert e.timeline == before
    assert [size["values"] for size in page["sizes"]] == [[1, 2], [2, 4, 8], [8, 16]]
    e.micro_batch_size.value, e.devices.value = 2, 4
    assert page["points"]["2,4,16"]["numbers"] == e.numbers.value
    assert len(e.to_html()) < 150_000
