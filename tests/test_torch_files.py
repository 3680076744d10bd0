"""PyTorch's own CSV files: read, timed as other tools time them, drawn, written and read again."""

from pathlib import Path

import pytest

import pplab
from pplab import Costs, Schedule, makespan, peak_in_flight, read_torch_csv, simulate, write_torch_csv
from pplab.draw import draw_timeline
from pplab.svg import timeline

FOLDER = Path(__file__).parent / "data/torch_csv"
FILES = {path.name: path for path in sorted(FOLDER.glob("*.compute_only.csv"))}
# Slots at F = I = W = 1, B = 2, no hop, pairs fused, on which independent tools agree.
MAKESPANS = {
    "Interleaved1F1B_D4_M8_V2": 57,
    "LoopedBFS_D4_M8_V2": 57,
    "InterleavedZeroBubble_D4_M8_V2": 51,
    "ZBVZeroBubble_D4_M8_V2": 51,
    "DualPipeV_D4_M8_V2": 54,
    "Interleaved1F1B_D2_M4_V2": 27,
    "LoopedBFS_D2_M4_V2": 27,
    "InterleavedZeroBubble_D2_M4_V2": 25,
    "ZBVZeroBubble_D2_M4_V2": 25,
    "DualPipeV_D2_M4_V2": 26,
}

every_file = pytest.mark.parametrize("name", FILES)


def read(name: str) -> Schedule:
    """The compute_only file of a schedule."""
    return read_torch_csv(FOLDER / f"{name}.compute_only.csv")


def test_every_file_has_an_expected_makespan():
    assert {name.split(".")[0] for name in FILES} == set(MAKESPANS)


@pytest.mark.parametrize("name", MAKESPANS)
def test_makespans_on_which_other_tools_agree(name):
    s = read(name)
    d, m, v = (int(part[1:]) for part in name.split("_")[1:])
    assert (s.num_devices, s.num_microbatches, s.num_stages, s.name) == (d, m, d * v, name)
    assert makespan(simulate(s)) == MAKESPANS[name]
    assert pplab.lower_bound(s) <= MAKESPANS[name]


@pytest.mark.parametrize(
    ("name", "slots"), [("DualPipeV_D4_M8_V2", 51), ("Interleaved1F1B_D4_M8_V2", 57), ("ZBVZeroBubble_D4_M8_V2", 51)]
)
def test_makespans_with_pairs_as_two_ops_one_after_the_other(name, slots):
    assert makespan(simulate(Schedule(read(name).rows))) == slots


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("Interleaved1F1B_D4_M8_V2", [11, 9, 7, 5]),  # min(VM, 2(D−k−1) + (V−1)G + 1), groups of G = 4
        ("ZBVZeroBubble_D4_M8_V2", [8, 8, 8, 8]),
        ("LoopedBFS_D4_M8_V2", [16, 16, 16, 16]),
        ("DualPipeV_D4_M8_V2", [9, 9, 9, 9]),  # 2D + 1
    ],
)
def test_peaks_in_chunks(name, held):
    assert peak_in_flight(simulate(read(name))).tolist() == held


@pytest.mark.parametrize("name", MAKESPANS)
def test_idle_time_without_hops_and_with_equal_stages_is_ramp_drain_and_order(name):
    idle = pplab.idle_by_reason(simulate(read(name)))
    for reason in ("slower stage", "hop", "communication"):
        assert not idle[reason].any()


@pytest.mark.parametrize("d", [2, 4])
def test_dualpipevs_largest_idle_time_is_the_papers(d):
    """DeepSeek-V3: (PP/2 − 1)(F&B + B − 3W) on PP/2 devices, here F&B = 3, B = 2, W = 1."""
    t = simulate(read(f"DualPipeV_D{d}_M{2 * d}_V2"))
    assert max(makespan(t) - pplab.busy_time(t)) == (d - 1) * (3 + 2 - 3)


def test_interleaving_fills_its_bubble_v_times_better():
    """(D−1)/(VM+D−1) of the time, with V chunks that cost 1/V of a device's work each."""
    s = read("Interleaved1F1B_D4_M8_V2")
    t = simulate(s, Costs.per_device(s, forward=1, backward=2))
    assert pplab.bubble_fraction(t) == pytest.approx(3 / (2 * 8 + 3))
    assert makespan(t) == 57 / 2


@every_file
def test_drawing_blanks_are_not_times(name):
    text = FILES[name].read_text()
    blanks = text.count(",,") + sum(line.startswith(",") for line in text.splitlines())
    assert blanks > 0 or "DualPipeV" in name
    cells = [cell for line in text.split() for cell in line.split(",") if cell]
    assert read_torch_csv(FILES[name]).num_ops == sum(1 + ("OVERLAP" in cell) for cell in cells)


@every_file
def test_draws(name):
    t = simulate(read_torch_csv(FILES[name]))
    assert timeline(t).count("<g><title>") == len(t)
    ax = draw_timeline(t)
    ax.get_figure().canvas.draw()
    assert ax.get_title(loc="left") == t.schedule.name


@every_file
def test_written_and_read_back_it_is_the_same(name, tmp_path):
    s = read_torch_csv(FILES[name])
    write_torch_csv(s, tmp_path / "copy.csv")
    again = read_torch_csv(tmp_path / "copy.csv", name="again")
    assert again == s
    assert again.pairs == s.pairs
    assert again.name == "again"
    theirs = [[cell for cell in line.split(",") if cell] for line in FILES[name].read_text().splitlines()]
    assert [line.split(",") for line in (tmp_path / "copy.csv").read_text().splitlines()] == theirs


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.compute_comms*.csv")), ids=lambda path: path.name)
def test_lowered_files_hold_the_same_passes(path):
    lowered, plain = read_torch_csv(path), read(path.name.split(".")[0])
    assert [sorted(row) for row in lowered.rows] == [sorted(row) for row in plain.rows]
    assert lowered == plain
    assert makespan(simulate(lowered)) == MAKESPANS[plain.name]
