# For type checkers: ``ostraka.randomness`` is ``ostraka.core.randomness``.

from ostraka.core.randomness import KeyedNoise as KeyedNoise
from ostraka.core.randomness import KeyedRows as KeyedRows
from ostraka.core.randomness import further as further
from ostraka.core.randomness import is_simulation as is_simulation
from ostraka.core.randomness import os_keyed as os_keyed
from ostraka.core.randomness import words as words
