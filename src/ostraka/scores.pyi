# For type checkers: ``ostraka.scores`` is ``ostraka.core.scores``.

from ostraka.core.scores import Rate as Rate
from ostraka.core.scores import Scores as Scores
