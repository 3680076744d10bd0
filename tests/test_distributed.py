"""Real runs on real processes: gradients, what is alive, faults, and that nothing is left behind.

No time is asserted; the time-outs are limits of the runs themselves.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pplab
from pplab import SCHEDULES, Costs
from pplab import distributed as d
from pplab.distributed import Emulated, RunError, Transformer, launcher, load_run, refusals, run, stored_run

pytest.importorskip("torch")

DATA = Path(pplab.__file__).parent / "data"
QUICK = Emulated(1, 1, 1)
TWO_COPIES = {"dualpipe", "chimera"}  # PyTorch's runtime knows one device a stage
EXPRESSED = [name for name in SCHEDULES if name not in TWO_COPIES | {"forward-only"}]


def quick(schedule, workload=QUICK, **options):
    """A run of two steps."""
    return run(schedule, workload, steps=2, warm_ups=0, **options)


OTHERS: set[int] = set()


def children(pid=None):
    """The processes below one, those that are ending left out."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            found.setdefault(int(parent), []).append(int(path.parent.name))
    below, queue = set(), [pid or os.getpid()]
    while queue:
        new = found.get(queue.pop(), [])
        below |= set(new)
        queue += new
    return below


@pytest.fixture(scope="module", autouse=True)
def others():
    """What runs before, such as a browser of other tests, is nothing that a run has left."""
    OTHERS.update(children() if sys.platform == "linux" else ())


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After each run there are the fork servers between runs, and nothing below them."""
    yield
    if sys.platform == "linux":
        until = time.monotonic() + 5
        servers = {server.process.pid for server in launcher._idle}
        while (left := children() - servers - OTHERS) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left


@pytest.mark.parametrize("name", EXPRESSED)
def test_gradients_and_live_chunks_of_every_schedule(name):
    s = SCHEDULES[name](2, 4)
    r = quick(s)
    assert r.schedule == s
    assert (r.bit_equal, r.gradient_error, r.same_bits_twice) == (True, 0.0, True)
    assert r.whole_batch_error < 1e-6
    assert set(r.boundary_errors.values()) == {0.0}
    assert list(r.live_chunks) == pplab.peak_in_flight(pplab.simulate(s)).tolist()


@pytest.mark.parametrize(
    ("name", "sizes", "alive"),
    [
        ("gpipe", {"num_devices": 4, "num_microbatches": 5}, (5, 5, 5, 5)),
        ("1f1b", {"num_devices": 4, "num_microbatches": 8}, (4, 3, 2, 1)),
        ("interleaved-1f1b", {"num_devices": 4, "num_microbatches": 8, "num_chunks": 2}, (11, 9, 7, 5)),
    ],
)
def test_live_activations_are_those_predicted(name, sizes, alive):
    """Counts exactly; bytes to 3%, from the bytes of one chunk of each stage."""
    s = SCHEDULES[name](**sizes)
    r = quick(s)
    assert r.live_chunks == alive
    for device, row in enumerate(s.rows):
        held = np.cumsum([{"F": 1, "B": -1}[op.kind] * r.chunk_bytes[op.stage] for op in row])
        assert r.live_bytes[device] == pytest.approx(held.max(), rel=0.03)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_transformer_with_tokens_masked_unevenly(loss):
    small = Transformer(layers=3, hidden_size=16, seq_len=8, micro_batch_size=2, vocab_size=32, loss=loss)
    r = run(pplab.one_f_one_b(2, 4), small, steps=4, warm_ups=0)
    assert r.bit_equal
    assert r.whole_batch_error < 1e-6
    assert loss == "sum" or r.losses[-1] < r.losses[0]  # it learns; a sum's steps are too long to


@pytest.mark.parametrize(
    ("engine", "name", "options"),
    [
        ("torch-class", "gpipe", {"backward_order": "fifo"}),
        ("torch-class", "1f1b", {}),
        ("torch-class", "interleaved-1f1b", {}),
        ("torch-class", "looped-bfs", {}),
        ("torch-class", "zb-h1", {}),
        ("torch-class", "zb-v", {}),
        ("by-hand", "1f1b", {}),
    ],
)
def test_other_engines_give_the_same(engine, name, options):
    s = SCHEDULES[name](2, 4, **options)
    r = quick(s, engine=engine)
    assert r.schedule == s
    assert (r.bit_equal, r.same_bits_twice) == (True, True)
    assert list(r.live_chunks) == pplab.peak_in_flight(pplab.simulate(s)).tolist()


def test_a_class_that_runs_its_own_order_is_measured_in_it():
    r = quick(pplab.gpipe(2, 3), engine="torch-class")
    assert r.schedule == pplab.gpipe(2, 3, backward_order="fifo")
    assert r.bit_equal


def test_rows_of_a_student_with_forwards_out_of_order():
    """PyTorch counts losses in the order of the forwards; ours go by micro-batch."""
    s = pplab.Schedule(["0F1 0F2 0F0 0B2 0B0 0B1", "1F1 1F2 1F0 1B2 1B0 1B1"])
    r = quick(s)
    assert r.schedule == s
    assert r.bit_equal
    assert r.whole_batch_error < 1e-6


def test_measured_times_respect_the_schedule_and_the_sleep():
    s = pplab.one_f_one_b(2, 4)
    r = run(s, Emulated(2, [1, 3], 2), steps=3, check=False)
    assert r.bit_equal is None
    for t in r.timelines:
        assert t.measured
        assert t.start.min() == 0
        for a, b in s.row_slices:
            assert (t.start[a + 1 : b] >= t.end[a : b - 1]).all()
        ends = np.where(s.needs < 0, 0, t.end[s.needs])
        assert (t.start >= ends.max(axis=1)).all()
        took = t.end - t.start
        assert took[t.kind == "F"].min() >= 0.0019
        assert took[(t.kind == "B") & (t.stage == 1)].min() >= 0.0049
    assert r.step_time == np.median(r.step_times)
    assert pplab.makespan(r.timeline) == pytest.approx(r.step_time)
    assert set(r.prediction_error()) == {"median", "fastest", "slowest"}


def test_a_run_is_stored_and_read_without_torch(tmp_path):
    r = quick(pplab.one_f_one_b(2, 2))
    r.save(tmp_path / "run.json")
    again = load_run(tmp_path / "run.json")
    assert again.timeline == r.timeline
    for field in r.__dataclass_fields__:
        assert np.array_equal(getattr(again, field), getattr(r, field)), field
    code = (
        "import sys; sys.modules['torch'] = None; from pplab.distributed import load_run; "
        f"print(load_run({str(tmp_path / 'run.json')!r}).summary())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "equal to the last bit" in shown.stdout
    assert f"torch {r.versions['torch']}" in shown.stdout


def test_what_is_no_stored_run_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a\.json is not JSON, or is cut short"):
        load_run(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(json.dumps({"format": "pplab/1"}))
    with pytest.raises(ValueError, match=r"a\.json holds no run"):
        load_run(tmp_path / "a.json")


# --- Faults: one message, which names rank, op and cause, and no process is left (nothing_is_left).


def faulty(name, **options):
    """A run in which stage 1 fails on its fourth forward, the second step's second."""
    return quick(pplab.one_f_one_b(2, 2), Emulated(1, 1, 1, model=f"faulty_models:{name}"), **options)


