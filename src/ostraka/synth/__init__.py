"""Private generators: from private rows to generated rows that are public."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.data.schema import Column as Column
    from ostraka.data.schema import Schema as Schema
    from ostraka.synth.clusters import PrivateKMeans as PrivateKMeans
    from ostraka.synth.dpgm import DPGM as DPGM
    from ostraka.synth.evolution import Evolution as Evolution
    from ostraka.synth.sequences import SequenceGenerator as SequenceGenerator
    from ostraka.synth.sgd import PrivateSGD as PrivateSGD
    from ostraka.synth.tables import TableGenerator as TableGenerator

__all__ = [
    "DPGM",
    "Column",
    "Evolution",
    "PrivateKMeans",
    "PrivateSGD",
    "Schema",
    "SequenceGenerator",
    "TableGenerator",
]

__getattr__, __dir__ = face(__name__, __file__)
