"""The static edition: every notebook as a page, with what it stores, for readers without a kernel or a network.

``make site`` gives Sphinx the whole repository as its source, so that links between notebooks and to the texts beside
them are the same here and on GitHub. Nothing is fetched, neither while the pages are built nor while they are read.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "pplab"
author = copyright = "The pplab authors"
root_doc = "notebooks/00_start_here"
include_patterns = ["notebooks/*.ipynb", "notebooks/*.md", "notebooks/exercises/*.md", "notebooks/exercises/release/**"]
exclude_patterns = [".*", "build", "dist"]  # spares a walk through .venv

extensions = ["myst_nb", "edition"]
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_heading_slug_func = "edition.slug"

html_theme = "sphinx_book_theme"
html_title = "pplab"
html_favicon = "_static/icon.svg"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_extra_path = ["index.html"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_context = {"default_mode": "auto"}  # the system's theme, until the reader chooses another
html_sidebars = {"**": ["search-button-field", "sbt-sidebar-nav"]}
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "navbar_start": ["navbar-logo"],  # in the banner: the theme's place for it is outside of all landmarks
    "navbar_persistent": [],  # one search field, the sidebar's
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
