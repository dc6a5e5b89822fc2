"""Private generators: rows in, rows out that anybody may have."""

from ostraka.synth.kmeans import PrivateKMeans
from ostraka.synth.schema import Column, Schema
from ostraka.synth.tables import TableGenerator

__all__ = ["Column", "PrivateKMeans", "Schema", "TableGenerator"]
