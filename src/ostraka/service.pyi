# For type checkers: ``ostraka.service`` is ``ostraka.serve``.

from ostraka.serve import Client as Client
