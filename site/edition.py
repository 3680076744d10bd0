"""What the static edition adds to Sphinx: its order, JupyterLab's anchors, formulas as MathML, explorers that play."""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import pplab

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/pplab/pplab"
EXPLORER = re.compile(r"pplab\.widgets\.explore(?:_links)?\([^()]*\)")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^()#\s]+)(?=[#)])")


def slug(heading: str) -> str:
    """JupyterLab's anchor of a heading, as links write it: hyphens for spaces."""
    return heading.strip().replace("%", "%25").replace(" ", "-")


def send_elsewhere(app: Sphinx, name: str, source: list[str]) -> None:
    """Let links to files and folders that are no pages lead to the repository."""

    def address(link: re.Match[str]) -> str:
        target = (ROOT / name).parent.joinpath(link[1]).resolve()
        if not (target.is_relative_to(ROOT) and target.exists()):
            return link[0]
        path = target.relative_to(ROOT)
        if path.with_suffix("").as_posix() in app.env.found_docs or path.suffix in (".png", ".svg"):
            return link[0]
        return f"{REPOSITORY}/{'tree' if target.is_dir() else 'blob'}/main/{path.as_posix()}"

    source[0] = LINK.sub(address, source[0])


def add_toctree(app: Sphinx, name: str, source: list[str]) -> None:
    """Give the first notebook a cell that only this edition has: all other pages, in the order of their names."""
    if name != app.config.root_doc:
        return
    pages = [f"/{page}" for page in sorted(app.env.found_docs - {name})]
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])
    book = json.loads(source[0])
    book["cells"].append({"cell_type": "markdown", "id": "toctree", "metadata": {}, "source": toctree})
    source[0] = json.dumps(book)


def add_players(app: Sphinx, name: str, source: list[str]) -> None:
    """Put explorers that need no kernel, as they open, where a notebook stores only words for them."""
    if app.env.doc2path(name).suffix != ".ipynb":
        return
    book = json.loads(source[0])
    for cell in book["cells"]:
        if EXPLORER.fullmatch("".join(cell["source"])):
            explorer = eval("".join(cell["source"]), {"pplab": pplab})
            shown = {"text/html": explorer.to_html(), "text/plain": repr(explorer)}
            cell["outputs"] = [{"output_type": "display_data", "data": shown, "metadata": {}}]
    source[0] = json.dumps(book)


def inline_math(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line as MathML."""
    translator.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def block_math(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own as MathML."""
    translator.body.append(f'<div class="formula" tabindex="0">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx, which finds this module in conf.py's extensions."""
    app.connect("source-read", send_elsewhere)
    app.connect("source-read", add_toctree)
    app.connect("source-read", add_players)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
