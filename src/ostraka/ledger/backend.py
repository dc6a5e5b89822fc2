"""The storage that a ledger needs: the ``Store`` protocol, which SQLite and PostgreSQL implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from ostraka.ledger.budget import Budget, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from ostraka.ledger.chain import Fields, Price, Row
    from ostraka.ledger.history import Total

__all__ = ["Store", "agreed", "batches"]


class Store(Protocol):
    """Rows in a database. Methods below ``check`` are called inside ``reading`` or ``writing``."""

    path: str
    budget: Budget
    secret: str

    @property
    def alone(self) -> bool:
        """Return whether no other process can have added entries."""
        ...

    def reading(self) -> AbstractContextManager[Self]:
        """Hold the connection for this thread; refuse a store that is closed or poisoned."""
        ...

    def writing(self) -> AbstractContextManager[Self]:
        """Keep all other writers out, then commit durably. An exception rolls back."""
        ...

    def own(self, *, alone: bool) -> None:
        """Take the writer lock: exclusive, or shared with other writers."""
        ...

    def poison(self, trouble: str) -> None:
        """Refuse every later use, with this reason."""
        ...

    def close(self) -> None:
        """Close it. In a process that did not open it, do nothing."""
        ...

    def check(self) -> None:
        """Check the database's own structure; called while another thread reads."""
        ...

    def rows(self, after: int, limit: int | None = None) -> Iterator[Fields]:
        """The fields of entries, in order, ``limit`` at most."""
        ...

    def prices(self, after: int) -> list[tuple[int, str, str, bytes, bytes]]:
        """Number, mechanism, unit, orders and cost of prices, in order."""
        ...

    def with_seq(self, seq: int) -> Row | None:
        """The entry number ``seq``."""
        ...

    def with_next(self, seq: int) -> list[Row]:
        """The entry number ``seq`` and the one after it, as far as there are any."""
        ...

    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""
        ...

    def with_asked(self, asked: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries that first paid for these questions."""
        ...

    def heads(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The digests of the entries with these numbers."""
        ...

    def last_snapshot(self) -> Row | None:
        """The newest entry that records all totals."""
        ...

    def totals(self, seq: int) -> list[Total]:
        """All totals recorded with an entry, by account."""
        ...

    def append(self, rows: Sequence[Row], prices: Sequence[Price], totals: Sequence[Total]) -> None:
        """Add entries at the end, with the prices and totals that are new with them."""
        ...

    def count(self) -> int:
        """Return the number of entries."""
        ...

    def answer(self, seq: int) -> bytes | None:
        """The array stored for an entry."""
        ...

    def add_answer(self, seq: int, array: bytes, digest: bytes) -> None:
        """Store the array of an entry that has none."""
        ...

    def answers(self) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
        """Entry, array and digest of every array, with the entry's digest."""
        ...


def batches(size: int, limit: int | None) -> Iterator[int]:
    """Sizes of the batches in which ``limit`` rows are read; without a limit, endless."""
    while limit is None or limit > 0:
        yield size if limit is None else min(size, limit)
        limit = None if limit is None else limit - size


def agreed(
    path: str, *, found: Budget, expected: Budget | None, name: str, secret: str
) -> tuple[Budget, str]:
    """Return the stored budget and name of the secret; raise if they are not what the caller expects."""
    if expected not in (None, found):
        raise LedgerError(f"{path} has {found}, not {expected}: leave budget= out to use its own")
    if name != secret:
        wants = "another secret" if name and secret else "a secret" if name else "no secret"
        raise LedgerError(f"{path} was begun with {wants}: pass the same secret= as then")
    return found, name
