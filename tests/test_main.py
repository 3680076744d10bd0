"""The command line: the chapter's trace, a table, files, and mistakes that are told in one line."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import pplab
from pplab.__main__ import main

TORCH = Path(__file__).parent / "data/torch_csv"

TRACE = """\
slot       0  1  2  3  4  5  6  7  8  9 10 11 12 13
device 0  F0 F1 F2 F3  .  .  . B0  . B1  . B2  . B3
device 1   . F0 F1 F2  .  . B0 F3 B1  . B2  . B3  .
device 2   .  . F0 F1  . B0 F2 B1 F3 B2  . B3  .  .
device 3   .  .  . F0 B0 F1 B1 F2 B2 F3 B3  .  .  .

makespan 14, bubble 42.9%, most micro-batches in flight: 4, 3, 2, 1
"""


def call(command):
    """The command line, called from Python."""
    return main(command.split())


def test_trace_prints_the_chapters_worked_example(capsys):
    assert call("trace 1f1b --devices 4 --microbatches 4") == 0
    assert capsys.readouterr().out == TRACE


def test_trace_takes_costs(capsys):
    call("trace gpipe --devices 8 --microbatches 64 --backward 2 --hop 0.5")
    assert "\nmakespan 220, bubble 12.7%, most micro-batches in flight: 64, 64," in capsys.readouterr().out
    call("trace gpipe --devices 2 --microbatches 3 --forward 0.5 --hop 0.5 --blocking")
    assert "\nmakespan 9, " in capsys.readouterr().out  # (M + 1)(F + B) + 2Mh


def test_trace_tells_what_a_dash_is(capsys):
    call("trace gpipe --devices 2 --microbatches 1 --backward 2")
    grid = "slot       0  1  2  3  4  5\ndevice 0  F0  .  .  . B0  -\ndevice 1   . F0 B0  -  .  .\n"
    assert capsys.readouterr().out.startswith(f"{grid}- : the pass goes on   . : idle\n\nmakespan 6, ")


def test_trace_reads_a_csv(capsys):
    assert main(["trace", str(TORCH / "Interleaved1F1B_D4_M8_V2.compute_only.csv"), "--backward", "2"]) == 0
    out = capsys.readouterr().out
    assert "4F0" in out
    assert "a slot is 0.5" in out
    assert "makespan 28.5, bubble 15.8%, most micro-batches in flight: 11, 9, 7, 5" in out


def test_trace_writes_files(tmp_path, capsys):
    files = {name: tmp_path / f"a.{name}" for name in ("csv", "trace", "svg")}
    assert main(["trace", "1f1b", *(str(x) for name, path in files.items() for x in (f"--{name}", path))]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("written: ")] == [
        f"written: {path}" for path in files.values()
    ]
    assert pplab.read_torch_csv(files["csv"]) == pplab.one_f_one_b(4, 8)
    assert len(json.loads(files["trace"].read_text())["traceEvents"]) > 64
    assert ET.fromstring(files["svg"].read_text()).get("role") == "img"


def table(out):
    """The printed table: schedule → its cells."""
    return {cells[0]: cells[1:] for cells in (line.split(maxsplit=4) for line in out.splitlines()[1:])}


def test_compare_prints_what_a_hop_does(capsys):
    """E23; the bound: device 0 works 64 · 3, device 7 waits 7 · (1 + 0.1) before and 7 · (2 + 0.1) after that."""
    assert call("compare gpipe 1f1b --devices 8 --microbatches 64 --backward 2 --hop 0.1") == 0
    out = table(capsys.readouterr().out)
    assert list(out) == ["gpipe", "1f1b"]
    assert out["gpipe"] == ["214.4", f"{1 - 192 / 214.4:.1%}", "100.0%", "64, 64, 64, 64, 64, 64, 64, 64"]
    assert out["1f1b"] == ["225.4", f"{1 - 192 / 225.4:.1%}", f"{214.4 / 225.4:.1%}", "8, 7, 6, 5, 4, 3, 2, 1"]


def test_compare_takes_all_schedules_unless_told(capsys):
    assert main(["compare"]) == 0
    out = capsys.readouterr().out
    assert list(table(out)) == list(pplab.SCHEDULES)
    assert " bound / time " in out.splitlines()[0]
    assert "on device 0, 1, … (chunks, where a device has several stages)\n" in out
    assert len({line.index("%") for line in out.splitlines()[1:]}) == 1


def test_compare_leaves_out_what_cannot_take_the_sizes_unless_it_was_asked_for(capsys):
    assert call("compare --devices 3") == 0
    out, left_out = capsys.readouterr().out.split("\nleft out: ", 1)
    assert set(pplab.SCHEDULES) - set(table(out)) == {"dualpipe", "chimera"}
    assert left_out.startswith("num_devices must be even for dualpipe, not 3")
    assert call("compare gpipe dualpipe --devices 3") == 2
    assert capsys.readouterr().err.startswith("pplab: num_devices must be even for dualpipe, not 3")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("trace 2f2b", "pplab: no schedule is called '2f2b'; there are naive, gpipe"),
        ("compare gpipe 2f2b", "pplab: no schedule is called '2f2b'"),
        ("trace 1f1b --devices 0", "pplab: num_devices is 0: it says how many devices the model is spread over"),
        ("compare --devices 0", "pplab: num_devices is 0: it says how many devices the model is spread over"),
        ("trace 1f1b --microbatches -3", "pplab: num_microbatches is -3"),
        ("trace 1f1b --hop -1", "pplab: hop is -1: a time must be finite and not negative"),
        ("trace 1f1b --forward nan", "pplab: forward is nan"),
        ("trace 1f1b --forward 0 --backward 0", "pplab: the timeline has no length"),
        ("compare --forward 0 --backward 0", "pplab: the timeline has no length"),
        ("compare --forward 1e308 --backward 1e308", "pplab: the costs are so large that times overflow"),
        ("trace 1f1b --devices 99999999999", "pplab: num_devices is 99,999,999,999: a schedule has at most 65,536"),
        ("trace gpipe --microbatches 9999999", "pplab: num_devices · num_microbatches · num_chunks is 39,999,996"),
        ("trace none.csv", "pplab: [Errno 2] No such file or directory: 'none.csv'"),
        ("trace 1f1b --svg no/such/folder/a.svg", "pplab: [Errno 2] No such file or directory"),
    ],
)
def test_a_mistake_is_told_in_one_line(capsys, arguments, says):
    assert call(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(says)
    assert err.count("\n") == 1


def test_a_csv_that_is_none_is_told_in_one_line(capsys, tmp_path):
    (tmp_path / "empty.csv").touch()
    assert main(["trace", str(tmp_path / "empty.csv")]) == 2
    assert capsys.readouterr().err.startswith("pplab: empty.csv is empty")


@pytest.mark.parametrize("arguments", ["", "draw", "trace", "trace 1f1b --devices four", "trace 1f1b --colour"])
def test_a_mistake_in_the_arguments_shows_the_usage(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        call(arguments)
    assert stop.value.code == 2
    assert "usage: python -m pplab" in capsys.readouterr().err


def test_a_run_that_is_impossible_is_told_in_one_line(capsys):
    assert call("run dualpipe --devices 2 --microbatches 4") == 2
    assert "\npplab: dualpipe holds stage 0 on two devices" in capsys.readouterr().err
    assert call("run 1f1b --ms 5") == 2
    assert "--ms is how long a pass sleeps" in capsys.readouterr().err
    assert call("run 2f2b") == 2
    assert "no schedule is called '2f2b'" in capsys.readouterr().err


def test_run_predicts_runs_and_stores(capsys, tmp_path):
    pytest.importorskip("torch")
    assert call(f"run zb-h1 --microbatches 3 --workload emulated --ms 1 --steps 2 --save {tmp_path}/run.json") == 0
    out = capsys.readouterr().out
    for text in ("<Schedule zb-h1: 2 devices", "equal to the last bit", "predicted  ", "written: "):
        assert text in out
    assert pplab.distributed.load_run(tmp_path / "run.json").schedule == pplab.SCHEDULES["zb-h1"](2, 3)


def test_a_run_that_fails_is_told_in_one_line(capsys, monkeypatch):
    def fail(*_, **__):
        raise pplab.distributed.RunError("rank 1 was killed by SIGKILL in 1F3 of step 2")

    monkeypatch.setattr("pplab.__main__.profile", fail)
    assert call("run 1f1b") == 1
    assert capsys.readouterr().err == (
        "profiling, then running; some seconds\npplab: the run failed: rank 1 was killed by SIGKILL in 1F3 of step 2\n"
    )


def run(*arguments):
    """The command as a reader types it."""
    return subprocess.run([sys.executable, "-m", "pplab", *arguments], capture_output=True, text=True, timeout=60)


def test_help_is_enough_to_use_it():
    shown = run("--help")
    assert shown.returncode == 0
    for word in ("trace", "compare", "python -m pplab trace 1f1b --devices 4 --microbatches 4", "times are in slots"):
        assert word in shown.stdout
    shown = run("trace", "--help").stdout
    for word in (*pplab.SCHEDULES, "--devices", "--microbatches", "--forward", "--backward", "--hop", "--blocking"):
        assert word in shown
    for word in ("--svg", "--csv", "--trace"):
        assert word in shown
    assert "bound / time: " in run("compare", "--help").stdout


def test_runs_as_a_module():
    shown = run("trace", "1f1b", "--devices", "4", "--microbatches", "4")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, TRACE, "")
    assert run("trace", "2f2b").returncode == 2


def test_a_run_that_cannot_be_saved_is_not_started(capsys):
    assert call("run 1f1b --devices 2 --microbatches 2 --save /nowhere/at/all/x.json") == 2
    error = capsys.readouterr().err
    assert "there is no folder /nowhere/at/all; make it first" in error and "profiling" not in error
