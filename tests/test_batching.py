"""What makes up a batch, the ways to a global batch, and a matmul timed on this machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

import pplab
from pplab import SCHEDULES, Costs, batching
from pplab.batching import BatchLayout, batch_layouts, measure_matmul, total_batch
from pplab.chapter import bubble_formula, message_bytes

# ── Batch sizes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_total_batch_is_the_product():
    assert total_batch(num_microbatches=8, micro_batch_size=4) == 32
    assert total_batch(8, 4, num_replicas=16) == 512


@given(st.integers(1, 60), st.integers(1, 5), st.none() | st.integers(5, 40), st.none() | st.integers(1, 3))
@examples(60)
def test_layouts_are_all_that_there_are(batch, d, total, replicas):
    """Against three loops; bubble and micro-batches in flight of 1F1B by their closed forms."""
    found = batch_layouts(batch, d, total) if total is None or replicas is None else None
    if found is None:
        if batch % replicas or replicas * d > total:
            return
        found = batch_layouts(batch, d, total, num_replicas=replicas)
    expected = {
        (m, b, r)
        for m in range(1, batch + 1)
        for b in range(1, batch // m + 1)
        for r in range(1, batch // (m * b) + 1)
        if r * m * b == batch and (total is None or (d * r <= total and (replicas is None or r == replicas)))
    }
    assert {row[:3] for row in found} == expected
    assert len(found) == len(expected)
    for row in found:
        assert total_batch(*row[:3]) == batch
        assert row.bubble == pytest.approx(bubble_formula(d, row.num_microbatches), abs=1e-12)
        assert row.in_flight == min(row.num_microbatches, d)
        assert row.activation_bytes == 2 * row.in_flight * row.micro_batch_size
    assert [row.bubble for row in found] == sorted(row.bubble for row in found)


def test_layouts_of_a_case_by_hand():
    """Global batch 4 on pipelines of 2 devices, 4 devices in all: one pipeline or two."""
    assert batch_layouts(4, 2, total_devices=4) == [
        BatchLayout(4, 1, 1, pytest.approx(1 / 5), 2, 4),
        BatchLayout(2, 1, 2, pytest.approx(1 / 3), 2, 4),
        BatchLayout(2, 2, 1, pytest.approx(1 / 3), 2, 8),
        BatchLayout(1, 2, 2, pytest.approx(1 / 2), 1, 4),
        BatchLayout(1, 4, 1, pytest.approx(1 / 2), 1, 8),
    ]


def test_bytes_are_the_messages_that_are_held():
    """The chapter's B=4, T=2048, H=12288 in bf16, on 8 stages: 8 tensors under 1F1B, M under GPipe (E3)."""
    sizes = dict(seq_len=2048, hidden_size=12288, micro_batch_size=4, num_replicas=1)
    for schedule, held in (("1f1b", 8), ("gpipe", 16), ("naive", 1)):
        (row,) = batch_layouts(64, 8, schedule=schedule, **sizes)
        assert row[:3] == (16, 4, 1)
        assert row.in_flight == held
        assert row.activation_bytes == held * message_bytes(4, 2048, 12288)
        assert row.bubble == pytest.approx(bubble_formula(8, 16, schedule))


def test_what_1f1b_allows_is_more_micro_batches_at_the_same_memory():
    """E14: B stays, M grows, the bubble shrinks and the bytes do not; GPipe's do."""
    one, gpipe = (
        {row.num_microbatches: row for m in (8, 64) for row in batch_layouts(m, 4, micro_batch_size=1, schedule=name)}
        for name in ("1f1b", "gpipe")
    )
    assert one[64].bubble < one[8].bubble
    assert one[64].activation_bytes == one[8].activation_bytes
    assert gpipe[64].activation_bytes == 8 * gpipe[8].activation_bytes


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_simulated(name):
    rows = batch_layouts(16, 2, schedule=name, num_replicas=1)
    for row in rows:
        t = pplab.simulate(SCHEDULES[name](2, row.num_microbatches))
        assert row.bubble == pplab.bubble_fraction(t)
        assert row.in_flight == pplab.peak_in_flight(t).max()


def test_costs_are_the_simulations():
    (row,) = batch_layouts(4, 2, micro_batch_size=1, num_replicas=1, costs=Costs(hop=1.0))
    t = pplab.simulate(pplab.one_f_one_b(2, 4), Costs(hop=1.0))
    assert row.bubble == pplab.bubble_fraction(t) > bubble_formula(2, 4)


def test_sizes_that_a_schedule_refuses_are_left_out(monkeypatch):
    def even(num_devices, num_microbatches):
        if num_microbatches % 2:
            raise ValueError(f"even needs an even num_microbatches, not {num_microbatches}")
        return pplab.gpipe(num_devices, num_microbatches)

    monkeypatch.setitem(SCHEDULES, "even", even)
    rows = batch_layouts(6, 2, schedule="even", num_replicas=1)
    assert [row.num_microbatches for row in rows] == [6, 2]
    with pytest.raises(ValueError, match=r"even takes none of \[1, 3\] micro-batches on 2 devices: even needs an even"):
        batch_layouts(3, 2, schedule="even")


