"""Private generators: from private rows to generated rows that are public.

*In* come private rows, whose they are, and a schema, which is public. *Out* go generators that are public
like their rows: as many as wanted, at no further price.

``tables`` and ``sequences`` generate rows of categories and bins from noisy counts, and answer questions
about them (``models``). ``clusters``, ``dpgm`` and ``evolution`` generate rows of numbers; ``sgd`` trains
networks for them. ``fitting`` is what all of them share, and ``compare`` shows a copy beside the private
rows, to the owner.

The promise: **all that is released is paid for in one charge before it is drawn, for one row, or one person,
added or removed**; what is generated is post-processing.
"""

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
