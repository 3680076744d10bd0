"""Run every notebook from the top and store its outputs: `make notebooks`, or with the names of some.

What is stored holds no widget state, no views of widgets (they show an error where no kernel runs; their text
stays) and no times of execution, so a run changes a file only where an output changed.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
VIEW = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path) -> None:
    """Run one notebook in its folder and store it."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(VIEW, None)
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    for path in [NOTEBOOKS / name for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        refresh(path)
