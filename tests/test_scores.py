"""Beat the bubble: the bound by hand, rules that are kept, points as promised, and the table of a class."""

import csv

import pytest

import pplab
from pplab.__main__ import main
from pplab.exercises.scores import CONTEST, Contest

# Rows that cannot be beaten: found by trying every warm-up and lag, and by moving single ops about.
BEST = [
    "0F0 0F1 0F2 0F3 0F4 0F5 0I0 0W0 0F6 0I1 0W1 0F7 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7",
    "1F0 1F1 1F2 1F3 1F4 1I0 1W0 1F5 1I1 1W1 1F6 1I2 1W2 1F7 1I3 1W3 1I4 1W4 1I5 1W5 1I6 1W6 1I7 1W7",
    "2F0 2F1 2F2 2I0 2F3 2I1 2W0 2F4 2I2 2W1 2F5 2I3 2W2 2F6 2I4 2W3 2F7 2I5 2W4 2I6 2W5 2I7 2W6 2W7",
    "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 3W5 3W6 3W7",
]


def test_bound_by_hand():
    assert CONTEST.bound == 3 * (1 + 1) + 8 * 3  # the way to the last device, and its work
    assert Contest(num_devices=2, num_microbatches=3, hop=0.5).bound == 1.5 + 9


def test_par_scores():
    """1F1B and ZB-H1 send four micro-batches out, and wait for the first: by hand, 49 and 41 slots."""
    par = {entry.name: entry for entry in CONTEST.par()}
    assert (par["naive"].makespan, par["naive"].points) == (8 * (4 * 3 + 6), 0)
    assert par["zb-h1"].score == pytest.approx(30 / 41) and par["zb-h1"].points == round(25 * (30 / 41 - 0.5), 1)
    assert par["zb-h2"].makespan == 30 and par["zb-h2"].points == 0  # the bound, at 7 micro-batches
    for name, held in (("gpipe", 8), ("eager-1f1b", 7), ("zb-h2", 7)):
        assert par[name].problem == f"a device holds {held} micro-batches, and 6 is the limit"
    assert max(entry.points for entry in par.values()) < 6  # there is something left to win


def test_nothing_beats_33():
    """Device 0 holds six from slot 6 on. Micro-batch 0 is back at 13, after 7 passes and 6 messages; before F7 come
    I0, W0, I1, W1 and F6; and micro-batch 7 then has 9 passes and 6 messages before it."""
    by_hand = (7 + 6) + 5 + (9 + 6)
    found = pplab.search(CONTEST.costs, 4, 8, memory_limit=CONTEST.memory_limit)
    assert (found.bound, found.length) == (by_hand, by_hand)


def test_the_best_rows_get_all_points():
    entry = CONTEST.judge(BEST)
    assert (entry.makespan, entry.most_held, entry.points, entry.problem) == (33, 6, 10, None)
    assert str(entry) == "yours: 33 slots, holds 6, score 0.909, 10 points"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["0B0 0F0", "1F0 1B0"], "these rows cannot run. device 0 runs 0B0"),
        ("0F0 0B0", "these rows cannot run. rows must be a list"),
        (pplab.one_f_one_b(4, 7), "it takes 4 devices, stage k on device k, and 8 micro-batches"),
        (pplab.one_f_one_b(3, 8), "it takes 4 devices"),
        (pplab.SCHEDULES["dualpipe"](4, 8), "stage k on device k"),
        (pplab.interleaved_1f1b(4, 8, num_chunks=2), "stage k on device k"),
        (pplab.gpipe(4, 8), "6 is the limit"),
        (pplab.SCHEDULES["forward-only"](4, 8), "every micro-batch goes forward and backward"),
    ],
)
def test_what_breaks_a_rule_gets_nothing_and_the_reason(rows, says):
    entry = CONTEST.judge(rows)
    assert says in entry.problem and entry.points == entry.score == 0
    assert f"does not count: {entry.problem}" in str(entry)


def test_pairs_are_no_way_round():
    paired = pplab.Schedule(pplab.one_f_one_b(4, 8).rows, pairs=[("0F4", "0B1")])
    assert "one op at a time" in CONTEST.judge(paired).problem


def test_the_table_of_a_class(tmp_path, capsys):
    for name, rows in (("ada", BEST), ("bo", pplab.SCHEDULES["zb-h1"](4, 8).rows), ("cy", pplab.gpipe(4, 8).rows)):
        pplab.write_torch_csv(pplab.Schedule(rows), tmp_path / f"{name}.csv")
    (tmp_path / "di.csv").write_text("no, schedule\n")
    (tmp_path / "notes.txt").write_text("not a hand-in")
    assert main(["scores", str(tmp_path)]) == 0
    table = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["name"] for row in table] == ["ada", "bo", "di", "cy"]
    assert [row["points"] for row in table] == ["10", "5.8", "0", "0"]
    assert table[0]["slots"] == "33.0" and table[0]["problem"] == ""
    assert "limit" in table[3]["problem"] and "'no'" in table[2]["problem"]


def test_a_folder_without_hand_ins(tmp_path, capsys):
    assert main(["scores", str(tmp_path)]) == 2
    assert "no .csv file in" in capsys.readouterr().err
