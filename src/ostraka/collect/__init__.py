"""Private statistics: a tally learns the noisy sum of many clients' vectors, and nothing else.

``task`` says what is collected, ``encodings`` and ``sketches`` how values become vectors. A ``client``
reports, a ``tally`` adds up, and a ``keeper`` holds masks. ``estimate`` reads the released sums.
"""

from ostraka.collect import estimate
from ostraka.collect.client import Client
from ostraka.collect.encodings import Grid, Histogram, Pairs, Tree
from ostraka.collect.keeper import Keeper
from ostraka.collect.sketches import CountMin, CountSketch
from ostraka.collect.tally import Tally
from ostraka.collect.task import Task

__all__ = [
    "Client",
    "CountMin",
    "CountSketch",
    "Grid",
    "Histogram",
    "Keeper",
    "Pairs",
    "Tally",
    "Task",
    "Tree",
    "estimate",
]
