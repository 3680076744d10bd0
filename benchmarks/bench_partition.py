"""How long the best cut takes, beside the plain dynamic programme of O(L²·D), on random layer times in the same run."""

import numpy as np
from bench_simulate import seconds

from pplab.partition import optimal


def plain(times: np.ndarray, num_stages: int) -> float:
    """The slowest stage of the best cut, by the textbook's recursion over the last cut."""
    before = np.concatenate([[0.0], np.cumsum(times)])
    best = before.copy()
    best[0] = np.inf
    for _ in range(num_stages - 1):
        reach = range(1, len(before))
        best = np.array([np.inf, *(np.maximum(best[:j], before[j] - before[:j]).min() for j in reach)])
    return float(best[-1])


def main() -> None:
    """Print the table."""
    print(f"{'layers':>7} {'stages':>7} {'pplab':>10} {'plain':>10} {'ratio':>7}")
    for num_layers, num_stages in ((96, 8), (1_000, 16), (10_000, 64)):
        times = np.random.default_rng(0).random(num_layers)
        ours = seconds(lambda t=times, d=num_stages: optimal(t, d), 5)
        if num_layers > 1_000:
            print(f"{num_layers:7} {num_stages:7} {ours * 1e3:7.1f} ms")
            continue
        assert np.isclose(plain(times, num_stages), optimal(times, num_stages).slowest)
        other = seconds(lambda t=times, d=num_stages: plain(t, d), 1)
        print(f"{num_layers:7} {num_stages:7} {ours * 1e3:7.1f} ms {other * 1e3:7.1f} ms {other / ours:6.0f}×")


if __name__ == "__main__":
    main()
