# For type checkers: ``ostraka.result`` is ``ostraka.core.result``.

from ostraka.core.result import Result as Result
