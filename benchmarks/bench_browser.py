"""From a key press on a slider to the new picture, in a real JupyterLab in Chromium: medians over many presses.

Needs the tests' set-up (make test) and Chromium. The time ends with the frame after the picture has changed.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))
import conftest

KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
CODE = "import pplab\npplab.widgets.explore({names}, num_devices={d}, num_microbatches={m})"
MEASURE = """
async handle => {
  const shown = document.querySelector('.pplab-pictures');
  const times = [];
  for (let i = 0; i < 30; i++) {
    const start = performance.now();
    await new Promise(done => {
      const watch = new MutationObserver(() => { watch.disconnect(); requestAnimationFrame(() => setTimeout(done)); });
      watch.observe(shown, {childList: true, subtree: true, characterData: true});
      const key = i % 2 ? 'ArrowLeft' : 'ArrowRight';
      handle.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    });
    times.push(performance.now() - start);
    await new Promise(done => setTimeout(done, 50));
  }
  return times;
}
"""


def main() -> None:
    """Print the table."""
    from playwright.sync_api import sync_playwright

    cases = [("'1f1b'", 8, 64), ("'gpipe', '1f1b'", 8, 64), ("'1f1b'", 16, 127)]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        (Path(folder) / "notebooks").mkdir()
        for i, (names, d, m) in enumerate(cases):
            cell = nbformat.v4.new_code_cell(CODE.format(names=names, d=d, m=m))
            book = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": KERNEL})
            nbformat.write(book, Path(folder) / "notebooks" / f"bench{i}.ipynb")
        with conftest.jupyterlab(Path(folder), "JupyterLab Light") as address:
            browser = playwright.chromium.launch(executable_path=conftest.CHROMIUM, args=conftest.QUIET)
            for i, (names, d, m) in enumerate(cases):
                page = conftest.open_and_run(browser, address, f"bench{i}")
                times = page.locator(".noUi-handle").nth(1).evaluate(MEASURE)
                times.sort()
                print(f"{names:18} {d:2} × {m:3}: median {statistics.median(times):4.0f} ms, p90 {times[26]:4.0f} ms")
                page.close()
            browser.close()


if __name__ == "__main__":
    main()
