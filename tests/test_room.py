"""Where cores, memory or PyTorch are short, it is said, and a stored run is shown. Nothing runs here."""

from dataclasses import replace

import pytest

import pplab
from pplab import distributed as d
from pplab.distributed import refusals, room, run_beside, stored_run

TRANSFORMER, SLEEPS = stored_run("1f1b_d2_transformer"), stored_run("1f1b_d4")


@pytest.mark.parametrize(
    ("result", "cores", "load", "short"),
    [
        (TRANSFORMER, 2.0, 0.0, False),
        (TRANSFORMER, 2.0, 0.4, False),
        (TRANSFORMER, 2.0, 0.6, True),
        (TRANSFORMER, 4.0, 2.0, False),
        (TRANSFORMER, 1.0, 0.0, True),
        (TRANSFORMER, 2.0, None, False),
        (replace(TRANSFORMER, device="2 GPUs, NCCL"), 1.0, 1.0, False),
        (SLEEPS, 1.0, 1.0, False),  # who sleeps needs no core
    ],
)
def test_cores_are_short_where_ranks_that_compute_share_them(monkeypatch, result, cores, load, short):
    monkeypatch.setattr(room, "usable_cores", lambda: cores)
    said = room.shortage(replace(result, load=load))
    assert bool(said) == short
    if short:
        assert said.startswith(f"cores are short: 2 ranks compute on {cores:g}, of which other work took {load:.2f}")


@pytest.mark.parametrize(
    ("limit", "cores"), [("50000 100000", 0.5), ("max 100000", 3), ("9900000 100000", 3), (None, 3)]
)
def test_usable_cores_are_those_of_the_process_and_of_its_container(monkeypatch, tmp_path, limit, cores):
    if limit:
        (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(room, "Path", lambda _: tmp_path / "cpu.max")
    monkeypatch.setattr(room.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert room.usable_cores() == cores


@pytest.fixture
def here(monkeypatch):
    """A run of this machine, without running anything; its load can be set."""
    monkeypatch.setattr(d, "check_torch", lambda: None)
    monkeypatch.setattr(d, "check_memory", lambda ranks: None)
    monkeypatch.setattr(room, "usable_cores", lambda: 2.0)

    def set_to(load):
        result = replace(TRANSFORMER, load=load)
        monkeypatch.setattr(d, "run", lambda *_, **__: result)
        return result

    return set_to


def beside():
    return run_beside("1f1b_d2_transformer", TRANSFORMER.schedule)


def test_with_room_the_run_stands_alone(here, capsys):
    result = here(0.0)
    assert beside() == (result,)
    assert capsys.readouterr().out == ""


def test_short_of_cores_the_stored_run_follows(here, capsys):
    result = here(1.5)
    mine, stored = beside()
    assert mine is result and stored.step_time == TRANSFORMER.step_time
    assert capsys.readouterr().out.endswith("For comparison: the stored run 1f1b_d2_transformer\n")


def test_short_of_memory_or_without_torch_the_stored_run_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(d, "run", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.setattr(refusals, "available_mb", lambda: 150.0)
    (stored,) = beside()
    assert stored.step_time == TRANSFORMER.step_time
    said = capsys.readouterr().out
    assert said.startswith("nothing was run here: 2 ranks need about 200 MB, and 150 MB are free")
    assert said.endswith("the stored run 1f1b_d2_transformer\n")
    monkeypatch.setattr(refusals, "available_mb", lambda: None)
    monkeypatch.setattr(refusals, "find_spec", lambda _: None)
    assert len(beside()) == 1
    assert "a real run needs PyTorch" in capsys.readouterr().out


def test_mistakes_are_no_shortage(here):
    here(0.0)
    with pytest.raises(ValueError, match="no stored run is called 'bert'"):
        run_beside("bert", TRANSFORMER.schedule)
    with pytest.raises(TypeError):
        run_beside("1f1b_d2_transformer", ["0F0 0B0"])


def test_compare_gives_the_error_as_a_number_and_a_band():
    times = 1e3 * SLEEPS.step_times
    said = replace(SLEEPS, load=0.25, cores=2).compare()
    predicted = 1e3 * pplab.makespan(pplab.simulate(SLEEPS.schedule, SLEEPS.workload.costs()))
    assert predicted == pytest.approx(660)
    assert f"predicted 660 ms, measured {SLEEPS.step_time * 1e3:.0f} ({times.min():.0f} to {times.max():.0f})" in said
    assert f"error {660 / (SLEEPS.step_time * 1e3) - 1:+.1%}, " in said
    assert f"band {660 / times.max() - 1:+.1%} to {660 / times.min() - 1:+.1%}\n" in said
    assert said.endswith("10 steps on 2 cores, of which other work took 0.25")
    assert replace(SLEEPS, load=None).compare().endswith("other work took an unknown part")
