"""How long a search takes and how near its bound it comes; the zero-bubble paper's Table 5 beside its own results."""

import json
import time
from pathlib import Path

import pplab

TABLE5 = json.loads((Path(__file__).parents[1] / "tests/data/zero_bubble_table5.json").read_text())


def searched(label: str, costs: pplab.Costs, *sizes: float, **options: object) -> pplab.Schedule:
    """Search, and print a line of the table without its end."""
    begin = time.perf_counter()
    s = pplab.search(costs, *sizes, **options)
    print(f"{label:34} {time.perf_counter() - begin:6.1f} s  {s.length:10.2f}  {s.gap:7.2%}", end="")
    return s


def main() -> None:
    """Print the table."""
    print(f"{'':34} {'time':>8}  {'length':>10}  {'gap':>7}  bubble by span, and the paper's")
    models = {model["model"]: model for model in TABLE5["models"]}
    for row in TABLE5["rows"]:
        model, p = models[row["model"]], row["p"]
        left = 32 * model["hidden"] / (34 * model["hidden"] + 5 * model["heads"] * model["seq"])
        costs = pplab.Costs(row["T_F"], row["T_B"], row["T_W"], row["T_comm"])
        for name, limit in (("ZB-1p", p), ("ZB-2p", 2 * p)):
            label = f"{name}: {p} devices, {row['m']} micro-batches"
            s = searched(label, costs, p, row["m"], memory_limit=limit, weight_activation=left, over="span")
            bubble = pplab.bubble_fraction(pplab.simulate(s, costs), over="span")
            print(f"  {bubble:.4f} {row['paper_bubble_rate'][name]:.4f}")
    for chunks, limit in ((1, 4), (1, 3), (2, 4), (2, 3), (2, 2)):
        costs = pplab.Costs(1 / chunks, 1 / chunks, 1 / chunks)
        searched(f"4 devices, 8, V = {chunks}, at most {limit}", costs, 4, 8, chunks, limit, placement="v")
        print()


if __name__ == "__main__":
    main()
