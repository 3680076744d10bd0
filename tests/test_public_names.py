"""import pplab: its names, and how little it brings in."""

import subprocess
import sys

import pytest

import pplab
from pplab.schedules import SCHEDULES

HEAVY = ("torch", "matplotlib", "matplotlib.pyplot", "ipywidgets", "anywidget", "IPython", "pandas", "scipy")


def loaded_by(code):
    """Which heavy modules are loaded after some code, in a fresh process."""
    report = f"{code}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    shown = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, timeout=60)
    return set(shown.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import pplab",
        "import pplab; pplab.simulate(pplab.gpipe(2, 2))._repr_html_()",
        "import pplab.__main__",
        "import pplab.chapter, pplab.numeric, pplab.palette, pplab.svg, pplab.idle, pplab.io",
        "import pplab; pplab.chapter; dir(pplab)",
    ],
)
def test_the_core_loads_nothing_heavy(code):
    assert loaded_by(code) == set()


def test_drawing_loads_matplotlib_without_pyplot():
    assert loaded_by("import pplab; pplab.draw_timeline(pplab.simulate(pplab.gpipe(2, 2)))") == {"matplotlib"}


def test_every_public_name_is_there_and_documented():
    for name in pplab.__all__:
        value = getattr(pplab, name)
        assert name in dir(pplab)
        assert isinstance(value, dict) or value.__doc__, name
    assert len(pplab.__all__) == len(set(pplab.__all__)) <= 40


@pytest.mark.parametrize("name", ["chapter", "draw", "numeric", "palette", "svg"])
def test_modules_are_reached_through_the_package(name):
    assert getattr(pplab, name).__name__ == f"pplab.{name}"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'pplab' has no attribute 'gpip'"):
        _ = pplab.gpip


def test_the_names_that_readers_call():
    """As the design lists them."""
    s = pplab.SCHEDULES["1f1b"](num_devices=4, num_microbatches=8)
    assert s == pplab.one_f_one_b(4, 8)
    assert s.rows[0][0] == pplab.Op(0, "F", 0)
    c = pplab.Costs(forward=1.0, backward_input=1.0, backward_weight=1.0, hop=0.0)
    t = pplab.simulate(s, c)
    assert (pplab.makespan(t), pplab.lower_bound(s, c)) == (33, 33)
    assert pplab.bubble_fraction(t) + pplab.utilization(t) == 1
    assert pplab.peak_in_flight(t).tolist() == [4, 3, 2, 1]
    assert pplab.critical_path(t)[0].start == 0
    assert pplab.idle_gaps(t)
    assert pplab.simulate(s, pplab.Costs.per_device(s, forward=1.0, backward=2.0)) == t
    assert pplab.SCHEDULES is SCHEDULES
