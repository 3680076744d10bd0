"""The player in Chromium: in a page without kernel and network, and in JupyterLab."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import open_and_run

import pplab
from pplab import Costs, Timeline, idle_gaps, makespan, simulate
from pplab.palette import THEMES
from pplab.widgets import explore, play

SHOTS = os.environ.get("PPLAB_SCREENSHOTS")  # a folder to look at what the tests saw
GPIPE, ONE_F_ONE_B = (simulate(s(4, 8), Costs(hop=0.5)) for s in (pplab.gpipe, pplab.one_f_one_b))
SPLIT = simulate(pplab.SCHEDULES["zb-h1"](4, 8))
CHUNKS = simulate(pplab.interleaved_1f1b(2, 4, 2))
PAIRS = simulate(pplab.SCHEDULES["dualpipe"](4, 8))


def open_page(browser: Any, folder: Path, html: str, fragment: str = "", **options: Any) -> Any:
    """A page with that piece of HTML, opened from the disk by a browser that is offline; errors fail the test."""
    path = folder / "page.html"
    path.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>player</title><body>{html}')
    context = browser.new_context(offline=True, viewport={"width": 1000, "height": 900}, **options)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("request", lambda request: request.url.startswith("file://") or pytest.fail(request.url))
    page.goto(f"{path.as_uri()}{fragment}")
    page.locator(".pplab-cursor").first.wait_for(state="attached")
    return page


def clock(page: Any) -> str:
    """The time on the clock, as text."""
    return page.locator(".pplab-clock").inner_text().split()[0]


def told(page: Any) -> list[list[str]]:
    """The table of what each device does, holds and waits for, a row a device."""
    rows = page.locator(".pplab-now tr").all()[2:]
    return [row.locator("td").all_inner_texts() for row in rows]


def expected(t: Timeline, time: float) -> list[list[str]]:
    """The same, from the timeline: what runs, what was taken and not yet given back, the gap's op and largest part."""
    rows, gaps = [], idle_gaps(t)
    now = time + 1e-9
    for device in range(t.schedule.num_devices):
        own = [span for span in t if span.device == device]
        does = " + ".join(str(span.op) for span in own if span.start <= now < span.end)
        ends = {(span.stage, span.microbatch): span.end for span in own if span.kind in "BW"}
        taken = [span for span in own if span.kind == "F" and span.start <= now < ends[span.stage, span.microbatch]]
        stages = sorted({span.stage for span in taken})
        of = {stage: runs(sorted(span.microbatch for span in taken if span.stage == stage)) for stage in stages}
        several = len({span.stage for span in own}) > 1
        which = ", ".join(re.sub(r"(?:^|(?<= ))", f"{stage}F", text) if several else text for stage, text in of.items())
        gap = next((g for g in gaps if g.device == device and g.start <= now < g.end), None)
        why = ""
        if gap:
            parts = sorted(gap.parts.items(), key=lambda part: -part[1])
            reasons = " + ".join(f"{reason} {x:.4g}" for reason, x in parts)
            why = f"{gap.waiting_for or '–'}: {reasons}"
        rows.append([does or ("idle" if gap else "done"), f"{len(taken)}: {which}" if taken else "0", why])
    return rows


def runs(numbers: list[int]) -> str:
    """0, 1, 2, 5 → 0–2, 5."""
    groups = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    texts = [[number for _, number in group] for _, group in groups]
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}–{g[-1]}" for g in texts)


def point_at(page: Any, picture: int, time: float, row: float) -> None:
    """Move the mouse to a time and a row (device + 0.5 is its middle)."""
    frame = page.evaluate(
        "i => { const box = document.querySelectorAll('.pplab-picture svg')[i].getBoundingClientRect();"
        " return [box.left, box.top, box.width]; }",
        picture,
    )
    left, top, width = frame
    zoom = width / 900
    until = float(page.locator(".pplab-clock").inner_text().split()[-1])
    page.mouse.move(left + (74 + time * (900 - 86) / until) * zoom, top + (24 + row * 28) * zoom)