def test_a_rank_that_raises():
    with pytest.raises(
        RunError, match=r"^rank 1 raised ValueError in 1F1 of step -1: a wrong turn \(faulty_models\.py"
    ):
        faulty("Raises")


def test_the_ranks_own_traceback_is_kept():
    with pytest.raises(RunError) as caught:
        faulty("Raises")
    assert "a wrong turn" in next(r for r in caught.value.reports if r["rank"] == 1)["traceback"]


def test_a_rank_that_is_killed():
    with pytest.raises(RunError, match=r"^rank 1 was killed by SIGKILL .* in 1F1 of step -1"):
        faulty("Killed")


def test_a_rank_that_leaves_without_a_word():
    with pytest.raises(RunError, match=r"^rank 1 ended of its own accord, with exit status 0, in 1F1 of step -1"):
        faulty("Leaves")


def test_a_rank_that_hangs():
    with pytest.raises(RunError, match=r"^rank 1 hangs: nothing new from it for 1 s, in 1F1 of step -1"):
        faulty("Hangs", timeout=1)


def test_a_run_after_a_fault_works():
    with pytest.raises(RunError):
        faulty("Killed")
    assert quick(pplab.one_f_one_b(2, 2)).bit_equal


def test_what_ranks_print_is_shown(capsys):
    faulty("Speaks")
    assert "rank 1: hello from the model" in capsys.readouterr().out


def test_an_interrupt_ends_all_ranks():
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(pplab.one_f_one_b(2, 4), Emulated(500, 500, 500), steps=1000)
    assert not children() - OTHERS


