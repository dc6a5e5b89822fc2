"""What a database must do for a ledger, and which database a ledger's name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from ostraka.ledger.budget import Budget, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from ostraka.ledger.chain import Fields, Price, Row
    from ostraka.ledger.history import Total

__all__ = ["Store", "agreed", "open_store"]


class Store(Protocol):
    """Rows in a database. All but the first methods are called inside ``reading`` or ``writing``."""

    path: str
    budget: Budget
    secret: str

    @property
    def alone(self) -> bool:
        """Whether nobody else can have added entries."""
        ...

    def reading(self) -> AbstractContextManager[Self]:
        """Hold the connection, if it may still be used."""
        ...

    def writing(self) -> AbstractContextManager[Self]:
        """Hold all other writers off; then commit, durably. On an exception, write nothing."""
        ...

    def own(self, *, alone: bool) -> None:
        """Be the only one who has it open for writing, or one of several."""
        ...

    def poison(self, trouble: str) -> None:
        """Refuse every later use."""
        ...

    def close(self) -> None:
        """Close it. In a process that did not open it: do nothing."""
        ...

    def check(self) -> None:
        """Whether the database itself holds together; called while another thread reads."""
        ...

    def rows(self, after: int) -> Iterator[Fields]:
        """The fields of entries, in order."""
        ...

    def prices(self, after: int) -> list[tuple[int, str, str, bytes, bytes]]:
        """Number, mechanism, unit, orders and cost of prices, in order."""
        ...

    def with_seq(self, seq: int) -> Row | None:
        """The entry number ``seq``."""
        ...

    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""
        ...

    def with_asked(self, asked: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries in which these questions were first paid for."""
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
        """How many entries there are."""
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


def open_store(where: str, *, budget: Budget | None, secret: str) -> Store:
    """The store that a ledger's name means: a path, ``sqlite:///path``, or ``postgresql://…``."""
    if where.startswith(("postgresql://", "postgres://")):
        from ostraka.ledger.postgres import PostgresStore  # noqa: PLC0415  (psycopg is optional)

        return PostgresStore(where, budget=budget, secret=secret)
    from ostraka.ledger.store import SQLiteStore  # noqa: PLC0415  (it needs the names above)

    return SQLiteStore(where.removeprefix("sqlite:///"), budget=budget, secret=secret)


def agreed(
    path: str, *, found: Budget, expected: Budget | None, name: str, secret: str
) -> tuple[Budget, str]:
    """The stored budget and name of the secret, if they are what the caller expects."""
    if expected not in (None, found):
        raise LedgerError(f"{path} has {found}, not {expected}: leave budget= out to use its own")
    if name != secret:
        wants = "another secret" if name and secret else "a secret" if name else "no secret"
        raise LedgerError(f"{path} was begun with {wants}: give secret= as it was given then")
    return found, name
