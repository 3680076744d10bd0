"""The exercises: stubs are no mistakes, right answers pass, and each mistake meets the hint written for it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import pplab
from pplab.distributed import load_run
from pplab.exercises import check, hint, progress
from pplab.exercises.hints import HINTS
from pplab.exercises.kinds import Cut, Function, Number, RealRun, Rows
from pplab.exercises.solved import FILE
from pplab.exercises.tasks import TASKS

ROOT = Path(__file__).parents[1]
# Worked out by hand, from the chapter's formulas.
RIGHT = {
    "first-start": 3,
    "time-saved": 8 * 4 * 3 - (8 + 3) * 3,
    "message-bytes": lambda b, t, h, size: b * t * h * size,
    "last-stage": 7,
    "bubble": lambda d, m: (d - 1) / (m + d - 1),
    "below-ten-percent": 9 * 7 + 1,
    "whole-gradient": lambda gradients, sizes: sum(g * n for g, n in zip(gradients, sizes, strict=True)) / sum(sizes),
    "how-many-microbatches": 96,
    "gpipe-rows": ["0F0 0F1 0F2 0B2 0B1 0B0", "1F0 1F1 1F2 1B2 1B1 1B0"],
    "recompute-time": lambda d, m: 4 / 3,
    "1f1b-rows": [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ],
    "1f1b-held": lambda d, m, k: min(m, d - k),
    "stage-states": 350,
    "layers-worth": lambda d, m, layers: min(m, d) * layers / d,
    "interleaved-bubble": lambda d, m, v: (d - 1) / (v * m + d - 1),
    "interleaved-messages": 2 * 12 * (3 * 6 - 1),
    "microbatches-of-a-layout": 96,
    "tensor-group": lambda rank, tensor: rank // tensor,
    "slow-last-stage": 20 + 8 * (24 + 48) + 40,
    "real-run": load_run(ROOT / "tests/data/run_rows_d3_m5.json"),
    "three-stages": (3, 3, 2),  # 5 + 5 + 5 ms
    "bandwidth": 20.13,
    "zero-bubble-idle": lambda d, f, i, w: (d - 1) * (f + i - w),
    "zero-bubble-rows": ["0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"],
    "version-met": lambda d, k, m: max(0, m - (d - 1 - k)),
    "stash-bytes": 306.25,
    "like-with-like": 4 * 16 / (4 + 3 + 2 + 1),
    "divided-by-what": lambda ratio: ratio / (1 + ratio),
}
MISTAKES = [
    (name, i) for name, task in TASKS.items() if isinstance(task, (Number, Function)) for i in range(len(task.mistakes))
]


def changed(**fields):
    """The real run, with something else in it."""
    return replace(RIGHT["real-run"], **fields)


def untouched():
    raise NotImplementedError("your turn")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, where its progress is noted."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


STUBS = {Number: ..., Function: lambda *_: untouched(), Rows: ["...", "..."], RealRun: ..., Cut: [..., ..., ...]}


@pytest.mark.parametrize("name", TASKS)
def test_right_answer(name, capsys):
    check(name, RIGHT[name])
    assert capsys.readouterr().out == f"Right. {TASKS[name].praise}\n"


@pytest.mark.parametrize("name", TASKS)
def test_untouched_stub_is_no_mistake(name, capsys):
    check(name, STUBS[type(TASKS[name])])
    assert capsys.readouterr().out.startswith("Not done yet:")


@pytest.mark.parametrize(("name", "i"), MISTAKES)
def test_each_mistake_meets_its_hint(name, i, capsys):
    mistake, text = list(TASKS[name].mistakes.items())[i]
    check(name, mistake)
    assert capsys.readouterr().out.splitlines()[0] == f"Not yet: {text}"


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("bubble", lambda d, m: 0.5, "for (4, 1) your function gives 0.5"),
        ("bubble", lambda d, m: None, "Not yet: your function returns nothing: end it with return"),
        ("bubble", lambda d, m: f"{(d - 1) / (m + d - 1)}", "gives '0.75': it has to be a number, not text"),
        ("bubble", lambda d, m: round((d - 1) / (m + d - 1), 2), "Not yet: right, but rounded: return all digits"),
        ("bubble", lambda d, m: (d - 1) / (m + d - 1) + 0.02, "for (4, 1) your function gives 0.77"),
        ("bubble", 0.75, "hand in the function itself"),
        ("bubble", lambda d, m: d / 0, "your code stopped with ZeroDivisionError"),
        ("first-start", "three", "the answer is a number, not 'three'"),
        ("first-start", 17, "Follow micro-batch 0"),
        ("gpipe-rows", ["0B0 0F0", "1F0 1B0"], "these rows cannot run. device 0 runs 0B0"),
        ("gpipe-rows", ["0F0 0B0", "1F0 1B0"], "your rows have 2 devices, 2 stages and 1 micro-batches"),
        ("gpipe-rows", ["0F0 0B0 0F1 0B1 0F2 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"], "they run, but take 18 slots where 12"),
        (
            "1f1b-rows",
            ["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", *RIGHT["1f1b-rows"][1:]],
            "as quick, but device 0 holds 4 micro-batches where 3 are enough",
        ),
        (
            "gpipe-rows",
            ["0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"],
            "device 1 runs a backward before its last",
        ),
        ("real-run", ["0F0 0B0"], "hand in what run(…) gave for your rows, a RunResult, not ['0F0 0B0']"),
        ("real-run", changed(schedule=pplab.gpipe(3, 4)), "your rows have 3 devices, 3 stages and 4 micro-batches"),
        ("real-run", changed(schedule=pplab.naive(3, 5)), "they ran, but in simulation take 45 slots where 21 are"),
        ("real-run", changed(live_chunks=(5, 5, 5)), "as quick, but 5 micro-batches were alive on device 0; 3 are"),
        ("real-run", changed(live_chunks=None), "run it again without check=False"),
        ("three-stages", 3, "give a list of 3 whole numbers, not 3"),
        ("three-stages", ["3", "3", "2"], "give 3 whole numbers"),
        ("three-stages", [4, 4], "2 stages with 8 layers in all"),
        ("three-stages", [3, 2, 3], "the slowest stage takes 6, and 5 can be reached"),
    ],
)
def test_hints(name, answer, says, capsys):
    check(name, answer)
    assert says in capsys.readouterr().out


def test_a_solution_is_never_printed(capsys):
    for name, task in TASKS.items():
        check(name, STUBS[type(task)])
        check(name, 12345 if isinstance(task, Number) else lambda *_: 12345)
    assert "min(m, d - k)" not in capsys.readouterr().out


def test_unknown_exercise():
    with pytest.raises(ValueError, match="no exercise is called 'buble'; there are first-start, "):
        check("buble", 1)


def test_every_exercise_stands_in_a_notebook():
    text = "".join(path.read_text() for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert set(re.findall(r'check\(\\"([\w-]+)\\"', text)) == set(TASKS)


# ── The second hint ───────────────────────────────────────────────────────────────────────────────────────────────


def test_every_exercise_has_a_second_hint_under_its_notebook():
    assert sorted(name for tasks in HINTS.values() for name in tasks) == sorted(TASKS)
    for notebook, tasks in HINTS.items():
        text = (ROOT / f"notebooks/{notebook}.ipynb").read_text()
        assert re.findall(r'check\(\\"([\w-]+)\\"', text) == list(tasks)


@pytest.mark.parametrize("name", TASKS)
def test_a_wrong_answer_leads_to_the_second_hint(name, capsys):
    check(name, 12345 if isinstance(TASKS[name], Number) else lambda *_: 12345)
    command = capsys.readouterr().out.splitlines()[-1].removeprefix("For a second hint: pplab.exercises.")
    assert command == f'hint("{name}")'
    hint(name)
    assert capsys.readouterr().out == f"Hint: {next(h[name] for h in HINTS.values() if name in h)}\n"


def all_hints(name):
    task = TASKS[name]
    return [task.hint, *getattr(task, "mistakes", {}).values(), next(h[name] for h in HINTS.values() if name in h)]


@pytest.mark.parametrize("name", TASKS)
def test_no_hint_tells_the_answer(name):
    for text in all_hints(name):
        bare = re.sub(r"device \d+|\d(?=,\d{3})", "", text).replace("−", "-")  # a device's number is no answer
        numbers = [float(x) for x in re.findall(r"(?<![\w.,])\d+(?:\.\d+)?(?![\w%])", bare)]
        if isinstance(TASKS[name], Number):
            assert not any(abs(x - RIGHT[name]) <= 0.005 * RIGHT[name] for x in numbers), text
        assert not re.search(r"\d[FBIW]\d", text.replace("1F1B", "")), "an op of the solution"
        for solution in ("min(", "(D - 1)/(M + D - 1)", "b * t * h", "//", "4/3", "4 / 3", "3, 3, 2"):
            at_all = solution in bare and "Solve" not in bare  # below-ten-percent may quote exercise 1's result
            assert not at_all, f"{solution} in {text}"


def test_hint_for_an_unknown_exercise():
    with pytest.raises(ValueError, match="no exercise is called 'buble'"):
        hint("buble")


# ── Progress ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_written_before_something_is_solved(folder, capsys):
    for name, task in TASKS.items():
        check(name, STUBS[type(task)])
        check(name, 12345 if isinstance(task, Number) else lambda *_: 12345)
    progress()
    assert f"0 of {len(TASKS)} exercises solved" in capsys.readouterr().out
    assert not list(folder.iterdir())


def test_progress_shows_what_is_solved(folder, capsys):
    for name in ("first-start", "time-saved", "first-start", "bubble"):
        check(name, RIGHT[name])
    assert json.loads((folder / FILE).read_text())["solved"] == ["first-start", "time-saved", "bubble"]
    assert [path.name for path in folder.iterdir()] == [FILE]
    capsys.readouterr()
    progress()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"3 of {len(TASKS)} exercises solved in this folder"
    assert lines[1].split() == ["00_start_here", "✓", "first-start", "✓", "time-saved"]
    assert lines[3].split() == ["02_bubbles", "✓", "bubble", "·", "below-ten-percent"]
    assert lines[-1] == "Next: 01_stages.ipynb"


def test_all_solved(capsys):
    for name, answer in RIGHT.items():
        check(name, answer)
    progress()
    assert capsys.readouterr().out.endswith("\nAll solved. Well done!\n")


@pytest.mark.parametrize("text", ["{", "[]", '{"solved": 3}', '{"solved": [1]}', "\xff"])
def test_a_broken_file_is_told_and_left_alone(folder, capsys, text):
    (folder / FILE).write_bytes(text.encode("latin-1"))
    check("bubble", RIGHT["bubble"])
    progress()
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"Right. {TASKS['bubble'].praise}"
    assert second.startswith("(Not noted in your progress") and f"{FILE} is no list" in second
    assert third.startswith("Your progress cannot be read. ") and third.endswith("delete it to start over")
    assert (folder / FILE).read_bytes() == text.encode("latin-1")


def test_a_folder_that_cannot_be_written_to_loses_no_verdict(monkeypatch, capsys):
    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pplab.exercises.solved.tempfile.mkstemp", refuse)  # root may write anywhere
    check("bubble", RIGHT["bubble"])
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"Right. {TASKS['bubble'].praise}" and "Permission denied" in second


def test_two_notebooks_at_once_never_find_half_a_file(folder):
    """Two processes write all the time, and what a third reads is whole."""
    code = "import sys\nfrom pplab.exercises.solved import note_solved\n"
    code += "for i in range(200): note_solved(f'{sys.argv[1]}{i}')"
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "ab"]
    reads = 0
    while any(writer.poll() is None for writer in writers):
        if (folder / FILE).exists():
            assert json.loads((folder / FILE).read_text())["solved"]
            reads += 1
    assert reads and [writer.returncode for writer in writers] == [0, 0]
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_a_function_that_leaves_python_is_a_mistake_like_others(capsys):
    def leave(*_):
        raise SystemExit("bye")

    check("bubble", leave)
    assert "your code stopped with SystemExit: bye" in capsys.readouterr().out
