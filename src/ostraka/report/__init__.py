"""The written record of a run: one page of HTML, and its figures, made from the Result alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.report.page import Figure as Figure
    from ostraka.report.page import Row as Row
    from ostraka.report.page import privacy_label as privacy_label
    from ostraka.report.page import render_html as render_html
    from ostraka.report.page import summary_table as summary_table

__all__ = ["render_html"]

__getattr__, __dir__ = face(__name__, __file__)