@pytest.mark.parametrize("t", [GPIPE, SPLIT, CHUNKS, PAIRS], ids=lambda t: t.schedule.name)
def test_steps_tell_what_the_timeline_says(browser: Any, tmp_path: Path, t: Timeline) -> None:
    """By the arrow key through every moment at which something changes, and back to the start."""
    page = open_page(browser, tmp_path, play(t).to_html())
    page.locator(".pplab-picture").focus()
    moments = sorted({round(x, 9) for x in [*t.start.tolist(), *t.end.tolist()]})
    for time in moments[1:]:
        page.keyboard.press("ArrowRight")
        assert float(clock(page)) == pytest.approx(time, rel=1e-3)
        assert told(page) == expected(t, time)
    assert {row[0] for row in told(page)} == {"done"}
    page.keyboard.press("ArrowLeft")
    assert told(page) == expected(t, moments[-2])
    page.keyboard.press("Home")
    assert clock(page) == "0" and told(page) == expected(t, 0)
    page.keyboard.press("End")
    assert float(clock(page)) == pytest.approx(makespan(t), rel=1e-3)
    page.context.close()


def test_play_moves_the_clock_and_space_stops_it(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, play(GPIPE, ONE_F_ONE_B).to_html())
    assert page.locator(".pplab-now").get_attribute("open") is None
    lines = page.locator(".pplab-cursor")
    before = lines.first.get_attribute("d")
    page.get_by_role("button", name="play").click()
    page.wait_for_function("() => parseFloat(document.querySelector('.pplab-clock').textContent) > 2")
    page.locator(".pplab-picture").last.focus()
    page.keyboard.press("Space")
    stopped = clock(page)
    page.wait_for_timeout(200)
    assert clock(page) == stopped
    assert lines.first.get_attribute("d") != before
    ends = [re.match(r"M(\S+) ", line.get_attribute("d"))[1] for line in lines.all()]
    assert ends[0] == ends[1], "one axis, one clock"
    together = [a + b for a, b in zip(*(expected(t, float(stopped)) for t in (GPIPE, ONE_F_ONE_B)), strict=True)]
    assert told(page) == together
    page.get_by_role("button", name="reset").click()
    assert clock(page) == "0"
    page.context.close()


def test_with_less_motion_it_plays_from_step_to_step(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, play(ONE_F_ONE_B).to_html(), reduced_motion="reduce")
    page.get_by_role("button", name="play").click()
    page.wait_for_function("() => document.querySelector('.pplab-clock').textContent[0] != '0'")
    assert float(clock(page)) in {*ONE_F_ONE_B.start.tolist(), *ONE_F_ONE_B.end.tolist()}
    page.context.close()


def test_the_mouse_reads_ops_and_gaps(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, play(GPIPE, ONE_F_ONE_B).to_html())
    tip = page.locator(".pplab-tip")
    assert not tip.is_visible()
    for i, t in enumerate((GPIPE, ONE_F_ONE_B)):
        for op in ("0F0", "2F5", "3B7"):
            span = next(span for span in t if str(span.op) == op)
            point_at(page, i, (span.start + span.end) / 2, span.device + 0.5)
            word = {"F": "forward", "B": "backward"}[span.kind]
            says = f"{op}: {word} of micro-batch {span.microbatch} on stage {span.stage}"
            assert tip.inner_text() == f"{says}, {span.start:g} to {span.end:g}"
        gap = max(idle_gaps(t), key=lambda gap: gap.end - gap.start)
        point_at(page, i, (gap.start + gap.end) / 2, gap.device + 0.5)
        start = f"device {gap.device} idle, {gap.start:g} to {gap.end:g}, waits for {gap.waiting_for}: {gap.reason} "
        assert tip.inner_text().startswith(start)
    page.mouse.move(5, 5)
    assert not tip.is_visible()
    page.context.close()


def test_of_a_pair_the_mouse_reads_the_half_it_is_on(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, play(PAIRS).to_html())
    first, second = next(pair for pair in PAIRS.schedule.pairs)
    span = next(span for span in PAIRS if span.op == first)
    for op, height in ((first, 0.3), (second, 0.7)):
        point_at(page, 0, (span.start + span.end) / 2, span.device + height)
        assert page.locator(".pplab-tip").inner_text().startswith(f"{op}: ")
    page.context.close()


def test_the_keyboard_reads_the_same(browser: Any, tmp_path: Path) -> None:
    """Down to device 2, on to time 2: its first forward, told to screen readers too."""
    page = open_page(browser, tmp_path, play(simulate(pplab.one_f_one_b(4, 8))).to_html())
    page.locator(".pplab-picture").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.locator(".pplab-tip").inner_text() == "device 2 idle, 0 to 2, waits for 1F0: ramp 2"
    page.keyboard.press("ArrowRight")
    says = "2F0: forward of micro-batch 0 on stage 2, 2 to 3"
    assert page.locator(".pplab-tip").inner_text() == page.get_by_role("status").first.inner_text() == says
    page.context.close()


