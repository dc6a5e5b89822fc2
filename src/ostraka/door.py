"""The one door from Private to plain arrays: check the promise, pay durably, then answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check
from ostraka.consistent import KeyedNoise
from ostraka.mechanisms.confident import Confident
from ostraka.mechanisms.protocols import ABSTAIN, Staged

if TYPE_CHECKING:
    from ostraka.consistent import Consistent
    from ostraka.ledger import Ledger
    from ostraka.mechanisms.protocols import BallotMechanism, Mechanism
    from ostraka.private import Private

__all__ = ["ABSTAIN", "confident", "consistently", "interactive", "os_keyed", "release"]


def release(
    mechanism: Mechanism,
    private: Private,
    *,
    ledger: Ledger,
    rng: np.random.Generator | None = None,
    key: str | None = None,
) -> np.ndarray:
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
        generator is a simulation: the ledger is marked so, for good. (:class:`KeyedNoise`, under a
        secret key, is not one: see :func:`consistently`.)
    key : str, optional
        Public name of this release within the ledger. The same key again returns the stored
        answer and costs nothing; after a crash between charge and answer it draws a fresh
        answer under the charge already paid, since none can have left.

    Returns
    -------
    numpy.ndarray
        Plain and public, in the mechanism's own shape.

    Raises
    ------
    ValueError
        The data can change more between neighbours than the mechanism promises to hide.
    BudgetExceeded
        The charge does not fit; nothing was charged or answered.
    LedgerError
        The ledger is damaged, or ``key`` was used for another question.

    Guarantees
    ----------
    Every array returned so far is covered by ``ledger.spent()``. A crash between charge and
    answer loses budget, never privacy.

    Examples
    --------
    >>> from ostraka import GNMax, Ledger, Budget, Private, Adjacency
    >>> votes = Private([[95, 5], [2, 98]], Adjacency.one_ballot())
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     release(GNMax(sigma=10.0), votes, ledger=ledger)
    array([0, 1])
    """
    if not private.adjacency.within(mechanism.promise):
        raise ValueError(f"{mechanism!r} hides {mechanism.promise}, but the data is {private.adjacency}")
    if isinstance(mechanism, Staged):

        def stage(name: str, part: Mechanism, entries: Private) -> np.ndarray:
            return release(part, entries, ledger=ledger, rng=rng, key=_part(key, name))

        return mechanism.in_stages(private, stage)
    entry = ledger.charge(
        mechanism,
        uses=mechanism.uses(private),
        unit=private.adjacency.unit,
        simulation=not (rng is None or isinstance(rng, KeyedNoise)),
        key=key,
    )
    stored = ledger.answer(entry)
    if stored is not None:
        return stored
    answer = mechanism.release(private, rng=os_keyed() if rng is None else rng)
    return ledger.record(entry, answer)


def confident(
    votes: Private,
    *,
    screen: BallotMechanism,
    argmax: BallotMechanism,
    ledger: Ledger,
    rng: np.random.Generator | None = None,
    key: str | None = None,
) -> np.ndarray:
    """Confident-GNMax: answer the queries with a clear plurality, ``ABSTAIN`` elsewhere.

    The same as :func:`release` of :class:`~ostraka.Confident`: two payments in this order, the screen for
    every query, then the argmax for those it let through (which ones is public by then).

    Parameters
    ----------
    votes : Private of shape (n_queries, n_classes), in votes
    screen, argmax : BallotMechanism
        As for :class:`~ostraka.Confident`. Public.
    ledger, rng, key
        As for :func:`release`.

    Returns
    -------
    int64 array, shape (n_queries,)
        A class index or ``ABSTAIN``.

    Guarantees
    ----------
    Costs ``n_queries * screen.curve() + n_answered * argmax.curve()``.
    Source: Papernot et al. 2018, arXiv:1802.08908, Algorithm 1.

    Examples
    --------
    >>> from ostraka import GNMax, Threshold, Ledger, Budget, Private, Adjacency
    >>> votes = Private([[95, 5], [52, 48]], Adjacency.one_ballot())
    >>> with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
    ...     confident(votes, screen=Threshold(at=75, sigma=3.0), argmax=GNMax(sigma=10.0), ledger=ledger)
    array([ 0, -1])
    """
    return release(Confident(screen=screen, argmax=argmax), votes, ledger=ledger, rng=rng, key=key)


