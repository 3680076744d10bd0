"""Placements as data, and what a schedule says to a wrong one."""

import numpy as np
import pytest

import pplab
from pplab.placement import check_placement, read_placement, wave, wrap


def test_wrap_and_v_of_the_papers():
    assert wrap(4, 2).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert wave(4, 2).tolist() == [[0, 7], [1, 6], [2, 5], [3, 4]]
    assert wave(2, 3).tolist() == [[0, 3, 4], [1, 2, 5]]


def test_a_schedule_knows_its_placement():
    assert pplab.one_f_one_b(3, 2).placement == ((0,), (1,), (2,))
    assert pplab.interleaved_1f1b(2, 2, num_chunks=2).placement == ((0, 2), (1, 3))


@pytest.mark.parametrize("given", [None, "v", [[0, 3], [1, 2]], np.array([[0, 3], [1, 2]])])
def test_the_right_placement_passes(given):
    assert check_placement("zb-v", given, "v", 2, 2).tolist() == [[0, 3], [1, 2]]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("wrap", "stages 0 and 2 on device 0"),
        ("w", "placement is 'w': there are wrap, v, or a table"),
        ([[0, 5], [1, 4], [2, 3]], "3 devices with 2 stages each, but D is 2 and V is 2"),
        ([], "the placement is empty"),
        ([[], []], "the placement is empty"),
    ],
)
def test_a_wrong_placement_is_told_the_right_one(given, text):
    with pytest.raises(ValueError, match=text) as error:
        check_placement("zb-v", given, "v", 2, 2)
    if "empty" not in text:
        assert 'zb-v needs a V, placement="v": device 0 with stages 0 and 3' in str(error.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([[0, 1], [2]], "differ in length"),
        ([0, 1], r"the placement is \[0, 1\]"),
        ([[0.0, 1.0]], "give a row a device"),
        ([[0, 1], [1, 2]], "each of the stages 0 to 3 once"),
    ],
)
def test_tables_that_are_none(given, text):
    with pytest.raises(ValueError, match=text):
        read_placement(given)
