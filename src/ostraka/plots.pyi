# For type checkers: ``ostraka.plots`` is ``ostraka.report.figures``.

from ostraka.report.figures import figures as figures