def test_every_control_is_reached_by_tab_in_order_and_has_a_name(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, explore("gpipe", "1f1b").to_html())
    wanted = ["devices D", "micro-batches M", "gpipe", "1f1b", "play", "step back", "step forward", "time", "copy"]
    snapshot = "() => { const e = document.activeElement; return e.ariaLabel || (e.labels && e.labels.length "
    snapshot += "? e.labels[0].textContent : e.textContent); }"
    for name in [*wanted, "reset"]:
        page.keyboard.press("Tab")
        assert name in page.evaluate(snapshot)
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", f"{name} shows no focus"
    page.context.close()


def test_sizes_without_a_kernel(browser: Any, tmp_path: Path) -> None:
    e = explore("gpipe", "interleaved-1f1b", num_devices=4, num_microbatches=8)
    page = open_page(browser, tmp_path, e.to_html(num_chunks=(2, 4)))
    height = page.evaluate("document.body.scrollHeight")
    page.get_by_label("micro-batches M").press("ArrowRight")
    page.get_by_label("chunks V").press("ArrowRight")
    e.set(num_microbatches=16, num_chunks=4)
    pictures = page.locator(".pplab-picture")
    assert pictures.count() == 2
    for i, t in enumerate(e.timelines):
        assert pictures.nth(i).locator("svg").get_attribute("aria-label") == pplab.svg.describe(t)
    numbers = re.findall(r"<td>(.*?)</td>", e.numbers.value)
    assert page.locator("table.pplab-numbers td").all_inner_texts() == numbers
    assert page.evaluate("document.body.scrollHeight") == pytest.approx(height, abs=40)
    page.get_by_label("devices D").press("Home")
    e.set(num_devices=2)
    assert pictures.last.locator("svg").get_attribute("aria-label") == pplab.svg.describe(e.timelines[1])
    page.get_by_role("checkbox", name="gpipe").uncheck()
    assert [box.is_visible() for box in pictures.all()] == [False, True]
    page.get_by_role("button", name="reset").click()
    assert [box.is_visible() for box in pictures.all()] == [True, True]
    e.reset()
    assert pictures.first.locator("svg").get_attribute("aria-label") == pplab.svg.describe(e.timelines[0])
    page.context.close()


def copied(page: Any, what: str) -> str:
    """What the menu's button puts on the clipboard."""
    page.locator(".pplab-copy summary").click()
    page.get_by_role("button", name=what, exact=True).click()
    page.get_by_text(f"copied {what}").first.wait_for()
    return page.evaluate("navigator.clipboard.readText()")


def test_escape_and_a_click_elsewhere_close_the_menu(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, play(ONE_F_ONE_B).to_html())
    summary, button = page.locator(".pplab-copy summary"), page.get_by_role("button", name="1f1b as CSV", exact=True)
    summary.click()
    button.focus()
    page.keyboard.press("Escape")
    assert not button.is_visible() and summary.evaluate("element => element === document.activeElement")
    summary.click()
    assert button.is_visible()
    page.locator(".pplab-clock").click()
    assert not button.is_visible()
    page.context.close()


def test_copies_are_read_back(browser: Any, tmp_path: Path) -> None:
    paired = PAIRS
    page = open_page(
        browser, tmp_path, play(ONE_F_ONE_B, paired).to_html(), permissions=["clipboard-read", "clipboard-write"]
    )
    page.get_by_role("button", name="step forward").click()
    for t in (ONE_F_ONE_B, paired):
        name = t.schedule.name
        (tmp_path / f"{name}.csv").write_text(copied(page, f"{name} as CSV"))
        assert pplab.read_torch_csv(tmp_path / f"{name}.csv") == t.schedule
        pplab.write_torch_csv(t.schedule, tmp_path / "wanted.csv")
        assert (tmp_path / f"{name}.csv").read_text() == (tmp_path / "wanted.csv").read_text()
        (tmp_path / "t.json").write_text(copied(page, f"{name} as JSON"))
        assert pplab.read_json(tmp_path / "t.json") == t
    picture = copied(page, "1f1b as SVG")
    assert picture.startswith("<svg") and "pplab-cursor" not in picture
    assert pplab.svg.describe(ONE_F_ONE_B) in picture
    page.context.close()


