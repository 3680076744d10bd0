"""The command line: python -m pplab trace | compare | run | scores."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pplab import svg
from pplab.costs import Costs
from pplab.distributed import RunError, profile, run
from pplab.distributed.options import add_options, build_schedule, run_options
from pplab.io import read_torch_csv, write_chrome_trace, write_torch_csv
from pplab.metrics import bubble_fraction, lower_bound, makespan, peak_in_flight
from pplab.schedule import Schedule
from pplab.schedules import SCHEDULES
from pplab.simulate import simulate

_EXAMPLES = """examples:
  python -m pplab trace 1f1b --devices 4 --microbatches 4        the chapter's worked example, slot by slot
  python -m pplab trace gpipe --devices 4 --microbatches 8 --backward 2 --svg gpipe.svg
  python -m pplab trace my_rows.csv                              a schedule in PyTorch's CSV format
  python -m pplab compare --devices 8 --microbatches 64 --backward 2 --hop 0.5
  python -m pplab run 1f1b --devices 2 --microbatches 8          on real processes, with PyTorch
  python -m pplab scores handed_in/ > class.csv                  "beat the bubble": the table of a class
times are in slots or in any unit you like: what goes in comes out."""
_COLUMNS = "bound / time: the lower bound over the makespan; no order of these passes can get beyond 100%.\n\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status: 2 after a mistake in the arguments, 1 after a run that failed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, OSError, ImportError) as error:
        print(f"pplab: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"pplab: the run failed: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m pplab",
        description="Pipeline schedules: print, compare, draw, store.",
        epilog=_EXAMPLES,
        formatter_class=layout,
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    trace = commands.add_parser(
        "trace", help="print one schedule slot by slot", epilog=_EXAMPLES, formatter_class=layout
    )
    trace.add_argument("schedule", help=f"{', '.join(SCHEDULES)}, or a .csv file of PyTorch's")
    trace.add_argument("--svg", metavar="FILE", help="draw it into an SVG file")
    trace.add_argument("--csv", metavar="FILE", help="write its ops as PyTorch's CSV")
    trace.add_argument("--trace", metavar="FILE", help="write a Chrome trace for Perfetto")
    trace.set_defaults(run=_trace)
    compare = commands.add_parser(
        "compare", help="print a table of schedules", epilog=_COLUMNS + _EXAMPLES, formatter_class=layout
    )
    compare.add_argument("schedules", nargs="*", help="which ones (all that take the sizes unless given)")
    compare.set_defaults(run=_compare)
    scores = commands.add_parser("scores", help='the table of a class, as CSV, for "beat the bubble"')
    scores.add_argument("folder", help="PyTorch's CSV files, one a person, named by the file")
    scores.set_defaults(run=_scores)
    for command in (trace, compare):
        command.add_argument("--devices", type=int, default=4, metavar="D", help="devices (4)")
        command.add_argument("--microbatches", type=int, default=8, metavar="M", help="micro-batches (8)")
        command.add_argument("--forward", type=float, default=1.0, help="time of a forward on one device (1)")
        command.add_argument("--backward", type=float, default=1.0, help="time of a backward on one device (1)")
        command.add_argument("--hop", type=float, default=0.0, help="time of a message between devices (0)")
        command.add_argument("--blocking", action="store_true", help="a message keeps both devices busy")
    real = commands.add_parser("run", help="predict a schedule, then run it on real processes, a device each")
    add_options(real)
    real.add_argument("--devices", type=int, default=2, metavar="D", help="devices (2)")
    real.set_defaults(run=_run)
    return parser


def _build(name: str, options: argparse.Namespace) -> Schedule:
    if name in SCHEDULES:
        return SCHEDULES[name](options.devices, options.microbatches)
    if Path(name).suffix == ".csv" or Path(name).is_file():
        return read_torch_csv(name)
    raise ValueError(f"no schedule is called {name!r}; there are {', '.join(SCHEDULES)}, or give a .csv file")


def _costs(schedule: Schedule, options: argparse.Namespace) -> Costs:
    return Costs.per_device(
        schedule, forward=options.forward, backward=options.backward, hop=options.hop, blocking=options.blocking
    )


def _trace(options: argparse.Namespace) -> None:
    schedule = _build(options.schedule, options)
    t = simulate(schedule, _costs(schedule, options))
    share, held = bubble_fraction(t), ", ".join(map(str, peak_in_flight(t).tolist()))
    grid = str(t)
    legend = "\n- : the pass goes on   . : idle" if "-" in grid.split() else ""
    print(f"{grid}{legend}\n\nmakespan {makespan(t):.6g}, bubble {share:.1%}, most micro-batches in flight: {held}")
    if options.csv:
        write_torch_csv(schedule, options.csv)
    if options.trace:
        write_chrome_trace(t, options.trace)
    if options.svg:
        Path(options.svg).write_text(svg.timeline(t, look="light"), encoding="utf-8")
    for file in filter(None, (options.csv, options.trace, options.svg)):
        print(f"written: {file}")


def _run(options: argparse.Namespace) -> None:
    schedule, settings = build_schedule(options), run_options(options)
    if options.save and not Path(options.save).absolute().parent.is_dir():
        raise ValueError(
            f"--save {options.save}: there is no folder {Path(options.save).absolute().parent}; make it first"
        )
    print("profiling, then running; some seconds", file=sys.stderr, flush=True)
    costs = profile(schedule, **settings | {"steps": 5}).fit_costs()
    result = run(schedule, **settings)
    predicted = 1e3 * makespan(simulate(result.schedule, costs))
    error = result.prediction_error(costs)["median"]
    print(f"{result.summary()}\npredicted  {predicted:.1f} ms from a short run before: {error:+.1%} against the median")
    if options.save:
        result.save(options.save)
        print(f"written: {options.save}")


def _compare(options: argparse.Namespace) -> None:
    built, refusals = [], []
    for name in options.schedules or SCHEDULES:
        try:
            built.append(_build(name, options))
        except ValueError as error:
            if options.schedules:
                raise
            refusals.append(error)
    if not built:
        raise refusals[0]
    wide = max(len(name) for name in ("schedule", *(schedule.name for schedule in built)))
    several = any(schedule.num_stages > schedule.num_devices for schedule in built)
    counted = "in flight on device 0, 1, …" + " (chunks, where a device has several stages)" * several
    lines = [f"{'schedule':{wide}} {'makespan':>9} {'bubble':>7} {'bound / time':>12}  most {counted}"]
    for schedule in built:
        costs = _costs(schedule, options)
        t = simulate(schedule, costs)
        held = peak_in_flight(t).tolist()
        shown = ", ".join(map(str, held[:8])) + (", …" if len(held) > 8 else "")
        share, far = bubble_fraction(t), lower_bound(schedule, costs) / makespan(t)
        lines.append(f"{schedule.name:{wide}} {makespan(t):9.6g} {share:7.1%} {far:12.1%}  {shown}")
    print("\n".join([*lines, *(f"left out: {error}" for error in refusals)]))


def _scores(options: argparse.Namespace) -> None:
    from pplab.exercises.scores import class_table

    print(class_table(options.folder), end="")


if __name__ == "__main__":
    sys.exit(main())
