"""How long each notebook takes from start to end, and the most memory that its kernel holds: under 400 MB, for Binder.

Give names of notebooks to run only those. Child processes, such as torch's ranks, are counted on their own: the most
that one of them held.
"""

import sys
from pathlib import Path
from time import perf_counter

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LIMIT = 400  # MB
# /proc tells the process's own peak; elsewhere getrusage has to do, in bytes on macOS.
PROBE = """
import pathlib, re, resource, sys
unit = 1 if sys.platform == "darwin" else 1024
own, child = (resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
status = pathlib.Path("/proc/self/status")
if status.exists():
    own = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024
print(own, child)
"""


def measure(path: Path) -> tuple[float, float, float]:
    """Run a notebook in its folder: seconds, the peak of its kernel and of its largest child process in MB."""
    book = nbformat.read(path, as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(PROBE))
    start = perf_counter()
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": path.parent}}).execute()
    took = perf_counter() - start
    own, child = map(int, book.cells[-1].outputs[0].text.split())
    return took, own / 1e6, child / 1e6


def main() -> None:
    """Print the table."""
    paths = [NOTEBOOKS / name for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb"))
    print(f"{'notebook':<30} {'seconds':>7} {'kernel MB':>9} {'child MB':>8}  stored kB")
    rows = []
    for path in paths:
        rows.append(measure(path))
        took, own, child = rows[-1]
        print(f"{path.name:<30} {took:7.1f} {own:9.0f} {child:8.0f}  {path.stat().st_size / 1e3:.0f}", flush=True)
    most = max(own for _, own, _ in rows)
    verdict = "all" if most < LIMIT else "NOT all"
    print(f"{sum(row[0] for row in rows):.1f} s in all; {verdict} kernels under {LIMIT} MB, the largest {most:.0f} MB")


if __name__ == "__main__":
    main()