def test_copies_where_the_page_is_not_served_securely(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, play(ONE_F_ONE_B).to_html())
    page.evaluate(
        "() => { Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        " document.execCommand = () => { window.taken = document.getSelection().toString(); return true; }; }"
    )
    page.locator(".pplab-copy summary").click()
    page.get_by_role("button", name="1f1b as JSON", exact=True).click()
    page.get_by_text("copied 1f1b as JSON").first.wait_for()
    (tmp_path / "t.json").write_text(page.evaluate("taken"))
    assert pplab.read_json(tmp_path / "t.json") == ONE_F_ONE_B
    page.context.close()


def test_the_link_opens_what_was_shown(browser: Any, tmp_path: Path) -> None:
    html = explore("gpipe", "1f1b").to_html()
    page = open_page(browser, tmp_path, html, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("devices D").press("End")
    page.get_by_role("checkbox", name="gpipe").uncheck()
    for _ in range(5):
        page.get_by_role("button", name="step forward").click()
    time, link = clock(page), copied(page, "link")
    page.context.close()
    again = open_page(browser, tmp_path, html, "#" + link.split("#")[1])
    assert (clock(again), again.get_by_role("checkbox", name="gpipe").is_checked()) == (time, False)
    label = again.locator(".pplab-picture svg").last.get_attribute("aria-label")
    assert label == pplab.svg.describe(simulate(pplab.one_f_one_b(8, 8), Costs.per_device(pplab.one_f_one_b(8, 8))))
    again.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_themes(browser: Any, tmp_path: Path, theme: str) -> None:
    """Words of at least 4.5 : 1 on the page's colour, and the page's own theme goes before the system's."""
    page = open_page(browser, tmp_path, explore("gpipe", "1f1b").to_html(), color_scheme=theme)
    page.add_style_tag(content=f"body {{ background: {THEMES[theme].page} }}")
    page.get_by_role("button", name="step forward").click()
    page.locator(".pplab-copy summary").click()
    for selector in (".pplab-bar button", ".pplab-copy button", ".pplab-now td", ".pplab-sizes label", ".pplab-clock"):
        colour = page.locator(selector).first.evaluate("e => getComputedStyle(e).color")
        assert colour == rgb(THEMES[theme].words)
        assert contrast(THEMES[theme].words, THEMES[theme].page) >= 4.5
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/player-{theme}.png")
    other = "dark" if theme == "light" else "light"
    page.evaluate(f"document.documentElement.dataset.theme = '{other}'")
    assert page.locator(".pplab-clock").evaluate("e => getComputedStyle(e).color") == rgb(THEMES[other].words)
    page.context.close()


def rgb(colour: str) -> str:
    """#rrggbb as the browser writes it."""
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def contrast(a: str, b: str) -> float:
    """WCAG 2's ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted([luminance(a), luminance(b)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("lab", ["JupyterLab Dark"], indirect=True)
def test_in_jupyterlab(browser: Any, lab: tuple[str, str]) -> None:
    """Keys are the player's while it has the focus; sliders keep the clock; reset puts the sliders back."""
    page = open_and_run(browser, lab[0], "05_1f1b")
    page.locator(".pplab-cursor").first.wait_for(state="attached")
    cells = page.locator(".jp-Cell").count()
    page.locator(".pplab-picture").first.click(position={"x": 76, "y": 38})  # device 0 at time 0
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "d", "d", "a", "b"):  # in command mode, d d deletes a cell
        page.keyboard.press(key)
    assert page.locator(".pplab-picture").first.evaluate("box => box === document.activeElement")
    assert page.locator(".jp-Cell").count() == cells
    assert clock(page) == "1.5"
    assert told(page)[0] == ["0F1", "2: 0–1", ""] * 2
    page.keyboard.press("Space")
    page.wait_for_function("() => parseFloat(document.querySelector('.pplab-clock').textContent) > 4")
    page.keyboard.press("Space")
    stopped = clock(page)
    handle = page.locator(".noUi-handle").nth(1)
    handle.focus()
    handle.press("ArrowRight")
    t = simulate(pplab.one_f_one_b(4, 9), Costs(hop=0.5))
    page.locator(f'.pplab-picture svg[aria-label="{pplab.svg.describe(t)}"]').wait_for(timeout=15_000)
    assert clock(page) == stopped
    page.get_by_role("button", name="reset").click()
    label = pplab.svg.describe(ONE_F_ONE_B)
    page.locator(f'.pplab-picture svg[aria-label="{label}"]').wait_for(timeout=15_000)
    assert page.get_by_title("micro-batches M, as a number").input_value() == "8"
    assert clock(page) == "0"
    page.close()
