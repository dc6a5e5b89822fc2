"""The ledger itself: charge, or refuse; then answer."""

from __future__ import annotations

import io
import os
from typing import NoReturn, Protocol, Self

import numpy as np

from ostraka import _check
from ostraka.curve import Curve
from ostraka.ledger.budget import Budget, BudgetExceeded, LedgerError
from ostraka.ledger.chain import INFINITE, Entry, Row, fold, link, price
from ostraka.ledger.sqlite import DAMAGED
from ostraka.ledger.store import Store

__all__ = ["Ledger"]

_Question = tuple[str, int, str, int]  # mechanism, uses, protects, simulation


class Priced(Protocol):
    """All that a ledger needs to know of a mechanism, beside its ``repr``."""

    def curve(self) -> Curve:
        """Cost of one use on any data."""
        ...


class Ledger:
    """Durable, append-only charges against a budget: charge first, then answer.

    Parameters
    ----------
    path : str or path-like
        An SQLite file on a local disk, or ``":memory:"`` for experiments.
    budget : Budget, optional
        Needed for a new file. For an existing one it must equal the stored budget; None takes that.

    Raises
    ------
    LedgerError
        The file is damaged, not a ledger, out of reach, or has another budget.

    Guarantees
    ----------
    A charge is on stable storage before :meth:`charge` returns. Entries are never changed, removed
    or refunded. Threads and processes may charge one file at once (each process opens its own
    ``Ledger``), and together never overspend. Sums are exact: each price is rounded up once.

    What is answered under accepted charges is (budget.epsilon, budget.delta)-differentially private
    for one unit ``protects``, however the questions are chosen, if the mechanisms and numbers of
    uses are fixed in advance (Mironov 2017, arXiv:1702.07476, Prop. 1, at each order; Dong et al.
    2019, arXiv:1905.02383, Cor. 2, for the Gaussian part). It also holds where earlier answers
    decide only how often *one* mechanism is used, as in Confident-GNMax with a fixed number of
    screens: its uses then fit up to a number fixed in advance, which is a filter at one order
    (Feldman and Zrnic 2020, arXiv:2008.11193, Thm. 3.1; Smith and Thakurta 2022, arXiv:2210.17520,
    for the Gaussian part). Where answers may decide more than that, begin the ledger with
    ``Budget(adaptive=True)``: it refuses by :class:`RenyiFilter`, and the claim holds for anything.
    Where answers decide how much is used, the bound is the budget; :meth:`epsilon` is a reading.

    Not noticed: an older copy put in place of the file, and changes by somebody who also
    recomputes the digests. :attr:`head`, noted elsewhere, shows both.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     ledger.charge(GNMax(sigma=40.0), uses=100, protects="row", simulation=False)
    ...     ledger.left() < 2.0
    1
    True
    """

    def __init__(self, path: str | os.PathLike[str], *, budget: Budget | None = None) -> None:
        self.path = os.fspath(path)
        self._store = Store(self.path, budget)
        self.budget = self._store.budget
        self._genesis = link(
            bytes(32),
            ["ostraka", self.budget.epsilon.hex(), self.budget.delta.hex(), int(self.budget.adaptive)],
        )
        try:
            self.verify()
        except BaseException:
            self.close()
            raise

    def charge(
        self, mechanism: Priced, *, uses: int, protects: str, simulation: bool, key: str | None = None
    ) -> int:
        """Record the cost of ``uses`` uses durably, or refuse and record nothing.

        Parameters
        ----------
        mechanism : Mechanism
            Public, with a ``repr`` that names its parameters. Its ``curve()`` must be publishable.
        uses : int >= 0
        protects : str
            The protected unit. The first charge binds the ledger to it.
        simulation : bool
            The noise will come from a generator that somebody could repeat.
        key : str, optional
            Public name of the release. A key charged before returns that entry and costs nothing.

        Returns
        -------
        int
            Sequence number of the entry.

        Raises
        ------
        BudgetExceeded
            The total after the charge is not known to be within the budget.
        LedgerError
            The ledger counts for another unit, or the key was used for another question.
        ValueError
            A cost computed from private data, or a wrong argument.
        """
        _check_uses(uses)
        _check_text(protects=protects)
        if key is not None:
            _check_text(key=key)
        curve = _publishable(mechanism)
        question = (repr(mechanism), int(uses), protects, int(simulation))
        with self._store.writing() as store:
            if key is not None and (known := store.with_key(key)):
                if (known.mechanism, known.uses, known.protects, known.simulation) != question:
                    raise LedgerError(
                        f"key {key!r} was charged for another question in {self.path}: use a new key"
                    )
                return known.seq
            last = store.last()
            row = self._after(last, curve, question, key)
            total = row.spent()
            if not self.budget.allows(total):
                raise self._refusal(last, row)
            store.append(row.sealed(last.digest if last else self._genesis, total.epsilon(self.budget.delta)))
        return row.seq

    def affords(self, mechanism: Priced, *, uses: int) -> bool:
        """Whether :meth:`charge` would find enough left for this now. Nothing is recorded."""
        _check_uses(uses)
        curve = _publishable(mechanism)
        with self._store.reading() as store:
            last = store.last()
        question = (repr(mechanism), int(uses), last.protects if last else "", 0)
        return self.budget.allows(self._after(last, curve, question, None).spent())

    def record(self, entry: int, answer: np.ndarray) -> np.ndarray:
        """Store the public answer of a keyed entry, unless one is there; return what is stored.

        Parameters
        ----------
        entry : int
            What :meth:`charge` returned.
        answer : array
            Public. Of any shape, not of objects.

        Returns
        -------
        numpy.ndarray
            The first answer recorded, by whichever process, so that every caller has the same. The
            answer of an entry without key comes back as it is, and is not stored.

        Raises
        ------
        LedgerError
            There is no such entry.
        """
        with self._store.reading() as store:
            row = store.with_seq(entry)
        if row is None:
            raise LedgerError(f"{self.path} has no entry {entry}: charge first, then record")
        if row.key is None:
            return answer
        written = io.BytesIO()
        np.save(written, answer, allow_pickle=False)
        array = written.getvalue()
        with self._store.writing() as store:
            first = store.answer(entry)
            if first is None:
                store.add_answer(row, array)
        return _load(array if first is None else first)

    def answer(self, entry: int) -> np.ndarray | None:
        """The answer stored for an entry, or None."""
        with self._store.reading() as store:
            array = store.answer(entry)
        return None if array is None else _load(array)

    def spent(self) -> Curve:
        """The cost of everything charged so far."""
        with self._store.reading() as store:
            last = store.last()
        return last.spent() if last else Curve.zero()

    def epsilon(self, delta: float | None = None) -> float:
        """Epsilon of everything charged so far, at ``delta`` (None: the budget's)."""
        return self.spent().epsilon(self.budget.delta if delta is None else delta)

    def left(self) -> float:
        """Epsilon that is left at the budget's delta; never negative."""
        return max(0.0, self.budget.epsilon - self.epsilon())

    def entries(self) -> tuple[Entry, ...]:
        """Every charge, in order."""
        with self._store.reading() as store:
            return tuple(row.entry() for row in store.rows())

    @property
    def simulation(self) -> bool:
        """Whether any noise came from a generator that somebody could repeat; once true, always true."""
        with self._store.reading() as store:
            return store.simulated() is not None

    @property
    def protects(self) -> str | None:
        """The unit this ledger counts for; None before the first charge."""
        with self._store.reading() as store:
            last = store.last()
        return last.protects if last else None

    @property
    def head(self) -> str:
        """Digest over the budget and every entry, in hexadecimal: note it elsewhere, compare it later."""
        with self._store.reading() as store:
            last = store.last()
        return (last.digest if last else self._genesis).hex()

    def verify(self) -> None:
        """Read everything again: every digest, total and answer.

        Raises
        ------
        LedgerError
            Something does not hold together; ``seq`` is the first bad entry.
        """
        with self._store.reading() as store:
            count, last, seq = store.count(), None, 0
            for row in store.rows():
                if wrong := row.breaks(last, self._genesis):
                    raise self._damaged(seq + 1, wrong)
                last, seq = row, row.seq
            if seq < count:
                raise self._damaged(seq + 1, "it has no price")
            if bad := store.bad_answer():
                raise self._damaged(bad, "its answer is not the one recorded")

    def close(self) -> None:
        """Close the file. In a process that did not open the ledger: do nothing."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.path!r}, budget={self.budget})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} does not travel: open Ledger({self.path!r}) in each process")

    def _after(self, last: Row | None, curve: Curve, question: _Question, key: str | None) -> Row:
        """The entry that would come next, not yet sealed."""
        mechanism, uses, protects, simulation = question
        orders, cost = price(curve)
        if last and last.bound_to != (protects, curve.unit, orders):
            raise LedgerError(
                f"{self.path} counts {last.unit} curves that protect a {last.protects}; this is "
                f"a {curve.unit} curve that protects a {protects}, or has other orders: use a separate ledger"
            )
        return Row(
            seq=last.seq + 1 if last else 1,
            key=key,
            mechanism=mechanism,
            unit=curve.unit,
            orders=orders,
            cost=cost,
            uses=uses,
            protects=protects,
            simulation=simulation,
            total=fold(last.total if last else None, cost, uses=uses),
        )

    def _refusal(self, last: Row | None, row: Row) -> BudgetExceeded:
        before = last.spent().epsilon(self.budget.delta) if last else 0.0
        asked = row.spent().epsilon(self.budget.delta) - before
        left = max(0.0, self.budget.epsilon - before)
        budget = f"{self.budget.epsilon:g} left at delta={self.budget.delta:g}"
        if self.budget.adaptive:
            budget += ", less what the choice of questions by answers takes"
        return BudgetExceeded(
            f"{self.path} has epsilon {left:.6g} of {budget}, and {row.uses} uses of {row.mechanism} "
            f"would add {asked:.6g}; nothing was charged: ask fewer questions, or use more noise",
            asked=asked,
            left=left,
        )

    def _damaged(self, seq: int, wrong: str) -> LedgerError:
        return LedgerError(f"{self.path} {DAMAGED} (entry {seq}: {wrong})", seq=seq)


def _publishable(mechanism: Priced) -> Curve:
    curve = mechanism.curve()
    if not curve.publishable:
        raise ValueError(
            f"{mechanism!r} has a cost computed from private data: only publishable curves are charged"
        )
    return curve


def _check_uses(uses: int) -> None:
    _check.integer(uses=uses)
    if uses >= INFINITE:
        raise ValueError(f"uses must be below 2**62, got {uses!r}")


def _check_text(**named: str) -> None:
    for name, value in named.items():
        if not (isinstance(value, str) and value and value.isprintable()):
            raise ValueError(f"{name} must be printable text and not empty, got {value!r}")


def _load(array: bytes) -> np.ndarray:
    loaded: np.ndarray = np.load(io.BytesIO(array), allow_pickle=False)
    return loaded
