"""A real JupyterLab and a real Chromium: started once, on copies of the notebooks, and ended whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 180_000  # milliseconds
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def _write_settings(folder: Path, theme: str) -> None:
    """JupyterLab's settings: the theme, all cells in the page at once, no questions about news and updates."""
    apputils = folder / "@jupyterlab" / "apputils-extension"
    apputils.mkdir(parents=True)
    (apputils / "themes.jupyterlab-settings").write_text(json.dumps({"theme": theme}))
    tracker = folder / "@jupyterlab" / "notebook-extension"
    tracker.mkdir(parents=True)
    (tracker / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (apputils / "notification.jupyterlab-settings").write_text(json.dumps(quiet))


@contextmanager
def jupyterlab(folder: Path, theme: str) -> Iterator[str]:
    """Run JupyterLab over the notebooks in ``folder``; gives the address at which it opens them."""
    _write_settings(folder / "settings", theme)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", "--ServerApp.port_retries=0"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}", "--allow-root"]
    folders = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    folders |= {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "spaces"),
    }
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | folders)
        try:
            _wait_for(f"http://127.0.0.1:{port}/api", server, folder / "log")
            yield f"http://127.0.0.1:{port}/lab/tree/notebooks"
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(120):
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(address, timeout=1)
            return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(log.read_text())


def open_and_run(browser: Any, address: str, name: str) -> Any:
    """The notebook's page after "Run All Cells", when every cell has run."""
    page = browser.new_page(viewport={"width": 1300, "height": 1500})
    page.goto(f"{address}/{name}.ipynb?reset")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=PATIENCE)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.locator("table.pplab-numbers").wait_for(timeout=PATIENCE, state="attached")  # stored outputs have none
    running = "() => ![...document.querySelectorAll('.jp-InputPrompt')].some(prompt => prompt.innerText.includes('*'))"
    page.wait_for_function(running, timeout=PATIENCE)
    return page


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A running JupyterLab over copies of the notebooks: its address and its theme, which the test names."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    with jupyterlab(folder, request.param) as address:
        yield address, request.param


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium
        chromium.close()
