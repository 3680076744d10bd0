"""How long a picture takes: SVG for sliders, Matplotlib for stored figures; and one move of a slider, in Python."""

from bench_simulate import seconds

import pplab
from pplab.widgets import explore


def main() -> None:
    """Print the table."""
    print(f"{'boxes':>7} {'SVG string':>12} {'picture':>10}")
    for num_devices, num_microbatches in ((4, 8), (8, 64), (16, 256)):
        t = pplab.simulate(pplab.one_f_one_b(num_devices, num_microbatches))
        drawn, stored = seconds(lambda t=t: pplab.svg.timeline(t), 9), seconds(lambda t=t: pplab.picture(t), 3)
        print(f"{len(t):7} {drawn * 1e3:9.1f} ms {stored * 1e3:7.0f} ms")
    explorer = explore("gpipe", "1f1b", num_devices=8, num_microbatches=63)

    def move() -> None:
        explorer.microbatches.value = 127 - explorer.microbatches.value  # 63, 64, 63, …

    print(f"one move of a slider, two schedules of 8 × 64: {seconds(move, 20) * 1e3:.1f} ms in the kernel")


if __name__ == "__main__":
    main()
