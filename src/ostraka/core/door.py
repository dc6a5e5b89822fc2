"""The one door from Private to plain arrays: check the promise, pay durably, then answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import numpy as np

from ostraka.core.mechanisms.law import ABSTAIN, law, payments
from ostraka.core.mechanisms.screen import AgainstGuesses, Confident
from ostraka.core.private import promise_words
from ostraka.core.randomness import is_simulation, os_keyed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.core.consistent import Consistent
    from ostraka.core.curve import Priced
    from ostraka.core.ledger.budget import BudgetExceeded, KeyConflict
    from ostraka.core.ledger.chain import ChargeRequest, Receipt
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.law import BallotMechanism, Mechanism, Releasing
    from ostraka.core.private import Private
    from ostraka.core.released import Released

__all__ = ["consistently", "release_each"]


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

    Where a unit takes part by chance, the sampled price (``Subsampled``) is for one
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

    def pay(
        part: Releasing, entries: Private, name: str | None, noise: np.random.Generator | None = None
    ) -> Any:
        """Charge one payment durably, then answer it."""
        if part is not mechanism:
            check_promise(part, entries)
        source = noise if rng is None else rng
        sampled = part.promise.sampling_rate < 1
        if sampled:
            earlier = None if name is None else ledger.entry_of(name)
            if earlier is None or ledger.answer(earlier.seq) is None:  # else nothing is opened
                entries.check_sample()
        uses = part.uses(entries)
        least = 0 if 0 in entries.shape else 1  # none only where there is nothing to answer from
        if isinstance(uses, bool) or not isinstance(uses, int | np.integer) or uses < least:
            raise ValueError(
                f"{part!r} must charge a whole number of uses, {least} or more, for data of shape "
                f"{entries.shape}, got {uses!r}: let its uses(private) return len(private) for one use an "
                "entry, or 1 for one release of everything"
            )
        entry = ledger.charge(
            part, uses=int(uses), unit=protected(entries), simulation=is_simulation(source), key=name
        )
        stored = ledger.answer(entry)
        if stored is not None:
            return stored
        answer = part.release(entries, rng=os_keyed() if source is None else source)
        entries.take_sample(at_most_once=sampled)
        return ledger.record(entry, answer)

    # a question that is put in its own order, such as Consistent.once(...), says so
    in_turn: Callable[..., Released] = getattr(mechanism, "in_turn", law(mechanism).in_turn)
    return in_turn(private, pay, key)


def protected(private: Private) -> str:
    """The protected unit as a ledger records it: it refuses to add prices of one relation to another's."""
    return promise_words(private.adjacency.unit, private.adjacency.relation)


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
    if len(law(mechanism).paid) > 1 and private.adjacency.sampling_rate < 1 and not private.drawn_anew:
        raise ValueError(
            f"{mechanism!r} pays for a sample of its own in each stage, but the data is one stored sample: "
            "ask Subsampled(mechanism=Confident(...), sampling_rate=...), which prices one sample for both"
        )


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
    mechanism: BallotMechanism,
    votes: Private,
    queries: Any,
    *,
    consistent: Consistent,
    ledger: Ledger,
    screen: BallotMechanism | None = None,
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
    :class:`~ostraka.core.consistent.Consistent` states: whoever learns the secret learns the noise.

    Examples
    --------
    >>> from ostraka import GNMax, Ledger, Budget, Private, Adjacency
    >>> from ostraka.core.consistent import Consistent
    >>> votes = Private([[95, 5], [95, 5], [2, 98]], Adjacency.one_ballot())
    >>> one = Consistent(secret=bytes(32), grid=0.1, teachers="demo")
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     labels = consistently(
    ...         GNMax(sigma=10.0), votes, [[0.0], [-0.0], [7.0]], consistent=one, ledger=ledger
    ...     )
    ...     labels, len(ledger.entries())
    (array([0, 0, 1]), 2)
    """
    question = mechanism if screen is None else Confident(screen=screen, argmax=mechanism)
    return release(consistent.once(question, queries), votes, ledger=ledger, rng=rng, key=key)


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
        The screen sees votes minus ``n_teachers * guesses``: :class:`ostraka.core.mechanisms.AgainstGuesses`.
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
    guessed = gate.sure(confidence)
    answers = release(Confident(screen=gate, argmax=argmax), votes, ledger=ledger, rng=rng, key=key)
    return np.where(answers == ABSTAIN, guessed, answers)


class Drawn(NamedTuple):
    """An answer in memory, not paid for yet: it must not leave before its charge is durable.

    Attributes
    ----------
    digest : str
        What was asked, as :meth:`ostraka.core.consistent.Consistent.digests` names it.
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
    >>> from ostraka.core.consistent import Consistent
    >>> from ostraka.core.ledger import ChargeRequest
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
    *screens, argmax = payments(mechanism)

    def draw(part: BallotMechanism) -> list[Any]:
        noise = cast("np.random.Generator", consistent.noises(digests, purpose=repr(part)))
        answers: list[Any] = part.release(votes, rng=noise).tolist()
        return answers

    sampled = mechanism.promise.sampling_rate < 1
    if sampled:
        votes.check_sample()
    labels = [Drawn(digest, label, mechanism) for digest, label in zip(digests, draw(argmax), strict=True)]
    votes.take_sample(at_most_once=sampled)
    for screen in screens:
        for row, passed in enumerate(draw(screen)):
            if not passed:
                labels[row] = Drawn(digests[row], ABSTAIN, screen)
    return ledger.charge_each(requests(labels), unit=protected(votes), simulation=not consistent.kept)
