"""Private statistics: a tally learns the noisy sum of many clients' vectors, and nothing else.

In comes one value of each client; out goes a ``Private`` sum, with noise, for :func:`ostraka.release`. The
promise: nobody sees the vector of a client, unless all keepers, or too many clients, collude.

``task`` says what is collected, and ``encodings`` how a value becomes a vector. A ``client`` reports, a
``tally`` adds up, and a ``keeper`` holds masks. ``estimate`` reads the released sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.collect import estimate as estimate
    from ostraka.collect.client import Client as Client
    from ostraka.collect.client import results as results
    from ostraka.collect.client import send as send
    from ostraka.collect.encodings import CountMin as CountMin
    from ostraka.collect.encodings import CountSketch as CountSketch
    from ostraka.collect.encodings import Grid as Grid
    from ostraka.collect.encodings import Histogram as Histogram
    from ostraka.collect.encodings import Histograms as Histograms
    from ostraka.collect.encodings import Pairs as Pairs
    from ostraka.collect.encodings import Sum as Sum
    from ostraka.collect.encodings import Tree as Tree
    from ostraka.collect.encodings import Vector as Vector
    from ostraka.collect.encodings import Visits as Visits
    from ostraka.collect.keeper import Keeper as Keeper
    from ostraka.collect.tally import Series as Series
    from ostraka.collect.tally import Tally as Tally
    from ostraka.collect.task import Question as Question
    from ostraka.collect.task import Task as Task

__all__ = [
    "Client",
    "CountMin",
    "CountSketch",
    "Grid",
    "Histogram",
    "Histograms",
    "Keeper",
    "Pairs",
    "Question",
    "Series",
    "Sum",
    "Tally",
    "Task",
    "Tree",
    "Vector",
    "Visits",
    "estimate",
    "results",
    "send",
]

__getattr__, __dir__ = face(__name__, __file__)
