"""Sphinx settings: Markdown pages with formulas, and the reference from the docstrings.

The manual has at most 45 pages. The record and the decisions are files beside it, which its pages link to.
"""

# ruff: noqa: INP001  (Sphinx reads it as a script)

import re
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

project = "ostraka"
author = "the ostraka developers"
release = version = installed("ostraka")
exclude_patterns = ["_build", "tutorials", "record", "decisions", "durability.md"]
_BESIDE = re.compile(r"\]\(((?:\.\./)?(?:(?:record|decisions)/[^)#\s]+|durability\.md))[^)\s]*\)")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
sphinx_gallery_conf = {  # every tutorial is executed when the site is built, and offered as a notebook
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
}
myst_enable_extensions = ["amsmath", "dollarmath", "deflist"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Guarantees"]
add_module_names = False  # `class Curve`, on the page of its module
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["ref.python"]  # two records have a field of one name: either is a good link
# scikit-learn adds these to every estimator, with links into its own manual
autodoc_default_options = {"exclude-members": "set_fit_request, set_predict_request, set_score_request"}

html_theme = "furo"
html_use_index = html_domain_indices = False  # the search finds names; two pages less
html_title = f"ostraka {release}"


def _prepare(_app: object, docname: str, source: list[str]) -> None:
    """Lead links beside the manual to the files; list a page that the index does not name."""
    source[0] = _BESIDE.sub(r"](path:\1)", source[0])
    if docname == "index":
        here = Path(__file__).parent
        new = [page.stem for page in sorted(here.glob("*.md")) if f"\n{page.stem}\n" not in source[0]]
        listed = "\n".join(name for name in new if name != "index" and f"{name}.md" not in exclude_patterns)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: More\n\n{listed}\n```\n" if listed else ""


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _prepare)
