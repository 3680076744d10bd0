"""review: what it says of rows that cannot run, of rows that can, and that no text at all makes it fail."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drawn, examples, is_legal

import pplab
from pplab import Costs, bubble_fraction, lower_bound, makespan, review, simulate
from pplab.schedules import SCHEDULES

GPIPE_LIKE = ["0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"]
ILLEGAL = {
    "": "the schedule is empty",
    "nonsense": "device 0, op 0: 'nonsense' is not an op",
    "0F0 0F0 0B0": "0F0 stands twice",
    "0B0 0F0": "device 0 runs 0B0 (entry 0) before 0F0 (entry 1), which it needs; put 0F0 first",
    "0F0 0F1 0B0": "0B1 is missing",
    "0F0 0B0\n2F0 2B0": "no op is of stage 1",
    "0F0 0I0": "0W0 is missing",
    "0F0 1B0 0B0\n1F0": "1B0 stands on device 0, but 1F0",
    "0F0 0B0\n\n1F0 1B0": "device 1 runs nothing",
    "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0": "deadlock: device 0 waits at 0B0 for 1B0; device 1 waits at 1F1 for 0F1",
    "999999999F999999999": "no op is of stage 0",
}


@pytest.mark.parametrize("rows", ILLEGAL, ids=repr)
def test_rows_that_cannot_run_get_the_reason(rows):
    r = review(rows)
    assert ILLEGAL[rows] in r.problem
    assert (r.schedule, r.timeline, r.score, r.waits, r.best) == (None, None, None, (), None)
    assert repr(r) == f"These rows cannot run.\n{r.problem}"
    assert re.match("<pre[^>]*>These rows cannot run.", r._repr_html_())


@pytest.mark.parametrize("rows", [None, 5, [], [5], [None], {"0F0": 1}, [["0F0", 5]], [[(0, "F")]], b"0F0"], ids=repr)
def test_what_are_no_rows_at_all_gets_a_reason_too(rows):
    assert review(rows).problem


def test_pairs_that_are_none_and_costs_that_do_not_fit_are_named():
    assert "is not a pair" in review(GPIPE_LIKE, pairs=["0F0"]).problem
    assert "forward has 3 values, but the schedule has 2" in review(GPIPE_LIKE, Costs(forward=[1, 2, 3])).problem
    assert "every op takes no time" in review(GPIPE_LIKE, Costs(forward=0, backward=0)).problem


def test_a_senseless_argument_is_the_callers_mistake():
    with pytest.raises(TypeError, match="costs is 3"):
        review(GPIPE_LIKE, 3)
    with pytest.raises(ValueError, match="memory_limit is 'two'"):
        review(GPIPE_LIKE, memory_limit="two")


def test_a_score_by_hand():
    """Two devices, three micro-batches: device 0 works 9 slots of (3 + 2 − 1)(1 + 2) = 12, and so does device 1."""
    r = review(GPIPE_LIKE)
    assert r.problem is None
    assert (r.score.makespan, r.score.bubble, r.score.bound, r.score.over_bound) == (12, 0.25, 12, 1)
    assert r.score.most_held == 3
    name, best = r.best
    assert (name, best.makespan, best.most_held) == ("1f1b", 12, 2)  # as quick, and D − k = 2 held


def test_the_longest_waits_come_first_with_their_reasons():
    """Device 1 ends at 10 of 12; device 0 waits a slot for each of the three gradients; device 1 one for its first."""
    assert review(GPIPE_LIKE).waits == (
        "device 1 waits from 10 to 12: it is done, and 0B2 ends the step",
        "device 0 waits from 3 to 4, before 0B0, for 1B0: the pipeline is still filling",
        "device 0 waits from 6 to 7, before 0B1, for 1B1: it has no forwards left to fill the time with",
        "and 2 more waits, none of them longer",
    )
    assert review(["0F0 0F1 0B0 0B1"]).waits == ("no device ever waits",)
    slow = review(GPIPE_LIKE, Costs(hop=3.0)).waits
    assert any(wait.endswith("a message on its way") for wait in slow)


def test_text_is_whole_and_the_same_every_time():
    text = repr(review(GPIPE_LIKE))
    assert text.splitlines()[:4] == [
        "They run: 2 devices, 2 stages, 3 micro-batches.",
        "yours: time 12, bubble 25.0%, most held 3 micro-batches",
        "1f1b: time 12, bubble 25.0%, most held 2 micro-batches",
        "No order of these ops takes less than 12; yours takes just that.",
    ]
    slow = review("0F0 0F1 0B0 0B1\n1F0 1F1 1B1 1B0")  # 11 slots, where 9 are enough
    assert "takes less than 9; yours takes 1.222 times that." in repr(slow)
    assert text == repr(review("\n".join(GPIPE_LIKE)))


def test_a_broken_memory_limit_is_told_and_the_rest_still_shown():
    r = review(GPIPE_LIKE, memory_limit=2)
    assert r.problem.startswith("device 0 holds 3 micro-batches, over the limit of 2")
    assert r.schedule == pplab.Schedule(GPIPE_LIKE)
    assert "But device 0 holds 3" in repr(r)
    assert r.best[0] == "1f1b"
    assert review(GPIPE_LIKE, memory_limit=3).problem is None
    assert review(GPIPE_LIKE, memory_limit=1).best[0] == "naive"  # holds one, and nothing else does


def test_chunks_count_as_parts_of_a_micro_batch():
    """E25: the first of 4 devices with 2 chunks holds 11 chunks of M = 8, so 5.5 micro-batches."""
    s = pplab.interleaved_1f1b(4, 8, 2)
    r = review(s.rows)
    assert r.score.most_held == 5.5
    assert review(s.rows, memory_limit=5.5).problem is None
    assert "device 0 holds 5.5 micro-batches" in review(s.rows, memory_limit=5).problem


def test_a_picture_with_words_stands_above_the_text():
    html = review(GPIPE_LIKE)._repr_html_()
    assert re.match(
        r'<img alt="Simulated timeline of your rows: 2 devices[^"]+" [^>]*src="data:image/png;base64,', html
    )
    assert html.endswith("</pre>")


def test_what_the_reader_wrote_cannot_become_markup():
    assert "<b>" not in review("<b>0F0</b>")._repr_html_()


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_named_schedule_is_never_beaten_by_a_worse_one(name):
    s = SCHEDULES[name](4, 8)
    r = review(s.rows, pairs=s.pairs)
    assert r.problem is None
    t = simulate(s)
    assert (r.score.makespan, r.score.bubble, r.score.bound) == (makespan(t), bubble_fraction(t), lower_bound(s))
    assert r.best is not None
    assert r.best[1].makespan <= r.score.makespan
    assert r.best[1].bound == r.score.bound or r.best[0] != name


@given(drawn())
@examples(40)
def test_a_legal_schedule_is_never_refused(case):
    r = review(case.rows, pairs=case.pairs)
    assert is_legal(case.rows, case.pairs)
    assert r.problem is None
    assert r.score.over_bound >= 1 - 1e-12
    assert repr(r)


PIECES = st.text(alphabet="0123FBIW \n,.x", max_size=40)


@given(st.one_of(st.text(), PIECES, st.lists(st.one_of(PIECES, st.text(), st.none(), st.integers())), st.integers()))
@examples(300)
def test_no_text_makes_it_fail(rows):
    r = review(rows)
    assert (r.problem is None) == (r.timeline is not None)
    assert repr(r)


def test_a_schedule_is_judged_as_its_rows():
    for name in ("1f1b", "dualpipe"):
        s = pplab.SCHEDULES[name](2, 4)
        of_rows = pplab.review(s.rows, pairs=s.pairs, name=name)
        assert repr(pplab.review(s)) == repr(of_rows) and of_rows.problem is None