def consistently(
    mechanism: Mechanism,
    votes: Private,
    queries: Any,
    *,
    consistent: Consistent,
    ledger: Ledger,
    screen: Mechanism | None = None,
    rng: np.random.Generator | None = None,
    key: str = "once",
) -> np.ndarray:
    """Answer each question once: repeats, in this call or after a restart, get the same label at no cost.

    Parameters
    ----------
    mechanism : GNMax or LNMax
        Public.
    votes : Private of shape (n_queries, n_classes), in votes
        Of rows with one canonical form, the first one's votes decide.
    queries : array or data frame, shape (n_queries, n_features)
        Public. What was asked, to tell repeats by.
    consistent : Consistent
        What makes two rows one question, and the secret that its noise is drawn from.
    ledger : Ledger
        Keeps the answers, under keys that tell nothing about the rows without the secret.
    screen : Threshold, optional
        Ask only where the plurality is clear; a question that it stopped stays stopped.
    rng : numpy.random.Generator, optional
        For simulations only, which the ledger is then marked as.
    key : str
        Public. Entries of the ledger are shared between calls with the same one.

    Returns
    -------
    int64 array, shape (n_queries,)
        A class index or ``ABSTAIN``.

    Raises
    ------
    ValueError
        ``queries`` and ``votes`` of different lengths, or rows ``consistent`` does not know.
    BudgetExceeded
        A new question does not fit. What was answered before it is kept.

    Guarantees
    ----------
    Costs ``n_distinct * mechanism.curve()``, and the screen's for each. Computationally private, as
    :class:`~ostraka.consistent.Consistent` states: whoever learns the secret learns the noise.

    Examples
    --------
    >>> from ostraka import GNMax, Ledger, Budget, Private, Adjacency
    >>> from ostraka.consistent import Consistent
    >>> votes = Private([[95, 5], [95, 5], [2, 98]], Adjacency.one_ballot())
    >>> one = Consistent(secret=bytes(32), grid=0.1, teachers="demo")
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     labels = consistently(
    ...         GNMax(sigma=10.0), votes, [[0.0], [-0.0], [7.0]], consistent=one, ledger=ledger
    ...     )
    ...     labels, len(ledger.entries())
    (array([0, 0, 1]), 2)
    """
    digests = consistent.digests(queries)
    if len(digests) != len(votes):
        raise ValueError(f"queries must have one row for each of {len(votes)} votes, got {len(digests)}")
    found: dict[str, int] = {}
    answers = np.empty(len(votes), dtype=np.int64)
    for row, digest in enumerate(digests):
        if digest not in found:
            asked, name = votes[row : row + 1], f"{key}/{digest}"
            noise = consistent.noise(digest, purpose=repr(mechanism)) if rng is None else rng
            if screen is not None:
                doubt = consistent.noise(digest, purpose=repr(screen)) if rng is None else rng
                clear = release(screen, asked, ledger=ledger, rng=doubt, key=f"{name}/screen")
                if not clear[0]:
                    found[digest] = ABSTAIN
            if digest not in found:
                found[digest] = int(release(mechanism, asked, ledger=ledger, rng=noise, key=name)[0])
        answers[row] = found[digest]
    return answers


def interactive(
    votes: Private,
    guesses: Any,
    *,
    screen: Mechanism,
    argmax: Mechanism,
    n_teachers: int,
    confidence: float,
    ledger: Ledger,
    rng: np.random.Generator | None = None,
    key: str | None = None,
) -> np.ndarray:
    """Interactive-GNMax: ask the teachers only where they disagree with what the student already thinks.

    Parameters
    ----------
    votes : Private
        Shape (n_queries, n_classes), in votes.
    guesses : array of shape (n_queries, n_classes)
        The student's class probabilities. Public.
    screen, argmax : Threshold and GNMax, or both Subsampled
        The screen sees votes minus ``n_teachers * guesses``.
    n_teachers : int
        Number of teachers. Public.
    confidence : float in (0, 1]
        Where the screen is not passed but the student is at least this sure, its own guess is
        the answer, at no further cost.
    ledger, rng, key
        As in :func:`release`. The same key goes with the same guesses.

    Returns
    -------
    int64 array, shape (n_queries,)
        A class index or ``ABSTAIN``.

    Raises
    ------
    ValueError
        ``guesses`` not finite or not of the shape of ``votes``; and as in :func:`release`.

    Guarantees
    ----------
    Costs ``n_queries * screen.curve() + n_asked * argmax.curve()``.
    Source: Papernot et al. 2018, arXiv:1802.08908, Algorithm 2.

    Examples
    --------
    The student is sure and right of the first query, and wrong about the second:

    >>> from ostraka import GNMax, Threshold, Ledger, Budget, Private, Adjacency
    >>> votes, guesses = Private([[95, 5], [3, 97]], Adjacency.one_ballot()), [[0.99, 0.01], [0.9, 0.1]]
    >>> screen, argmax = Threshold(at=50, sigma=5.0), GNMax(sigma=10.0)
    >>> with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
    ...     interactive(
    ...         votes, guesses, screen=screen, argmax=argmax, n_teachers=100, confidence=0.95, ledger=ledger
    ...     )
    array([0, 1])
    """
    _check.integer(n_teachers=n_teachers, least=1)
    guess = np.asarray(guesses, dtype=np.float64)
    if guess.shape != votes.shape or not np.isfinite(guess).all():
        raise ValueError(f"guesses must be finite and of shape {votes.shape}, got {guess.shape}")
    if not 0 < confidence <= 1:
        raise ValueError(f"confidence must be in (0, 1], got {confidence!r}")
    surprise = type(votes)(votes.open() - n_teachers * guess, votes.adjacency)
    ask = release(screen, surprise, ledger=ledger, rng=rng, key=_part(key, "screen"))
    answers = np.where(guess.max(axis=1) >= confidence, guess.argmax(axis=1), ABSTAIN).astype(np.int64)
    if ask.any():
        answers[ask] = release(argmax, votes[ask], ledger=ledger, rng=rng, key=_part(key, "argmax"))
    return answers


def _part(key: str | None, name: str) -> str | None:
    return None if key is None else f"{key}/{name}"


def os_keyed() -> np.random.Generator:
    """Where release noise comes from: a ChaCha20 stream under a fresh 256-bit key from the operating system.

    Returns
    -------
    numpy.random.Generator
        One for each call; nobody can repeat it.

    Examples
    --------
    >>> os_keyed().normal() == os_keyed().normal()
    False
    """
    from randomgen import ChaCha  # noqa: PLC0415  (0.1 s to import; only releases need it)

    return np.random.Generator(ChaCha(key=int.from_bytes(os.urandom(32), "little"), rounds=20))
