# For type checkers: ``ostraka.released`` is ``ostraka.core.released``.

from ostraka.core.released import AnyRelease as AnyRelease
from ostraka.core.released import Model as Model
from ostraka.core.released import Released as Released
from ostraka.core.released import from_bytes as from_bytes
from ostraka.core.released import to_bytes as to_bytes