@pytest.mark.skipif(not launcher.FORKS, reason="the fork server is for Linux")
def test_ranks_go_when_their_caller_is_killed():
    code = (
        "import pplab; from pplab.distributed import *; print('go', flush=True); "
        "run(pplab.one_f_one_b(2, 4), Emulated(500, 500, 500), steps=1000)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as caller:
        caller.stdout.readline()
        until = time.monotonic() + 30
        while len(below := children(caller.pid)) < 3 and time.monotonic() < until:  # the server and two ranks
            time.sleep(0.05)
        assert len(below) == 3
        caller.kill()
    until = time.monotonic() + 10
    while (left := {pid for pid in below if Path(f"/proc/{pid}").exists()}) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def test_two_runs_at_once_and_the_usual_port_taken():
    with socket.socket() as taken, ThreadPoolExecutor(2) as pool:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 29500))  # torchrun's
        taken.listen()
        results = list(pool.map(quick, [pplab.one_f_one_b(2, 3), pplab.gpipe(2, 3)]))
    assert [r.schedule.name for r in results] == ["1f1b", "gpipe"]
    assert all(r.bit_equal for r in results)


def test_without_a_fork_server(monkeypatch):
    """As on Windows and macOS: a fresh process a rank."""
    monkeypatch.setattr(launcher, "FORKS", False)
    with pytest.raises(RunError, match=r"^rank 1 raised ValueError in 1F1"):
        faulty("Raises")
    assert not children() - OTHERS - {server.process.pid for server in launcher._idle}


def test_the_callers_process_stays_free_of_torch():
    code = (
        "import sys, pplab; from pplab.distributed import *; "
        "r = run(pplab.gpipe(1, 1), Emulated(1, 1, 1), steps=1); assert r.bit_equal; print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "False"


def test_under_torchrun(tmp_path):
    command = "-m torch.distributed.run --nnodes 1 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0"
    worker = (
        f"-m pplab.distributed.worker 1f1b --microbatches 4 --workload emulated --ms 1 --steps 2 --save {tmp_path}/a"
    )
    done = subprocess.run(
        [sys.executable, *command.split(), *worker.split()], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "device: CPU, gloo" in done.stdout
    assert load_run(tmp_path / "a").schedule == pplab.one_f_one_b(2, 4)


# --- Refused before any process starts.


@pytest.fixture
def no_process(monkeypatch):
    """Starting anything is an error."""
    monkeypatch.setattr("pplab.distributed.run_job", lambda job: pytest.fail("a process was started"))


@pytest.mark.parametrize(
    ("schedule", "options", "text"),
    [
        (SCHEDULES["dualpipe"](2, 4), {}, "dualpipe holds stage 0 on two devices"),
        (SCHEDULES["chimera"](2, 4), {}, "chimera holds stage 0 on two devices"),
        (SCHEDULES["forward-only"](2, 4), {}, "forward-only runs forward only, so there is nothing to train"),
        (pplab.gpipe(2, 2), {"engine": "nccl"}, "engine is 'nccl': there are rows, torch-class, by-hand"),
        (pplab.gpipe(2, 2), {"engine": "by-hand"}, "the worker written by hand runs 1f1b only, not gpipe"),
        (pplab.naive(2, 2), {"engine": "torch-class"}, "PyTorch has no class for naive"),
        (pplab.one_f_one_b(4, 3), {"engine": "torch-class"}, "needs at least as many micro-batches as devices, not 3"),
        (pplab.interleaved_1f1b(2, 5), {"engine": "torch-class"}, "multiple of its number of rounds"),
        (pplab.gpipe(2, 2), {"workload": "resnet"}, "workload is 'resnet': give 'transformer' or 'emulated'"),
        (pplab.gpipe(9, 2), {"workload": "transformer"}, "9 stages, but the transformer only 8 layers"),
        (
            pplab.gpipe(2, 2),
            {"workload": Emulated([1, 2, 3])},
            "forward_ms has 3 values, but the schedule has 2 stages",
        ),
        (pplab.gpipe(2, 2), {"steps": 0}, "steps is 0: give a whole number, 1 or more"),
        (pplab.gpipe(2, 2), {"timeout": 0}, "timeout is 0: give seconds"),
    ],
)
def test_refused_before_any_process_starts(no_process, schedule, options, text):
    with pytest.raises(ValueError, match=text):
        run(schedule, options.pop("workload", "emulated"), **options)


def test_what_is_no_schedule_is_refused(no_process):
    with pytest.raises(TypeError, match="is not a schedule"):
        run("1f1b")


def test_more_ranks_than_memory_allows_are_refused(no_process, monkeypatch):
    monkeypatch.setattr(refusals, "available_mb", lambda: 350.0)
    with pytest.raises(ValueError, match="4 ranks need about 400 MB, and 350 MB are free: run on at most 3 devices"):
        run(pplab.gpipe(4, 2), QUICK)


def test_without_torch_the_way_out_is_named(no_process, monkeypatch):
    monkeypatch.setattr(refusals, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"a real run needs PyTorch: pip install .* a stored run can be shown"):
        quick(pplab.gpipe(2, 2))


@pytest.mark.parametrize("path", sorted(DATA.glob("run_*.json")), ids=lambda path: path.stem)
def test_runs_that_come_with_pplab_are_whole_and_right(path):
    r = stored_run(path.stem.removeprefix("run_"))
    assert (r.bit_equal, r.same_bits_twice) == (True, True)
    assert r.whole_batch_error < 1e-6
    assert list(r.live_chunks) == pplab.peak_in_flight(pplab.simulate(r.schedule)).tolist()
    assert pplab.makespan(simulate_fitted(r)) == pytest.approx(r.step_time, rel=0.1)


def simulate_fitted(r):
    """The run as its own costs predict it."""
    return pplab.simulate(r.schedule, r.fit_costs())


def test_a_stored_run_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no stored run is called 'bert': there are 1f1b_d2_transformer, "):
        stored_run("bert")


def test_free_memory_is_a_sensible_number():
    free = refusals.available_mb()
    assert free is None or 10 < free < 1e8


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"forward_ms": -1}, "forward_ms must be milliseconds"),
        ({"backward_weight_ms": "fast"}, "backward_weight_ms must be milliseconds"),
        ({"loss": "median"}, "loss is 'median': give 'mean'"),
    ],
)
def test_a_workload_with_impossible_times_is_refused(values, text):
    with pytest.raises(ValueError, match=text):
        Emulated(**values)