ERRORS = [
    (dict(global_batch=30, micro_batch_size=4), "batch of 30 with micro_batch_size 4, .* multiple of 4: .* is 28"),
    (dict(global_batch=31, micro_batch_size=4), "the nearest that does is 32"),
    (dict(global_batch=3, micro_batch_size=8, num_replicas=2), "num_replicas 2 and micro_batch_size 8.* nearest .* 16"),
    (dict(total_devices=3), "3 devices in all are too few for 1 pipeline of 4: give 4 or more"),
    (dict(total_devices=8, num_replicas=4), "8 devices in all are too few for 4 pipelines of 4: give 16 or more"),
    (dict(schedule="2f2b"), "schedule is '2f2b': choose one of naive, gpipe, 1f1b"),
    (dict(global_batch=2**20), "1048576 micro-batches on 4 devices are too many to simulate: fix a larger"),
    *(
        ({name: bad}, f"{name} is {bad}: give a whole number of 1 or more")
        for name in (
            "global_batch",
            "num_devices",
            "total_devices",
            "micro_batch_size",
            "num_replicas",
            "seq_len",
            "hidden_size",
            "bytes_per_element",
        )
        for bad in (0, -1, 2.5, True)
    ),
]


@pytest.mark.parametrize(("sizes", "text"), ERRORS)
def test_layouts_that_cannot_be(sizes, text):
    with pytest.raises(ValueError, match=text):
        batch_layouts(**{"global_batch": 32, "num_devices": 4} | sizes)


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 6))
@examples(60)
def test_the_nearest_global_batch_is_the_nearest(batch, size, replicas):
    def works(n):
        return n > 0 and n % (size * replicas) == 0

    if works(batch):
        return
    with pytest.raises(ValueError, match="nearest that does is") as error:
        batch_layouts(batch, 1, micro_batch_size=size, num_replicas=replicas)
    named = int(str(error.value).split()[-1])
    assert works(named)
    assert not any(works(n) for n in range(1, 500) if abs(n - batch) < abs(named - batch))


@pytest.mark.parametrize("name", ["num_microbatches", "micro_batch_size", "num_replicas"])
def test_a_batch_of_nothing(name):
    with pytest.raises(ValueError, match=f"{name} is 0: give a whole number of 1 or more"):
        total_batch(**{"num_microbatches": 2, "micro_batch_size": 2} | {name: 0})


# ── The measured matmul ───────────────────────────────────────────────────────────────────────────────────────────


class Clock:
    """A clock that moves only while a product is computed: a second, then 2, then 3, …"""

    def __init__(self, monkeypatch):
        self.now, self.products = 0.0, []
        monkeypatch.setattr(batching, "perf_counter", lambda: self.now)
        monkeypatch.setattr(batching.np, "matmul", self.product)

    def product(self, x, weights, out):
        """Take longer each time."""
        self.products.append((x.shape, weights.shape, x.dtype.name))
        self.now += len(self.products)


def test_seconds_are_the_median_without_the_first_product(monkeypatch):
    clock = Clock(monkeypatch)
    (speed,) = measure_matmul([8], hidden_size=16, repeats=3, most_seconds=100)
    assert clock.products == [((8, 16), (16, 16), "float32")] * 4
    assert (speed.rows, speed.seconds) == (8, 3)  # of 2, 3 and 4
    assert speed.flops_per_second == 2 * 8 * 16 * 16 / 3


def test_a_slow_machine_repeats_less(monkeypatch):
    clock = Clock(monkeypatch)
    assert [row.rows for row in measure_matmul([1, 2], hidden_size=4, repeats=50, most_seconds=0.001)] == [1, 2]
    assert len(clock.products) == 4


def test_a_coarse_clock_gives_no_infinite_speed(monkeypatch):
    monkeypatch.setattr(batching, "perf_counter", lambda: 0.0)
    (speed,) = measure_matmul([1], hidden_size=2, repeats=3)
    assert 0 < speed.flops_per_second < float("inf")


def test_many_rows_reach_more_than_one_row_does():
    """E14, E15: on the machine that runs this, if it is left in peace once in ten tries."""
    tries = (measure_matmul([1, 256], hidden_size=1024, most_seconds=0.5) for _ in range(10))
    assert any(many.flops_per_second > one.flops_per_second for one, many in tries)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (dict(rows=[]), "rows is empty: give one number of rows or more"),
        (dict(rows=[4, 0]), "rows is 0: give a whole number of 1 or more"),
        (dict(hidden_size=0), "hidden_size is 0: give"),
        (dict(repeats=0), "repeats is 0: give"),
        (dict(rows=[10**7]), "10000000 rows at hidden_size 512 need over 1 GiB: give fewer"),
    ],
)
def test_matmuls_that_cannot_be(sizes, text):
    with pytest.raises(ValueError, match=text):
        measure_matmul(**sizes)


def test_a_global_batch_with_too_many_digits_is_refused_at_once():
    with pytest.raises(ValueError, match="global_batch is 1000000000000000009: give at most 1,000,000,000 samples"):
        batch_layouts(10**18 + 9, 4)
