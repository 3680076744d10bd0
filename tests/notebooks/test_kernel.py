"""A kernel stays small: Binder's gigabyte holds it beside real runs. bench_notebooks.py measures every notebook."""

from pathlib import Path

import pytest
from bench_notebooks import LIMIT, NOTEBOOKS, measure

# with the most memory of all, and the one with real runs
HEAVIEST = [name for name in ("08_two_gpus", "09_imbalance_and_links") if Path(NOTEBOOKS, f"{name}.ipynb").exists()]


@pytest.mark.parametrize("name", HEAVIEST)
def test_memory_of_the_heaviest(name: str) -> None:
    _, own, child = measure(NOTEBOOKS / f"{name}.ipynb")
    assert 50 < own < LIMIT
    assert own + 2 * child < 1000  # two ranks at once
