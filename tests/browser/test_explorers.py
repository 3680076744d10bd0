"""Every notebook in JupyterLab in Chromium, as a reader opens it: it runs to the end, and its sliders work."""

from __future__ import annotations

import os
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import open_and_run

import pplab
from pplab.numeric import MLP
from pplab.widgets import (
    explore_asynchronous,
    explore_batches,
    explore_cuts,
    explore_layout,
    explore_links,
    explore_memory,
    explore_runs,
)
from pplab.widgets.explorer import leaves_chunks_free

# with explorers of their own
OTHERS = (
    "01_stages",
    "03_micro_batches",
    "06_memory",
    "08_two_gpus",
    "09_imbalance_and_links",
    "10_3d_parallelism",
    "12_asynchronous",
)
PATHS = (Path(__file__).parents[2] / "notebooks").glob("*.ipynb")
NOTEBOOKS = sorted({path.stem for path in PATHS} - set(OTHERS))
RATIOS = ("backward : forward", "hop : forward")
SHOTS = os.environ.get("PPLAB_SCREENSHOTS")  # a folder to look at what the tests saw


def numbers(page: Any) -> list[list[str]]:
    """The rows of the explorer's table of numbers."""
    rows = page.locator("table.pplab-numbers tr").all()[1:]
    return [row.locator("td").all_inner_texts() for row in rows]


def wait_for_time(page: Any, t: pplab.Timeline) -> None:
    """Until the last row of the table shows this timeline's length."""
    last = page.locator("table.pplab-numbers tr").last.locator("td").nth(1)
    text = re.compile(f"^{re.escape(f'{pplab.makespan(t):.5g}')}$")
    last.filter(has_text=text).wait_for(timeout=15_000)


def press(page: Any, slider: int, key: str, times: int) -> None:
    """Press a key on one of the explorer's sliders."""
    handle = page.locator(".noUi-handle").nth(slider)
    handle.focus()
    for _ in range(times):
        handle.press(key)


@pytest.mark.parametrize("lab", ["JupyterLab Light"], indirect=True)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_and_explores(browser: Any, lab: tuple[str, str], name: str) -> None:
    page = open_and_run(browser, lab[0], name)
    assert page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
    assert page.locator(".jp-RenderedHTMLCommon img:not([alt])").count() == 0
    before = numbers(page)
    pictures = page.locator('.pplab-player svg[role="img"]')
    assert pictures.count() == len(before), "one picture a schedule"
    devices, microbatches, chunks, ratio, hop = (
        page.get_by_title(f"{label}, as a number") for label in ("devices D", "micro-batches M", "chunks V", *RATIOS)
    )
    expected = int(microbatches.input_value()) + 30
    height = page.locator(".jp-Notebook").bounding_box()["height"]
    press(page, 1, "ArrowRight", 30)  # a burst: it must settle on the last value
    free = {"num_chunks": int(chunks.input_value())} if leaves_chunks_free(before[-1][0]) else {}
    s = pplab.SCHEDULES[before[-1][0]](int(devices.input_value()), expected, **free)
    costs = pplab.Costs.per_device(s, backward=float(ratio.input_value()), hop=float(hop.input_value()))
    t = pplab.simulate(s, costs)
    wait_for_time(page, t)
    assert int(microbatches.input_value()) == expected
    assert numbers(page)[-1][2] == f"{pplab.bubble_fraction(t):.1%}"
    assert pictures.count() == len(before)
    assert page.locator(".jp-Notebook").bounding_box()["height"] == pytest.approx(height, abs=40)
    take_picture(page, name, lab)
    every_slider_has_a_name(page)
    blocking = page.get_by_text("a hop keeps both devices busy")
    assert not blocking.is_visible()
    open_more(page)
    blocking.wait_for(timeout=15_000)
    page.close()


@pytest.mark.parametrize("lab", ["JupyterLab Light", "JupyterLab Dark"], indirect=True)
def test_number_box_and_theme(browser: Any, lab: tuple[str, str]) -> None:
    """Typing a number moves the picture as the slider does, and the words follow JupyterLab's theme."""
    page = open_and_run(browser, lab[0], "05_1f1b")
    box = page.locator("input[type=number]").nth(0)
    box.fill("8")
    box.press("Enter")
    wait_for_time(page, pplab.simulate(pplab.one_f_one_b(8, 8), pplab.Costs(hop=0.5)))
    colour = page.locator(".pplab-player svg text").first.evaluate("text => getComputedStyle(text).fill")
    light = sum(int(c) for c in re.findall(r"\d+", colour)[:3]) > 380
    assert light == lab[1].endswith("Dark")
    take_picture(page, "theme", lab)
    page.close()


