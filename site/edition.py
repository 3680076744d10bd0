"""What the static edition adds to Sphinx: JupyterLab's anchors, the order of the pages, formulas without JavaScript."""

import json
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def slug(heading: str) -> str:
    """JupyterLab's anchor of a heading, which the notebooks' links use: hyphens for spaces."""
    return heading.strip().replace(" ", "-")


def add_toctree(app: Sphinx, name: str, source: list[str]) -> None:
    """Give the first notebook a cell that only this edition has: all other pages, in the order of their names."""
    if name != app.config.root_doc:
        return
    pages = [f"/{page}" for page in sorted(app.env.found_docs - {name})]
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])
    book = json.loads(source[0])
    book["cells"].append({"cell_type": "markdown", "id": "toctree", "metadata": {}, "source": toctree})
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
    app.connect("source-read", add_toctree)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