def test_a_transformer_with_impossible_sizes_is_refused():
    with pytest.raises(ValueError, match="layers is 0: give a whole number"):
        Transformer(layers=0)
    with pytest.raises(ValueError, match="num_heads is 3, which does not divide hidden_size, 256"):
        Transformer(num_heads=3)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OtherShape", r"stage 1 gives for micro-batch 0 \(2, 32\) torch.float32, where \(2, 4, 8\) torch.float32"),
        ("NotContiguous", "stage 1 gives for micro-batch 0 a tensor that is not contiguous"),
        ("ShapeChanges", r"stage 1 gives for micro-batch 2 \(1, 4, 8\) torch.float32, where \(2, 4, 8\)"),
    ],
)
def test_a_model_whose_boundaries_are_wrong_is_refused_before_the_ranks_start(name, text):
    with pytest.raises(ValueError, match=text):
        quick(pplab.gpipe(3, 3), Emulated(1, 1, 1, model=f"faulty_models:{name}"))


def test_costs_of_a_transformer_have_to_be_given():
    r = load_run_of_no_costs()
    with pytest.raises(ValueError, match="a transformer's passes have no nominal times"):
        r.prediction_error()
    assert r.prediction_error(Costs()) == {"median": 0, "fastest": 0, "slowest": 0}


def load_run_of_no_costs():
    """A result without a run."""
    s = pplab.gpipe(1, 1)
    return d.RunResult(s, Transformer(), "rows", "CPU", np.array([[0, 1]]), np.array([[1, 3]]), (1.0,), {}, None, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
@pytest.mark.parametrize("name", ["a b", "ü", "a#b", "a%20b", "a?b"])
def test_a_folder_for_temporary_files_may_have_any_name(name, tmp_path, monkeypatch):
    (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
    assert quick(pplab.gpipe(2, 2), check=False).losses


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
def test_a_server_that_stops_answering_ends_the_run():
    quick(pplab.gpipe(2, 2), check=False)  # so that a server is there
    server = launcher._idle[0].process.pid
    threading.Timer(1.0, lambda: os.kill(server, signal.SIGSTOP)).start()
    with pytest.raises(RunError, match="does not answer any more"):
        run(pplab.gpipe(2, 2), Emulated(200, 200, 200), steps=20, timeout=2, check=False)
    assert quick(pplab.gpipe(2, 2), check=False).losses


def test_a_model_that_does_not_fit_is_refused(no_process):
    with pytest.raises(
        ValueError, match=r"the model needs about \d+ MB, and \d+ MB are free: give it fewer or smaller"
    ):
        run(pplab.gpipe(2, 2), Transformer(hidden_size=40_000, num_heads=1))


def test_sizes_of_numpy_are_whole_numbers_too():
    assert Transformer(layers=np.int64(4)) == Transformer(layers=4)
    assert type(Transformer(layers=np.int64(4)).layers) is int


@pytest.mark.parametrize("change", [{"schedule": None}, {"workload": {"name": "zz"}}, {"more": 1}, {"start": [[0.0]]}])
def test_a_stored_run_that_is_damaged_is_refused(change, tmp_path):
    data = json.loads((DATA / "run_gpipe_d4.json").read_text(encoding="utf-8")) | change
    (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match=r"r\.json lacks something that RunResult\.save writes, or holds more"):
        load_run(tmp_path / "r.json")
