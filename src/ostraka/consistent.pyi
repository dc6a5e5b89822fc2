# For type checkers: ``ostraka.consistent`` is ``ostraka.core.consistent``.

from ostraka.core.consistent import Consistent as Consistent
from ostraka.core.consistent import Once as Once
