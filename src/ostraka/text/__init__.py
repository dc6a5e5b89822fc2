"""Private text by ballot: a language model writes what many private documents agree on.

What comes in: documents that nobody may read, with public classes, and a language model that says how likely
each next token is after a prompt. Each document is in a prompt of its own. What goes out: texts, token by
token (:class:`~ostraka.text.writer.Writer`), each token drawn by
:class:`~ostraka.core.mechanisms.selection.TokenDraw` and paid for before the first. The promise is for one
document (or one person) that is left out. It says nothing about facts that many documents share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.core.mechanisms.selection import MeteredDraws as MeteredDraws
    from ostraka.core.mechanisms.selection import TokenDraw as TokenDraw
    from ostraka.text.models import LlamaCpp as LlamaCpp
    from ostraka.text.models import ServedModel as ServedModel
    from ostraka.text.models import Transformers as Transformers
    from ostraka.text.models import WordModel as WordModel
    from ostraka.text.writer import Prompt as Prompt
    from ostraka.text.writer import Writer as Writer
    from ostraka.text.writer import audit_canary as audit_canary

__all__ = [
    "LlamaCpp",
    "MeteredDraws",
    "Prompt",
    "ServedModel",
    "TokenDraw",
    "Transformers",
    "WordModel",
    "Writer",
    "audit_canary",
]

__getattr__, __dir__ = face(__name__, __file__)
