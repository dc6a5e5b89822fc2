"""The body of the one door: check the promise, pay durably, then answer. Import it from ``ostraka.door``."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from ostraka.mechanisms.protocols import Staged
from ostraka.randomness import is_simulation, os_keyed

if TYPE_CHECKING:
    from ostraka.ledger import Ledger
    from ostraka.mechanisms.protocols import Mechanism, Releasing
    from ostraka.private import Private
    from ostraka.released import Released

__all__ = ["check_promise", "part_key", "protected", "release"]


@overload
def release(
    mechanism: Mechanism,
    private: Private,
    *,
    ledger: Ledger,
    rng: np.random.Generator | None = None,
    key: str | None = None,
) -> np.ndarray: ...
@overload
def release(
    mechanism: Releasing,
    private: Private,
    *,
    ledger: Ledger,
    rng: np.random.Generator | None = None,
    key: str | None = None,
) -> Released: ...
def release(
    mechanism: Releasing,
    private: Private,
    *,
    ledger: Ledger,
    rng: np.random.Generator | None = None,
    key: str | None = None,
) -> Released:
    """Answer from private data, after a durable charge.

    Parameters
    ----------
    mechanism : Mechanism
        Public. Its ``curve()`` is what each use costs. One with stages (:class:`~ostraka.Confident`) is
        paid for stage by stage, each for the entries that the answers before it let through.
    private : Private
        One use per entry.
    ledger : Ledger
        Where the charge is written before anything is answered.
    rng : numpy.random.Generator, optional
        None: a ChaCha20 generator keyed by the operating system, new for this call. Any other
        generator is a simulation: the ledger is marked so, for good. (Noise keyed by a kept secret is
        not one: see :func:`consistently`.)
    key : str, optional
        Public name of this release within the ledger. The same key again returns the stored
        answer and costs nothing; after a crash between charge and answer it draws a fresh
        answer under the charge already paid, since none can have left.

    Returns
    -------
    array, dict of named arrays, or Model
        Plain and public, in the mechanism's own shape.

    Raises
    ------
    ValueError
        The data can change more between neighbours than the mechanism promises to hide, its curve is about
        another kind of change, or it does not charge a whole number of uses, at least one where there is
        data; or a stored sample was answered from before.
    BudgetExceeded
        The charge does not fit; nothing was charged or answered.
    LedgerError
        The ledger is damaged, or ``key`` was used for another question.

    Guarantees
    ----------
    Everything returned so far is covered by ``ledger.spent()``. A crash between charge and
    answer loses budget, never privacy.

    Where a unit takes part by chance, the sampled price (:class:`~ostraka.mechanisms.Subsampled`) is for one
    answer from one sample. A stored sample is a ``Private`` with ``sampling_rate`` below 1: the first answer
    from each of its rows may have that price. Later ones are refused before the charge, unless they pay in
    full (``Subsampled(mechanism=..., sampling_rate=1.0)``). Arrays made of its rows count as it. This is
    noted in memory: another ``Private`` made from the same numbers, or a copy in another process (a fork, a
    restart), is not known to be the same sample.

    Examples
    --------
    >>> from ostraka import GNMax, Ledger, Budget, Private, Adjacency
    >>> votes = Private([[95, 5], [2, 98]], Adjacency.one_ballot())
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     release(GNMax(sigma=10.0), votes, ledger=ledger)
    array([0, 1])
    """
    check_promise(mechanism, private)
    if isinstance(mechanism, Staged):

        def stage(name: str, part: Mechanism, entries: Private) -> np.ndarray:
            return release(part, entries, ledger=ledger, rng=rng, key=part_key(key, name))

        return mechanism.in_stages(private, stage)
    sampled = mechanism.promise.sampling_rate < 1
    if sampled and not _is_answered(ledger, key):
        private.check_sample()
    entry = ledger.charge(
        mechanism,
        uses=_uses(mechanism, private),
        unit=protected(private),
        simulation=is_simulation(rng),
        key=key,
    )
    stored = ledger.answer(entry)
    if stored is not None:
        return stored
    answer = mechanism.release(private, rng=os_keyed() if rng is None else rng)
    private.take_sample(at_most_once=sampled)
    return ledger.record(entry, answer)


def protected(private: Private) -> str:
    """Who is protected, as a ledger records it: it refuses to add prices of a weaker promise to others."""
    unit, weaker = private.adjacency.unit, private.adjacency.relation == "zero-out"
    return f"{unit} (zero-out)" if weaker else unit


def check_promise(mechanism: Releasing, private: Private) -> None:
    """Raise unless the data is private, and the mechanism hides all that one unit can change of it."""
    if not hasattr(private, "adjacency"):
        raise TypeError(
            f"private must be a Private, got {type(private).__name__}: wrap it and say what one unit can "
            "change, as in Private(votes, Adjacency.one_ballot(unit='person'))"
        )
    if not private.adjacency.within(mechanism.promise):
        raise ValueError(f"{mechanism!r} hides {mechanism.promise}, but the data is {private.adjacency}")
    if (paid := mechanism.curve().moves) != mechanism.promise.moves:
        raise ValueError(
            f"{mechanism!r} promises to hide a {mechanism.promise.moves}, but its curve() is the price of a "
            f"{paid}: let curve() return a Curve with moves={mechanism.promise.moves!r}"
        )
    if isinstance(mechanism, Staged) and private.adjacency.sampling_rate < 1 and not private.drawn_anew:
        raise ValueError(
            f"{mechanism!r} pays for a sample of its own in each stage, but the data is one stored sample: "
            "ask Subsampled(mechanism=Confident(...), sampling_rate=...), which prices one sample for both"
        )


def _uses(mechanism: Releasing, private: Private) -> int:
    """The uses to charge: a whole number, and none only where there is nothing to answer from."""
    uses = mechanism.uses(private)
    least = 0 if 0 in private.shape else 1
    if isinstance(uses, bool) or not isinstance(uses, int | np.integer) or uses < least:
        raise ValueError(
            f"{mechanism!r} must charge a whole number of uses, {least} or more, for data of shape "
            f"{private.shape}, got {uses!r}: let its uses(private) return len(private) for one use an entry, "
            "or 1 for one release of everything"
        )
    return int(uses)


def _is_answered(ledger: Ledger, key: str | None) -> bool:
    """Whether the answer is stored already: then nothing is opened."""
    if key is None:
        return False
    return any(entry.key == key and ledger.answer(entry.seq) is not None for entry in ledger.entries())


def part_key(key: str | None, name: str) -> str | None:
    """The ledger's name for one payment of several."""
    return None if key is None else f"{key}/{name}"
