"""Costs: what they mean, and that what makes no sense is refused by name."""

import re

import numpy as np
import pytest

import pplab
from pplab import Costs, Schedule, makespan, simulate

S = Schedule(["0F0 0F1 0I0 0W0 0B1", "1F0 1F1 1I0 1W0 1B1"])


def taken(costs, schedule=S):
    """What each kind takes on the first and on the last stage."""
    work = costs.of_ops(schedule)
    return {k: [float(work[schedule.is_kind(k)][i]) for i in (0, -1)] for k in "FIWB"}


def test_a_whole_backward_is_both_halves_unless_said():
    assert taken(Costs()) == {"F": [1, 1], "I": [1, 1], "W": [1, 1], "B": [2, 2]}
    assert taken(Costs(backward_input=0.5, backward_weight=3))["B"] == [3.5, 3.5]
    assert taken(Costs(backward_input=0.5, backward_weight=3, backward=2)) == {
        "F": [1, 1], "I": [0.5, 0.5], "W": [3, 3], "B": [2, 2],
    }  # fmt: skip


def test_a_whole_backward_alone_is_halved():
    assert taken(Costs(backward=3)) == {"F": [1, 1], "I": [1.5, 1.5], "W": [1.5, 1.5], "B": [3, 3]}
    assert taken(Costs(backward=[2, 4])) == {"F": [1, 1], "I": [1, 2], "W": [1, 2], "B": [2, 4]}


def test_one_value_a_stage():
    costs = Costs(forward=(1, 2), backward_input=np.array([3, 4]), backward_weight=[5.0, 6.0])
    assert taken(costs) == {"F": [1, 2], "I": [3, 4], "W": [5, 6], "B": [8, 10]}


def test_bandwidth_and_message_size_give_the_hop():
    """The chapter's message, 201,326,592 bytes, over one 200 Gb/s link, on top of a latency."""
    costs = Costs(hop=0.001, message_bytes=201_326_592, bandwidth=25e9)
    assert costs.hop == pytest.approx(0.001 + 0.00805306368)
    assert Costs(message_bytes=6, bandwidth=[1, 2, 3]).hop.tolist() == [6, 3, 2]
    assert Costs(hop=1).hop == 1


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_per_device_makes_schedules_with_any_number_of_chunks_comparable(chunks):
    """A device's work for one micro-batch is the same, however many stages it is cut into."""
    row = [f"{k}F0" for k in range(chunks)] + [f"{k}B0" for k in reversed(range(chunks))]
    s = Schedule([row])
    costs = Costs.per_device(s, forward=4, backward=8)
    assert (costs.forward, costs.backward) == (4 / chunks, 8 / chunks)
    assert makespan(simulate(s, costs)) == 12
    assert makespan(simulate(s, Costs.per_device(s, forward=4, backward_input=5, backward_weight=3))) == 12
    assert makespan(simulate(s, Costs.per_device(s))) == 3


def test_per_device_passes_the_rest_on_as_it_is():
    costs = Costs.per_device(Schedule(["0F0 1F0 1B0 0B0"]), backward_input=3, hop=0.5, blocking=True, pair=7)
    assert (costs.forward, costs.backward_input, costs.backward_weight) == (0.5, 1.5, 0.5)
    assert (costs.hop, costs.blocking, costs.pair, costs.backward) == (0.5, True, 7, None)


NUMBERS = ("forward", "backward_input", "backward_weight", "backward", "pair", "hop", "message_bytes", "bandwidth")


