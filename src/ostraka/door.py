"""The one door from Private to plain arrays: check the promise, pay durably, then answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ostraka._release import check_promise, protected
from ostraka._release import release as release  # noqa: PLC0414  (ostraka exports it)
from ostraka.mechanisms.confident import Confident
from ostraka.mechanisms.guesses import AgainstGuesses
from ostraka.mechanisms.protocols import ABSTAIN as ABSTAIN  # noqa: PLC0414  (ostraka exports it)
from ostraka.mechanisms.protocols import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.consistent import Consistent
    from ostraka.curve import Priced
    from ostraka.ledger import BudgetExceeded, ChargeRequest, Ledger
    from ostraka.ledger.budget import KeyConflict
    from ostraka.ledger.records import Receipt
    from ostraka.mechanisms.protocols import BallotMechanism, Mechanism
    from ostraka.private import Private

__all__ = ["consistently", "release_each"]  # ostraka exports release, confident, interactive and ABSTAIN


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
        ``queries`` and ``votes`` of different lengths, rows ``consistent`` does not know, or a screen of a
        stored sample.
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
    if screen is not None and votes.adjacency.sampling_rate < 1 and not votes.drawn_anew:
        raise ValueError(
            "votes must be drawn anew for the screen and for the answer behind it, but this is one stored "
            "sample: leave screen= out, or take votes of NeighbourVoter"
        )
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
    screen: BallotMechanism,
    argmax: BallotMechanism,
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
        The student's class probabilities, from 0 to 1. Public.
    screen, argmax : Threshold and GNMax, or both Subsampled
        The screen sees votes minus ``n_teachers * guesses``: :class:`ostraka.mechanisms.AgainstGuesses`.
    n_teachers : int
        Number of teachers, at most 2**31. Public.
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
        ``guesses`` not from 0 to 1, or not of the shape of ``votes``; and as in :func:`release`.
        Larger guesses would let rounding decide, and a screen tell one ballot for certain.

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
    gate = AgainstGuesses(mechanism=screen, guesses=guesses, n_teachers=n_teachers)
    if gate.guesses.shape != votes.shape:
        raise ValueError(f"guesses must have the shape of votes, {votes.shape}, got {gate.guesses.shape}")
    if not 0 < confidence <= 1:
        raise ValueError(f"confidence must be in (0, 1], got {confidence!r}")
    asked = Confident(screen=gate, argmax=argmax)
    answers = release(asked, votes, ledger=ledger, rng=rng, key=key)
    sure = (answers == ABSTAIN) & (gate.guesses.max(axis=1) >= confidence)
    return np.where(sure, gate.guesses.argmax(axis=1), answers).astype(np.int64)


class Drawn(NamedTuple):
    """An answer in memory, not paid for yet: it must not leave before its charge is durable.

    Attributes
    ----------
    digest : str
        What was asked, as :meth:`ostraka.consistent.Consistent.digests` names it.
    answer : int
        A class index or ``ABSTAIN``.
    cost : Priced
        What it costs: the screen alone where that stopped the question.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> Drawn(digest="ab", answer=1, cost=GNMax(sigma=40.0)).answer
    1
    """

    digest: str
    answer: int
    cost: Priced


def release_each(
    mechanism: BallotMechanism,
    votes: Private,
    digests: Sequence[str],
    *,
    consistent: Consistent,
    ledger: Ledger,
    requests: Callable[[list[Drawn]], Sequence[ChargeRequest]],
) -> list[Receipt | BudgetExceeded | KeyConflict]:
    """Answer the questions of many clients: draw, charge all of them durably, and only then hand out.

    Parameters
    ----------
    mechanism : BallotMechanism
        Public. One with a screen is drawn as a whole for every question, so that a question which the
        screen stops is no less work than another; it is charged the screen only.
    votes : Private of shape (n_queries, n_classes), in votes
    digests : sequence of str, one a query
        Names of the questions. Equal questions get equal answers.
    consistent : Consistent
        Its secret keys the noise. Unless it is a kept one, the ledger is marked as a simulation.
    ledger : Ledger
    requests : callable(list of Drawn) -> sequence of ChargeRequest
        From the answers, one a query, to the charges: whose account, which key, what must fit. It may add
        requests of its own. What it is given must go nowhere else.

    Returns
    -------
    list of Receipt, BudgetExceeded or KeyConflict
        One for each request, as :meth:`ostraka.Ledger.charge_each` gives them. The answer of a receipt
        may leave, and nothing else.

    Raises
    ------
    ValueError
        The votes can change more between neighbours than the mechanism promises to hide, it does not
        charge one use a question, or a stored sample was answered from before, as in :func:`release`.
    LedgerError
        It is not known what was written: nothing may be answered.

    Examples
    --------
    >>> from ostraka import GNMax, Ledger, Budget, Private, Adjacency
    >>> from ostraka.consistent import Consistent
    >>> from ostraka.ledger import ChargeRequest
    >>> mechanism, once = GNMax(sigma=10.0), Consistent(secret=bytes(32), grid=0.1, teachers="demo")
    >>> def requests(drawn):
    ...     return [ChargeRequest(account="ann", key=each.digest, digest=each.digest, cost=each.cost,
    ...                           reserve=mechanism, answer=each.answer) for each in drawn]
    >>> votes = Private([[95, 5], [2, 98]], Adjacency.one_ballot())
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     _ = ledger.grant("ann", budget_epsilon=1.0)
    ...     found = release_each(mechanism, votes, once.digests([[0.0], [7.0]]), consistent=once,
    ...                          ledger=ledger, requests=requests)
    ...     [receipt.answer for receipt in found]
    [0, 1]
    """
    check_promise(mechanism, votes)
    if (uses := mechanism.uses(votes)) != len(votes):
        raise ValueError(f"{mechanism!r} must charge one use a question, {len(votes)} in all, got {uses!r}")
    screen, argmax = parts(mechanism)

    def draw(part: BallotMechanism) -> list[Any]:
        noise = cast("np.random.Generator", consistent.noises(digests, purpose=repr(part)))
        answers: list[Any] = part.release(votes, rng=noise).tolist()
        return answers

    sampled = mechanism.promise.sampling_rate < 1
    if sampled:
        votes.check_sample()
    labels = draw(argmax)
    votes.take_sample(at_most_once=sampled)
    if screen is None:
        drawn = [Drawn(digest, label, argmax) for digest, label in zip(digests, labels, strict=True)]
    else:
        drawn = [
            Drawn(digest, label, mechanism) if passed else Drawn(digest, ABSTAIN, screen)
            for digest, label, passed in zip(digests, labels, draw(screen), strict=True)
        ]
    return ledger.charge_each(requests(drawn), unit=protected(votes), simulation=not consistent.kept)
