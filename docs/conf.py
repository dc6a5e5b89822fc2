"""Sphinx settings: Markdown pages with formulas, and the reference from the docstrings."""

# ruff: noqa: INP001  (Sphinx reads it as a script)

from importlib.metadata import version as installed

project = "ostraka"
author = "the ostraka developers"
release = version = installed("ostraka")
exclude_patterns = ["_build"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["amsmath", "dollarmath", "deflist"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Guarantees"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["ref.python"]  # two records have a field of one name: either is a good link
# scikit-learn adds these to every estimator, with links into its own manual
autodoc_default_options = {"exclude-members": "set_fit_request, set_predict_request, set_score_request"}

html_theme = "furo"
html_title = "ostraka"
