"""A folder with documents from which answers are written: for the owner of the documents alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ostraka.core import check, files
from ostraka.text.models import open_model
from ostraka.text.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path

FILE, STORE = "documents.json", "private.sqlite"
_LABEL = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDocuments:
    """Documents, and how questions about them are answered; the documents are private.

    Attributes
    ----------
    documents : tuple of str
        Private. One of each unit: a person's are joined.
    unit : {"document", "person"}
    model : str
        As :func:`~ostraka.text.open_model` takes it; it reads the documents.
    threads : int
        Of a local model.
    retrieve, near : int, float
        ``retrieve`` and ``at`` of :meth:`~ostraka.text.Writer.answer`. Public.
    epsilon, delta : float
        The price of one answer. Public.
    n_tokens, temperature, relation
        As of :class:`~ostraka.text.Writer`. Public.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> saved = SavedDocuments(documents=("the tea was cold",), unit="document", model="smollm2", retrieve=8)
    >>> folder = Path(tempfile.mkdtemp()) / "documents"
    >>> saved.save(folder)
    >>> SavedDocuments.load(folder).retrieve
    8
    """

    documents: tuple[str, ...]
    unit: str
    model: str
    threads: int = 1
    retrieve: int = 32
    near: float = 0.4
    epsilon: float = 1.0
    delta: float = 1e-5
    n_tokens: int = 32
    temperature: float = 1.0
    relation: str = "zero-out"

    def __post_init__(self) -> None:
        check.one_of(unit=self.unit, allowed=("document", "person"))
        check.integer(retrieve=self.retrieve, threads=self.threads, least=1)
        check.finite(near=self.near)

    def save(self, folder: Path) -> None:
        """Write a folder, which only its owner can read. One that holds other documents is replaced."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(folder / FILE, json.dumps(asdict(self)), private=True)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder.

        Raises
        ------
        ValueError
            It was not written by :meth:`save`, or others can read it.
        """
        path = folder / FILE
        if path.stat().st_mode & 0o077:
            raise ValueError(f"{path} is private, but others can read it: type chmod 600 {path}")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(**content | {"documents": tuple(map(str, content["documents"]))})
        except (KeyError, TypeError, ValueError):  # its message may quote a document
            raise ValueError(f"{path} is not as 'ostraka write … --keep-documents' writes it") from None

    def writer(self, store: Path) -> Writer:
        """A writer of these documents, with its model; ``store`` keeps the tokens of unfinished answers.

        Raises
        ------
        ValueError
            There is no such model, or others can read the store.
        """
        made = Writer(
            open_model(self.model, n_threads=self.threads),
            classes=[_LABEL],
            n_documents=self.retrieve,
            n_tokens=self.n_tokens,
            epsilon=self.epsilon,
            delta=self.delta,
            temperature=self.temperature,
            relation=self.relation,
            store=store,
        )
        n = len(self.documents)
        return made.fit(self.documents, [_LABEL] * n, groups=np.arange(n) if self.unit == "person" else None)
