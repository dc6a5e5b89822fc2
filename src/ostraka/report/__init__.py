"""The written record of a run: its folder, one page of HTML with figures, and a label of its privacy.

*In* comes a :class:`~ostraka.Result`. *Out* go a summary, a page for a data protection officer and a privacy
label. ``folder`` knows the files of a run, which of them may be passed on, and how a run that was
interrupted goes on.

The promise: **pages are made from the record alone, upper bounds rounded up and lower ones down, and what is
for the owner stands apart or is left out.**
"""

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
