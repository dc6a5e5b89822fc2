"""Parties: fixed owners of data, of whose votes only the noisy sum is revealed (CaPC).

Each party has its own rows and its own model, in its own process. An aggregator asks public rows.
In each round every party draws a fresh key, signs it, and adds to its votes one mask for each
other participant; masks of a pair cancel in the sum. What is known to whom:

====================  =============================================================================
a party               the questions, who takes part, its own votes
whoever listens       the questions (without TLS), who takes part
the aggregator        the sum of the votes: exact with ``noise="aggregator"``, noisy with
                      ``noise="parties"``
the public            what :func:`ostraka.release` returns
====================  =============================================================================

The claims hold if the aggregator and the parties are curious but keep to the protocol, and where
that matters little, further: see docs/parties.md for who must be trusted with what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ostraka.core import check
from ostraka.core.private import Private
from ostraka.parties.asker import Asker, clear_round, secret_round
from ostraka.parties.party import Party as Party  # noqa: PLC0414  (read from here)
from ostraka.secure.agreement import Agreement as Agreement  # noqa: PLC0414  (read from here)
from ostraka.secure.agreement import SecretQuestions as SecretQuestions  # noqa: PLC0414  (read from here)
from ostraka.secure.agreement import fixed_rows
from ostraka.secure.dealer import Dealer as Dealer  # noqa: PLC0414  (read from here)
from ostraka.secure.keys import Identity as Identity  # noqa: PLC0414  (read from here)
from ostraka.secure.rounds import DEALER
from ostraka.secure.rounds import PartyError as PartyError  # noqa: PLC0414  (read from here)
from ostraka.secure.wire import PartyServer as PartyServer  # noqa: PLC0414  (read from here)
from ostraka.secure.wire import link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ostraka.secure.wire import Link


class PartyEnsemble:
    """The aggregator: it asks parties rounds of questions and learns the sums of their votes.

    Parameters
    ----------
    parties : mapping of str to Party or str
        For each member of the agreement its address (``"http://127.0.0.1:8750"``), or the party
        itself for experiments in one process.
    agreement : Agreement
        What all parties agreed on.
    identity : Identity
        The aggregator's, which the agreement names.
    questions : {"clear", "secret"}, default "clear"
        ``"secret"``: parties vote on rows that they cannot see. The agreement must say so, too.
    dealer : str or Dealer, optional
        With secret questions: the dealer's address, or the dealer itself for experiments.
    timeout : float > 0, seconds, default 60
        How long a party may stay silent.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"votes"`` and the number of rows that are counted.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Public. Column k of the votes counts ``classes_[k]``.

    Raises
    ------
    ValueError
        Parties that are not the agreement's, an identity that is not its aggregator's, ``questions`` that are
        not as agreed, a dealer where none is needed or none where one is.

    Guarantees
    ----------
    One party, whatever its data, moves at most one ballot in each row: the unit is the party. No
    party's own votes exist outside its process, masked ones apart. With ``noise="aggregator"``
    this process holds exact counts, as a curator does; whoever may ask the same rows with and
    without a party learns that party's votes, so such rounds must not be repeated with fewer.
    With ``noise="parties"`` it only ever holds noisy ones.
    Source: Choquette-Choo et al. 2021, arXiv:2102.05188 (CaPC; here questions are public to the
    parties, and sums of masked votes replace its secret sharing and garbled circuits).

    Examples
    --------
    >>> from ostraka import Budget, Ledger, release
    >>> from sklearn.naive_bayes import GaussianNB
    >>> data = [([[0.1 * k], [5.0]], ["no", "yes"]) for k in range(5)]
    >>> parties = PartyEnsemble.in_process(GaussianNB(), data, classes=["no", "yes"], sigma=1.0)
    >>> votes = parties.vote([[0.0], [4.9]])
    >>> votes
    Private(shape=(2, 2), unit='party')
    >>> with Ledger(":memory:", budget=Budget(epsilon=20.0, delta=1e-5)) as ledger:
    ...     release(parties.agreement.mechanism, votes, ledger=ledger).shape
    (2,)
    """

    def __init__(
        self,
        parties: Mapping[str, Party | str],
        *,
        agreement: Agreement,
        identity: Identity,
        questions: Literal["clear", "secret"] = "clear",
        dealer: Dealer | str | None = None,
        timeout: float = 60.0,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        check.positive(timeout=timeout)
        if identity.public_key != agreement.aggregator:
            raise ValueError("the agreement names another aggregator than this identity")
        if set(parties) != set(agreement.members):
            raise ValueError(f"parties must be those of the agreement: {', '.join(agreement.members)}")
        check.one_of(questions=questions, allowed=("clear", "secret"))
        if (questions == "secret") != (agreement.secret is not None):
            agreed = "clear" if agreement.secret is None else "secret"
            raise ValueError(f"questions must be {agreed!r}, as agreed, got {questions!r}")
        if (questions == "secret") != (dealer is not None):
            raise ValueError("secret questions need a dealer, and clear ones none")
        self.parties = dict(parties)
        self.agreement = agreement
        self.progress = progress
        self.classes_ = np.array(agreement.classes)
        self._identity = identity
        self._links = {name: link(name, party, timeout=timeout) for name, party in parties.items()}
        self._dealer: Link | None = None
        if dealer is not None:
            self._dealer = link(DEALER, dealer, timeout=timeout)

    @classmethod
    def in_process(
        cls,
        estimator: Any,
        data: Sequence[tuple[Any, Any]],
        *,
        classes: Iterable[Any],
        sigma: float,
        noise: Literal["aggregator", "parties"] = "aggregator",
        colluding: int = 0,
        quorum: int | None = None,
        max_rows: int = 1024,
        questions: Literal["clear", "secret"] = "clear",
        input_range: tuple[float, float] | None = None,
        hidden: int = 0,
        reveals: Literal["counts", "argmax"] = "counts",
        random_state: int | None = None,
    ) -> PartyEnsemble:
        """Run all parties in this process, for experiments and audits: the same code without secrecy.

        Parameters
        ----------
        estimator : scikit-learn classifier
        data : sequence of (X, y)
            Private. What each party holds; they are named ``party-1``, ``party-2``, ….
        classes, sigma, noise, colluding, quorum, max_rows
            As in :class:`Agreement`.
        questions, input_range, hidden, reveals
            ``questions="secret"``: with a dealer in this process, and as in :class:`SecretQuestions`.
        random_state : int, optional
            Seeds the training, never noise or masks.
        """
        names = [f"party-{number}" for number in range(1, len(data) + 1)]
        identities = {name: Identity.fresh() for name in names}
        aggregator, dealing = Identity.fresh(), Identity.fresh()
        shape, secret = np.shape(data[0][0]) if len(data) else (), None
        if questions == "secret":
            if input_range is None:
                raise ValueError("secret questions need an input_range")
            secret = SecretQuestions(
                dealer=dealing.public_key, input_range=input_range, hidden=hidden, reveals=reveals
            )
        agreement = Agreement(
            members={name: identity.public_key for name, identity in identities.items()},
            aggregator=aggregator.public_key,
            classes=tuple(classes),
            n_features=shape[-1] if shape else 1,  # what has no columns is refused by its party
            sigma=sigma,
            noise=noise,
            colluding=colluding,
            quorum=quorum,
            max_rows=max_rows,
            secret=secret,
        )
        parties = {
            name: Party(
                estimator, X, y, agreement=agreement, identity=identities[name], random_state=random_state
            )
            for name, (X, y) in zip(names, data, strict=True)
        }
        dealer = None if secret is None else Dealer(agreement, dealing)
        return cls(parties, agreement=agreement, identity=aggregator, questions=questions, dealer=dealer)

    def vote(self, X: Any, *, without: Iterable[str] = ()) -> Private:
        """Every party votes once on every row, in rounds of at most ``max_rows``.

        Parameters
        ----------
        X : array of shape (n_queries, n_features)
            Finite numbers. Public: every party sees them. With secret questions nobody does, and
            each must lie within the agreed input range.
        without : iterable of str
            Parties to leave out, if the agreement's quorum allows. Public.

        Returns
        -------
        Private of shape (n_queries, n_classes), in votes
            One ballot a party, ready for ``release(agreement.mechanism, …)``. With
            ``noise="parties"`` the noise is in them already, and only that mechanism takes them. With
            ``SecretQuestions(reveals="argmax")`` they are 1 at the noisy argmax and 0 elsewhere.

        Raises
        ------
        ValueError
            Rows of another shape or not finite, unknown parties, fewer than the quorum.
        PartyError
            A party is out of reach, refuses or is not who it should be. Nothing was counted; rows
            of earlier rounds are lost. Its ``parties`` can be passed as ``without``.
        """
        rows = np.ascontiguousarray(X, dtype="<f8")
        if rows.ndim != 2 or not len(rows) or rows.shape[1] != self.agreement.n_features:
            raise ValueError(f"X must have shape (n_queries, {self.agreement.n_features}), got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError(f"X of shape {rows.shape} must be finite")
        if self.agreement.secret is not None:
            rows = fixed_rows(rows, self.agreement.secret)
        left_out = {without} if isinstance(without, str) else set(without)
        if unknown := left_out - set(self.agreement.members):
            raise ValueError(f"without names parties the agreement does not: {', '.join(sorted(unknown))}")
        names = tuple(name for name in self.agreement.members if name not in left_out)
        if len(names) < self.agreement.least:
            raise ValueError(
                f"a round needs {self.agreement.least} parties (the quorum), but {len(names)} are left"
            )
        ask = clear_round if self.agreement.secret is None else secret_round
        asker = Asker(self.agreement, self._identity, self._links, self._dealer)
        counts = []
        for start in range(0, len(rows), self.agreement.max_rows):
            counts.append(ask(asker, rows[start : start + self.agreement.max_rows], names))
            if self.progress is not None:
                self.progress("votes", min(start + self.agreement.max_rows, len(rows)), len(rows))
        mechanism = self.agreement.mechanism
        return Private(np.concatenate(counts), mechanism.promise).with_adjacency(unit="party")

    def __repr__(self) -> str:
        return f"PartyEnsemble({len(self.parties)} parties, agreement={self.agreement.sha256[:16]!r})"