def costs_with(name, value):
    """Costs with one argument set, and its partner if it needs one."""
    partner = {"message_bytes": dict(bandwidth=1), "bandwidth": dict(message_bytes=1)}
    return Costs(**{name: value} | partner.get(name, {}))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (-1, "{} is -1: a time must be finite and not negative"),
        (float("nan"), "{} is nan: a time must be finite and not negative"),
        (float("inf"), "{} is inf: a time must be finite and not negative"),
        ([1, 2, -0.5], "{}[2] is -0.5: a time must be finite and not negative"),
        ([1, float("nan")], "{}[1] is nan: a time must be finite and not negative"),
        ([1, None], "{}[1] is nan"),
        ("1", "{} must be a number or one number a stage, not '1'"),
        (["1", "2"], "{} must be a number or one number a stage, not ['1', '2']"),
        (True, "{} must be a number or one number a stage, not True"),
        ([True, False], "{} must be a number or one number a stage, not [True, False]"),
        (1j, "{} must be a number or one number a stage, not 1j"),
        ({}, "{} must be a number or one number a stage, not {{}}"),
        ([[[1, 2]]], "{} must be a number or one number a stage, not [[[1, 2]]]"),
        ([[1], [1, 2]], "{} must be a number or one number a stage"),
    ],
)
def test_bad_numbers_are_refused_by_name_and_place(name, value, says):
    what = {"message_bytes": "bytes", "bandwidth": "bytes a second"}.get(name, "a time")
    with pytest.raises(ValueError, match=re.escape(says.format(name).replace("a time", what))):
        costs_with(name, value)


@pytest.mark.parametrize("name", ["forward", "hop"])
def test_what_has_to_be_given_is_not_none(name):
    with pytest.raises(ValueError, match=f"{name} must be a number or one number a stage, not None"):
        Costs(**{name: None})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(bandwidth=1), "message_bytes and bandwidth give the hop together: pass both, or neither"),
        (dict(message_bytes=1), "message_bytes and bandwidth give the hop together: pass both, or neither"),
        (dict(message_bytes=1, bandwidth=0), "bandwidth is 0: nothing would ever arrive"),
        (dict(message_bytes=1e300, bandwidth=1e-300), "hop is inf"),
        (dict(blocking="no"), "blocking must be True or False, not 'no'"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_makes_no_sense_together_is_refused(arguments, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        Costs(**arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            dict(forward=[1, 2, 3]),
            "forward has 3 values, but the schedule has 2, one a stage: give 2 values, or one number",
        ),
        (dict(backward_input=[1]), "backward_input has 1 values, but the schedule has 2, one a stage"),
        (
            dict(backward_input=[1, 2], backward_weight=[1, 2, 3]),
            "backward_weight has 3 values, but the schedule has 2",
        ),
        (dict(backward=[]), "backward has 0 values, but the schedule has 2, one a stage"),
        (dict(hop=[1, 2]), "hop has 2 values, but the schedule has 1, one a boundary between stages"),
        (dict(message_bytes=1, bandwidth=[1, 1]), "hop has 2 values, but the schedule has 1, one a boundary"),
    ],
)
def test_values_that_do_not_fit_the_stages_are_refused_when_used(arguments, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        simulate(pplab.gpipe(2, 2), Costs(**arguments))
    with pytest.raises(ValueError, match=re.escape(says)):
        pplab.lower_bound(pplab.gpipe(2, 2), Costs(**arguments))


def test_a_pairs_cost_must_fit_the_stages_too():
    s = Schedule(["0F0 0F1 0B0 0B1"], pairs=[("0F1", "0B0")])
    with pytest.raises(ValueError, match="pair has 2 values, but the schedule has 1"):
        simulate(s, Costs(pair=[1, 2]))


def test_costs_are_frozen():
    costs = Costs(forward=[1, 2])
    with pytest.raises(AttributeError):
        costs.hop = 3
    with pytest.raises(ValueError, match="read-only"):
        costs.forward[0] = 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(forward=10**400), "forward must be a number or one number a stage, not 1000"),
        (dict(forward="a"), "not 'a'; or give a table, a row a stage and a column a micro-batch"),
        (dict(hop="a"), "not 'a'; hop has one a boundary between stages"),
        (dict(hop=2, transfer=1, message_bytes=1, bandwidth=1), "pass these two, or transfer, not both"),
    ],
)
def test_what_makes_no_cost_is_refused_in_words(arguments, says):
    with pytest.raises(ValueError, match=says):
        Costs(**arguments)
