# For type checkers: ``ostraka.curve`` is ``ostraka.core.curve``.

from ostraka.core.curve import MOVES as MOVES
from ostraka.core.curve import Curve as Curve
from ostraka.core.curve import Priced as Priced
