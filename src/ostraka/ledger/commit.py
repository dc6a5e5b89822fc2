"""An open ledger: checks on opening, reading the newest state, and committing store and anchor durably."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Self

from ostraka.ledger.anchor import Anchor, check_anchored
from ostraka.ledger.batch import Outcome, PricedRequest, PriceList, serve
from ostraka.ledger.budget import DAMAGED, Budget, LedgerError, LedgerMoved
from ostraka.ledger.chain import Row, Seal
from ostraka.ledger.group import Group
from ostraka.ledger.history import History
from ostraka.ledger.postgres import PostgresStore
from ostraka.ledger.store import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ostraka.ledger.backend import Store

__all__ = ["CommittedState"]


class CommittedState:
    """Store, history and anchor of an open ledger; base of :class:`~ostraka.ledger.Ledger`."""

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
        self._seal = Seal(secret)
        self._store = _open_store(os.fspath(where), budget=budget, secret=self._seal.name)
        self.path, self.budget = self._store.path, self._store.budget
        self._prices = PriceList(adaptive=self.budget.adaptive)
        self._history = History(self.path, self.budget, self._seal)
        self._group: Group[Sequence[PricedRequest], list[Outcome]] = Group(self._serve)
        self._on_record: Row | None = None  # the newest entry known here, as the last transaction read it
        self._writes = not read_only
        self._anchor: Anchor | None = None
        try:
            if self._writes:
                self._store.own(alone=owner)
            if anchor is None:
                self.verify()
            else:
                self._start_from(Anchor(anchor, self._seal, read_only=read_only))
            self._durable = self._history.seq, self._history.head
        except BaseException:
            self.close()
            raise

    def _start_from(self, anchor: Anchor) -> None:
        """Check the ledger against its anchor, and read the entries after the last snapshot of totals."""
        self._anchor = anchor
        with _damage_reported(self.path), self._store.reading() as store:
            self._history.resume(store)
            known = anchor.read()
            if known is None or known[0] < self._history.seq:  # the anchor is older than the snapshot
                self.verify()
            else:
                self._history.follow(store)
            check_anchored(anchor, self._history, store)
        self._remember()

    def _remember(self) -> None:
        """Write the anchor. After a failure the ledger is poisoned: a later start may refuse its end."""
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
        """Read and check every digest, total and answer again. Other threads wait meanwhile.

        Raises
        ------
        LedgerError
            A check failed; ``seq`` is the first bad entry.
        """
        with _damage_reported(self.path), self._store.reading() as store:
            with ThreadPoolExecutor(max_workers=1) as beside:
                sound = beside.submit(store.check)  # both checks take about as long
                history = History(self.path, self.budget, self._seal)
                history.verify(store)
                sound.result()
            if self._anchor is not None:
                check_anchored(self._anchor, history, store)
            self._history = history

    def probe(self) -> None:
        """Check that a charge could be written now: take the write lock, look at the newest entry, let go.

        Raises
        ------
        LedgerUnavailable, LedgerMoved or LedgerError
            As a charge would.
        """
        with contextlib.suppress(_ProbedError), self._writing():
            raise _ProbedError  # rolls back

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
        raise TypeError(f"{self!r} cannot be pickled: open Ledger({self.path!r}) in each process")

    def _serve(self, callers: Sequence[Sequence[PricedRequest]]) -> list[list[Outcome] | LedgerError]:
        with self._writing() as history:
            return serve(history, self._store, callers, some=self._on_record)

    @contextmanager
    def _reading(self) -> Iterator[History]:
        """Hold the store, and give the state after the newest entry."""
        with self._store.reading() as store:
            if self._history.dirty:  # a charge was taken in memory, and its transaction rolled back
                self._history = History(self.path, self.budget, self._seal)
                self._history.resume(store)
                self._history.follow(store)
            elif not store.alone:
                self._history.follow(store)
            yield self._history

    @contextmanager
    def _writing(self) -> Iterator[History]:
        """Give the newest state while no other process can write; writes are durable when the block ends."""
        if not self._writes:
            raise LedgerError(f"{self.path} was opened to be read: leave read_only= out")
        with self._store.reading():
            with self._store.writing():
                self._check_on_record()
                with self._reading() as history:
                    before = history.seq
                    yield history
            history.settle()
            self._durable = history.seq, history.head
            if history.seq != before:
                self._remember()

    def _check_on_record(self) -> None:
        """Raise LedgerMoved unless the newest entry known here is on record, and for an owner the newest."""
        seq, head = self._durable
        rows = self._store.with_next(seq)
        self._on_record = rows[0] if rows else None
        lost = seq and (self._on_record is None or self._on_record.digest != head)
        longer = bool(rows) and rows[-1].seq > seq
        in_doubt = self._history.dirty  # a lost connection may have committed one more transaction
        if lost or (self._store.alone and longer and not in_doubt):
            trouble = (
                f"has another history than the {seq} entries known here, so it was replaced or rolled back"
            )
            self._store.poison(trouble)
            raise LedgerMoved(f"{self.path} {trouble}: stop, and put the newest copy back")


def _open_store(where: str, *, budget: Budget | None, secret: str) -> Store:
    """The store of a ledger's address: a path, ``sqlite:///path``, or ``postgresql://…``."""
    if where.startswith(("postgresql://", "postgres://")):
        return PostgresStore(where, budget=budget, secret=secret)
    return SQLiteStore(where.removeprefix("sqlite:///"), budget=budget, secret=secret)


class _ProbedError(Exception):
    """Ends a probe's transaction."""


@contextmanager
def _damage_reported(path: str) -> Iterator[None]:
    """Report values of the wrong type as damage: a damaged page can produce them."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise LedgerError(
            f"{path} {DAMAGED} (a field has an impossible value: {type(error).__name__})"
        ) from error
