"""The environment check: what is here, what is missing, and the remedy, without importing any of it."""

import subprocess
import sys

import pytest

import pplab
from pplab import environment

FINE = {
    "numpy": "2.3.5",
    "matplotlib": "3.10.8",
    "ipywidgets": "8.1.8",
    "anywidget": "0.9.21",
    "jupyterlab": "4.5.0",
    "torch": "2.13.0+cpu",
}


@pytest.fixture
def check(monkeypatch, capsys):
    """What is printed where these versions are installed."""

    def printed(**changed):
        monkeypatch.setattr(environment, "_version", lambda package: (FINE | changed).get(package))
        pplab.check_environment()
        return capsys.readouterr().out

    return printed


def test_all_is_here(check):
    out = check()
    for package, version in FINE.items():
        assert f"{package:12} {version:12} ok\n" in out
    assert out.endswith("\nAll is here: go on.\n")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"torch": None}, "torch        missing      needed for real runs only, from notebook 08 on"),
        ({"numpy": "1.26.4"}, "numpy        1.26.4       too old: 2.0 or newer is needed for everything"),
        (
            {"matplotlib": "3.8.0rc1"},
            "matplotlib   3.8.0rc1     too old: 3.9 or newer is needed for the stored pictures",
        ),
    ],
)
def test_what_is_missing_or_too_old_comes_with_a_remedy(check, changed, says):
    (package,) = changed
    out = check(**changed)
    assert says in out
    assert f"{package}: run in a terminal, then restart the kernel: {sys.executable} -m pip install '{package}>=" in out
    assert "All is here" not in out


def test_this_environment_can_be_checked_without_importing_it():
    code = (
        "import sys, pplab; pplab.check_environment(); sys.exit('torch' in sys.modules or 'jupyterlab' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)
