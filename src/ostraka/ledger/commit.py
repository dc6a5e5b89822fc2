"""An open ledger: whose turn it is, what is checked first, and what is durable before anybody goes on."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Self

from ostraka.ledger.anchor import Anchor, check_anchored
from ostraka.ledger.backend import open_store
from ostraka.ledger.batch import Outcome, Question, Tariff, serve
from ostraka.ledger.budget import DAMAGED, Budget, LedgerError
from ostraka.ledger.chain import Seal
from ostraka.ledger.group import Group
from ostraka.ledger.history import History

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Opened"]


class Opened:
    """A store, the history that was read from it, and the anchor; for :class:`~ostraka.ledger.Ledger`."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        budget: Budget | None = None,
        secret: bytes | None = None,
        anchor: str | os.PathLike[str] | None = None,
        owner: bool = False,
        read_only: bool = False,
    ) -> None:
        self._seal, self._tariff = Seal(secret), Tariff()
        self._store = open_store(os.fspath(where), budget=budget, secret=self._seal.name)
        self.path, self.budget = self._store.path, self._store.budget
        self._history = History(self.path, self.budget, self._seal)
        self._group: Group[Sequence[Question], list[Outcome]] = Group(self._serve)
        self._writes = not read_only
        self._anchor: Anchor | None = None
        try:
            if self._writes:
                self._store.own(alone=owner)
            if anchor is None:
                self.verify()
            else:
                self._start_from(Anchor(anchor, self._seal, read_only=read_only))
        except BaseException:
            self.close()
            raise

    def _start_from(self, anchor: Anchor) -> None:
        """Check the ledger against its anchor, and read what came after the last record of all totals."""
        self._anchor = anchor
        with _legible(self.path), self._store.reading() as store:
            self._history.resume(store)
            known = anchor.read()
            if known is None or known[0] < self._history.seq:  # it says nothing about that record
                self.verify()
            else:
                self._history.follow(store)
            check_anchored(anchor, self._history, store)
        self._remember()

    def _remember(self) -> None:
        """Write the anchor; whatever stops that leaves it unknown what a later start will accept."""
        if self._anchor is None or not self._writes:
            return
        try:
            self._anchor.write(self._history.seq, self._history.head)
        except BaseException as error:
            trouble = "could not write its anchor, so nothing was answered"
            self._store.poison(trouble)
            if isinstance(error, OSError):
                raise LedgerError(f"{self.path} {trouble} ({error.strerror or error})") from error
            raise

    def verify(self) -> None:
        """Read everything again: every digest, total and answer. Other threads wait meanwhile.

        Raises
        ------
        LedgerError
            Something does not hold together; ``seq`` is the first bad entry.
        """
        with _legible(self.path), self._store.reading() as store:
            with ThreadPoolExecutor(max_workers=1) as beside:
                sound = beside.submit(store.check)  # both take about as long
                history = History(self.path, self.budget, self._seal)
                history.verify(store)
                sound.result()
            if self._anchor is not None:
                check_anchored(self._anchor, history, store)
            self._history = history

    def close(self) -> None:
        """Close the file. In a process that did not open the ledger: do nothing."""
        self._store.close()
        if self._anchor is not None:
            self._anchor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.path!r}, budget={self.budget})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} does not travel: open Ledger({self.path!r}) in each process")

    def _serve(self, callers: Sequence[Sequence[Question]]) -> list[list[Outcome] | LedgerError]:
        with self._writing() as history:
            return serve(history, self._store, callers)

    @contextmanager
    def _reading(self) -> Iterator[History]:
        """The state after the newest entry."""
        with self._store.reading() as store:
            if self._history.dirty:  # something was taken, and then not written
                self._history = History(self.path, self.budget, self._seal)
                self._history.resume(store)
                self._history.follow(store)
            elif not store.alone:
                self._history.follow(store)
            yield self._history

    @contextmanager
    def _writing(self) -> Iterator[History]:
        """The same with all other writers held off; what is written then is durable at the end."""
        if not self._writes:
            raise LedgerError(f"{self.path} was opened to be read: leave read_only= out")
        with self._store.reading():
            with self._store.writing(), self._reading() as history:
                before = history.seq
                yield history
            history.settle()
            if history.seq != before:
                self._remember()


@contextmanager
def _legible(path: str) -> Iterator[None]:
    """A damaged page may read as no value, or as one of another kind: that is damage, too."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise LedgerError(f"{path} {DAMAGED} (a field reads as nonsense: {type(error).__name__})") from error
