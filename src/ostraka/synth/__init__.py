"""Private generators: from private rows to generated rows that are public."""

from ostraka.synth.dpgm import DPGM
from ostraka.synth.evolution import Evolution
from ostraka.synth.kmeans import PrivateKMeans
from ostraka.synth.schema import Column, Schema
from ostraka.synth.sgd import PrivateSGD
from ostraka.synth.tables import TableGenerator

__all__ = [
    "DPGM",
    "Column",
    "Evolution",
    "PrivateKMeans",
    "PrivateSGD",
    "Schema",
    "TableGenerator",
]
