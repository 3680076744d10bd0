"""The planner's step times beside published ones, with one efficiency for all, and how long a full search takes."""

import json
from pathlib import Path
from time import perf_counter

import numpy as np

from pplab.cluster import Cluster
from pplab.layouts import build, stage_devices
from pplab.model import TransformerModel
from pplab.plan_table import PlannedLayout
from pplab.planner import memory_of_one, plan

EFFICIENCY = 0.55  # of the A100's peak, for every row; of those below, the one with the least mean error
ROWS = Path(__file__).parent.parent / "tests" / "data" / "published_steps.json"


def best_layout(row: dict, efficiency: float = EFFICIENCY) -> PlannedLayout:
    """The planner's best for a published row, in which what the paper does not give is searched."""
    model = TransformerModel(row["num_layers"], row["hidden_size"], row["num_heads"], 51_200, 2048, name=row["name"])
    sizes = {key: row[key] for key in ("tensor", "pipeline", "data", "recompute")}
    sizes |= {key: row[key] for key in ("num_chunks", "micro_batch_size", "sequence_parallel") if key in row}
    num_nodes = row["tensor"] * row["pipeline"] * row["data"] // 8
    schedules = ("1f1b", "interleaved-1f1b")
    cluster = Cluster("A100 80GB", num_nodes)
    return plan(model, cluster, row["batch"], efficiency=efficiency, schedules=schedules, **sizes).best


def errors(rows: list[dict], efficiency: float) -> np.ndarray:
    """How far each row's time is off, as a share of the published one."""
    return np.array([best_layout(row, efficiency).step_time / row["step_seconds"] - 1 for row in rows])


def print_rows(rows: list[dict]) -> None:
    """Each published time beside ours."""
    print(f"efficiency {EFFICIENCY} for every row; micro-batch size and V searched where they are not published")
    print(f"{'model':>11} {'t × p × d':>11} {'V':>2} {'b':>2} {'published':>10} {'pplab':>8} {'error':>7}  by cause, s")
    for row in rows:
        best = best_layout(row)
        x, ours = best.layout, best.step_time
        causes = ", ".join(f"{k} {v:.2f}" for k, v in vars(best.time).items())
        print(
            f"{row['name']:>11} {f'{x.tensor} × {x.pipeline} × {x.data}':>11} {x.num_chunks:2} {x.micro_batch_size:2} "
            f"{row['step_seconds']:8.2f} s {ours:6.2f} s {ours / row['step_seconds'] - 1:+7.1%}  {causes}"
        )


def print_efficiencies(rows: list[dict]) -> None:
    """How the errors depend on the one number, and each row's under the number that suits the other rows best."""
    grid = np.round(np.arange(0.45, 0.66, 0.01), 2)
    off = np.array([errors(rows, efficiency) for efficiency in grid])
    for efficiency, row in zip(grid, abs(off), strict=True):
        if round(100 * efficiency) % 5 == 0:
            print(f"efficiency {efficiency:.2f}: mean absolute error {row.mean():.1%}, largest {row.max():.1%}")
    suits = [np.argmin(abs(np.delete(off, k, axis=1)).mean(axis=1)) for k in range(len(rows))]
    left_out = off[suits, range(len(rows))]
    each = ", ".join(f"{x:+.1%}" for x in left_out)
    print(f"each row under what suits the others best: {each}; mean {abs(left_out).mean():.1%}")


def print_search() -> None:
    """How long a full search takes, with nothing kept from before."""
    for more in ({}, {"sequence_parallel": True, "sharded_optimizer": True}):
        for cache in (build, stage_devices, memory_of_one):
            cache.cache_clear()
        start = perf_counter()
        found = plan("GPT-3 175B", Cluster("A100 80GB", 128), 1536, efficiency=EFFICIENCY, **more)
        took = perf_counter() - start
        print(
            f"{len(found.rows) + len(found.rejected)} layouts, {len(found)} fit, searched in {took:.2f} s {more or ''}"
        )


def main() -> None:
    """Print the tables."""
    rows = [row for table in json.loads(ROWS.read_text(encoding="utf-8")).values() for row in table]
    print_rows(rows)
    print_efficiencies(rows)
    print_search()


if __name__ == "__main__":
    main()
