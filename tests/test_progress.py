"""Reports of progress: each step once, all at the end, whatever ends it; and a bar that needs no kernel to exist."""

import sys

import ipywidgets
import pytest

import pplab
from pplab.planner import Cluster, plan
from pplab.progress import watched


def test_every_step_is_told_before_it_and_the_end_after_it():
    told = []
    items = []
    for item in watched("abc", lambda done, count: told.append((done, count)), "letters"):
        items.append((item, told[-1]))
    assert items == [("a", (0, 3)), ("b", (1, 3)), ("c", (2, 3))]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_stopping_early_fills_it_too():
    told = []
    next(steps := watched("abc", lambda *where: told.append(where), "letters"))
    steps.close()
    assert told == [(0, 3), (3, 3)]


def test_nothing_is_told_unless_asked():
    assert list(watched("abc", False, "letters")) == list("abc")


def test_a_bar_in_a_notebook(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    for _ in watched(range(40), True, "layouts"):
        pass
    [bar] = shown
    assert isinstance(bar, ipywidgets.IntProgress)
    assert (bar.description, bar.max, bar.value) == ("layouts", 40, 40)


def test_no_bar_without_ipywidgets(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert list(watched("abc", True, "letters")) == list("abc")


@pytest.mark.parametrize("what", ["layouts", "schedules"])
def test_long_searches_tell_how_far_they_are(what):
    told = []

    def tell(done, count):
        told.append((done, count))

    if what == "layouts":
        found = plan("Llama-2 7B", Cluster("A100 80GB", num_nodes=2), 32, efficiency=0.5, progress=tell)
        assert len(told) == len(found.rows) + len(found.rejected) + 1
    else:
        pplab.search(pplab.Costs(forward=[1.0, 1.3, 0.9], hop=0.3), 3, 4, effort=100, progress=tell)
        assert len(told) > 10
    count = told[0][1]
    assert [done for done, _ in told[:-1]] == list(range(len(told) - 1))
    assert told[-1] == (count, count) and {every for _, every in told} == {count}
