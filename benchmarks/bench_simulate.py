"""How quick pplab is: building, validating and timing schedules; 1F1B beside PyTorch's send/receive pass and simulator.

Prints medians, and ratios of times taken in turn on one machine; absolute times depend on it. PyTorch's part is
left out where torch is not installed.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import pplab


def seconds(work: Callable[[], Any], repeat: int) -> float:
    """The median time of a call, after one that warms up."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def torch_simulation(num_devices: int, num_microbatches: int) -> Callable[[], Any] | None:
    """PyTorch's own way with the same rows: insert sends and receives, then simulate; None without torch."""
    try:
        from torch.distributed.pipelining import schedules
    except ImportError:
        return None
    rows = pplab.one_f_one_b(num_devices, num_microbatches).rows
    actions = {d: [schedules._Action.from_str(str(op)) for op in row] for d, row in enumerate(rows)}

    def run() -> Any:
        with_messages = schedules._add_send_recv(
            {d: list(row) for d, row in actions.items()}, stage_to_rank=lambda stage: stage, num_stages=num_devices
        )
        return schedules._simulate_comms_compute(with_messages, stage_to_rank=lambda s: s, num_stages=num_devices)

    return run


def main() -> None:
    """Print the table."""
    print(f"{'1F1B':24} {'pplab':>10} {'PyTorch':>10} {'ratio':>7}")
    for num_devices, num_microbatches, repeat in ((4, 8, 200), (8, 64, 50), (16, 256, 15), (64, 1024, 5)):
        ours = seconds(lambda d=num_devices, m=num_microbatches: pplab.simulate(pplab.one_f_one_b(d, m)), repeat)
        theirs = torch_simulation(num_devices, num_microbatches)
        name = f"D = {num_devices}, M = {num_microbatches}"
        if theirs is None:
            print(f"{name:24} {ours * 1e3:7.2f} ms {'no torch':>10}")
            continue
        other = seconds(theirs, max(1, min(3, repeat // 5)))
        print(f"{name:24} {ours * 1e3:7.2f} ms {other * 1e3:7.1f} ms {other / ours:6.0f}×")
    print("\nD = 64, M = 1024")
    for name, chunks in (("interleaved-1f1b", 2), ("zb-h1", 1)):
        build = pplab.SCHEDULES[name]
        ours = seconds(lambda build=build, v=chunks: pplab.simulate(build(64, 1024, num_chunks=v)), 5)
        print(f"{name + f', V = {chunks}':24} {ours * 1e3:7.2f} ms")


if __name__ == "__main__":
    main()