def every_slider_has_a_name(page: Any) -> None:
    """For screen readers: the label before it."""
    page.wait_for_function("[...document.querySelectorAll('.noUi-handle')].every(h => h.getAttribute('aria-label'))")
    assert all(label.strip() for label in page.locator(".noUi-handle").evaluate_all("all => all.map(h => h.ariaLabel)"))


def take_picture(page: Any, name: str, lab: tuple[str, str]) -> None:
    """Store what the page shows around its explorer, where PPLAB_SCREENSHOTS names a folder."""
    if SHOTS:
        page.locator(".pplab-player, .widget-html").first.scroll_into_view_if_needed()
        page.screenshot(path=f"{SHOTS}/{name}-{lab[1].split()[-1].lower()}.png")


def others() -> dict[str, tuple[Any, Any, int | None, str]]:
    """The other notebooks' explorers as they open: the explorer, a control to move, its place, a label under "more"."""
    cuts, batches, memory = explore_cuts(), explore_batches(), explore_memory()
    layout, links = explore_layout(), explore_links("Llama-3 8B", link="Ethernet 100")
    runs = explore_runs("1f1b", num_devices=4, num_microbatches=8, slow_stage=1, percent_slower=20)
    draw = np.random.default_rng(0)  # the problem of notebook 12
    batch = draw.normal(size=(64, 16))
    targets = np.tanh(batch @ draw.normal(size=(16, 16)) / 4) @ draw.normal(size=(16, 4)) / 4
    training = explore_asynchronous(MLP([16] * 8 + [4]), batch, targets, learning_rate=0.4, target=0.05)
    return {
        "12_asynchronous": (training, training.devices, 0, "2bw"),
        "01_stages": (cuts, cuts.cuts[0], 1, "model"),
        "03_micro_batches": (batches, batches.devices, 1, ""),
        "06_memory": (memory, memory.devices, 0, "accelerator"),
        "09_imbalance_and_links": (links, links.micro_batch_size, 0, "micro-batches M"),
        "10_3d_parallelism": (layout, layout.pipeline, None, "nodes of 8 devices"),
        "08_two_gpus": (runs, runs.microbatches, 1, ""),  # its prediction; nobody presses its button
    }


@pytest.mark.parametrize("lab", ["JupyterLab Light"], indirect=True)
@pytest.mark.parametrize("name", OTHERS)
def test_other_explorers(browser: Any, lab: tuple[str, str], name: str) -> None:
    """Three keys on a slider, or another choice, and the page shows what the same explorer gives in Python."""
    page = open_and_run(browser, lab[0], name)
    assert page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
    assert page.locator(".jp-RenderedHTMLCommon img:not([alt])").count() == 0
    explorer, control, place, hidden = others()[name]
    if place is None:  # a dropdown of its own label
        page.get_by_label("pipeline", exact=False).first.select_option("16")
        control.value = "16"
    else:
        press(page, place, "ArrowRight", 3)
        control.value += 3 * control.step
    expected = re.findall(r"<td[^>]*>(.*?)</td>", explorer.numbers.value)
    last = page.locator("table.pplab-numbers td", has_text=plain(expected[-1])).last
    last.wait_for(timeout=15_000)
    page.wait_for_timeout(300)
    shown = page.locator("table.pplab-numbers td").all_inner_texts()
    assert [plain(cell) for cell in expected] == [cell.strip() for cell in shown]
    assert page.locator(':is(.widget-html, .pplab-player) svg[role="img"][aria-label]').count() >= 1
    take_picture(page, name, lab)
    every_slider_has_a_name(page)
    if hidden:
        label = page.locator(".jp-OutputArea-output .widget-inline-hbox, .jp-OutputArea-output .widget-checkbox")
        label = label.get_by_text(hidden, exact=True)
        assert not label.is_visible()
        open_more(page)
        label.wait_for(timeout=15_000)
    page.close()


def open_more(page: Any) -> None:
    """Press the button "more" by keyboard."""
    page.get_by_role("button", name="more", exact=True).focus()
    page.keyboard.press("Space")


def plain(cell: str) -> str:
    """A table cell's text without tags."""
    return unescape(re.sub(r"<[^>]*>", "", cell)).strip()
