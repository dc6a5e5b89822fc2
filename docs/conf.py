"""Sphinx settings: Markdown pages with formulas, and the reference from the docstrings."""

from importlib.metadata import version as installed

project = "ostraka"
author = "the ostraka developers"
release = version = installed("ostraka")
exclude_patterns = ["_build"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["amsmath", "dollarmath", "deflist"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_custom_sections = ["Guarantees"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = "ostraka"
