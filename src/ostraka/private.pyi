# For type checkers: ``ostraka.private`` is ``ostraka.core.private``.

from ostraka.core.private import RELATIONS as RELATIONS
from ostraka.core.private import Adjacency as Adjacency
from ostraka.core.private import Private as Private
