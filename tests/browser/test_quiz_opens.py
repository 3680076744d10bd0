"""The quiz in a real JupyterLab, in a notebook that nobody trusts and without a kernel: by keyboard and by mouse."""

import sys
from pathlib import Path

import nbformat
import pytest
from conftest import CHROMIUM, PATIENCE, jupyterlab

sys.path.insert(0, str(Path(__file__).parents[1] / "notebooks"))
from quiz import QUIZ, quiz_text

NAME = "05_1f1b"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_options_open_without_kernel_and_mouse(browser, tmp_path):
    (tmp_path / "notebooks").mkdir()
    cell = nbformat.v4.new_markdown_cell(quiz_text(QUIZ[NAME]))
    no_kernel = {"kernelspec": {"name": "none", "display_name": "none", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=no_kernel), tmp_path / "notebooks" / f"{NAME}.ipynb")
    with jupyterlab(tmp_path, "JupyterLab Light") as address:
        page = browser.new_page()
        page.goto(f"{address}/{NAME}.ipynb?reset")
        page.locator(".jp-Dialog-button.jp-mod-reject").click(timeout=PATIENCE)  # "No Kernel"
        page.locator(".jp-Dialog").wait_for(state="detached", timeout=PATIENCE)
        options = page.locator(".jp-RenderedMarkdown details")
        options.first.wait_for(timeout=PATIENCE)
        assert options.count() == sum(len(question["options"]) for question in QUIZ[NAME])
        summaries, feedback = page.locator("summary"), list(QUIZ[NAME][0]["options"].values())
        assert not options.nth(0).get_by_text(feedback[0]).is_visible()
        summaries.nth(0).focus()
        page.keyboard.press("Enter")
        options.nth(0).get_by_text(feedback[0]).wait_for(timeout=PATIENCE)
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        options.nth(1).get_by_text(feedback[1]).wait_for(timeout=PATIENCE)
        summaries.nth(2).click()
        options.nth(2).get_by_text(feedback[2]).wait_for(timeout=PATIENCE)
        page.close()
