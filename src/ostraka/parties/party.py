"""A party: its own rows and model, one masked ballot per row in each round, and the ledger that pays.

In a secret round, whose questions no party sees, a party has one session, which takes each message once, in
order. Where the asker learns the noisy argmax and no counts, the first party that takes part holds the sum of
all parties' halves, noise included, and the asker the sum of its own halves. Both compare, as a model's owner
and the asker do.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import warnings
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ostraka.core.ledger.budget import BudgetExceeded, LedgerError
from ostraka.core.mechanisms.skellam import skellam
from ostraka.data.labels import Labels
from ostraka.data.table import rows
from ostraka.parties.models import check_supported, fixed_model
from ostraka.secure import rounds, two_party
from ostraka.secure.agreement import sizes_of
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, HoldsSecrets, exchange_key, new_secret
from ostraka.secure.masks import stream
from ostraka.secure.rounds import HOLDER, Call, Round, refused, refusing, unsealed
from ostraka.secure.two_party import (
    FixedModel,
    OwnerLargest,
    OwnerSide,
    Sent,
    argmax_pads,
    words_bytes,
)
from ostraka.voters.voting import Shard, Teacher, count_votes, train, vote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ostraka.core.ledger.ledger import Ledger
    from ostraka.secure.agreement import Agreement
    from ostraka.secure.keys import Identity
    from ostraka.secure.rounds import PartyError

_USED_UP = "what it may answer is used up"
_OPEN_SECRET_ROUNDS = 8  # each keeps pads in memory; the oldest is given up for a new one
_OPEN_ROUNDS = 64  # the oldest is given up for a new one
_PAID = frozenset({"/v1/vote", "/v1/hold", "/v1/argmax"})  # a lost reply to these would be paid for in vain
_ASK_ALONE = threading.Lock()  # estimators may use global generators and warning filters
Checked = TypeVar("Checked")


class Party(HoldsSecrets):
    """One party: it trains on its own rows, which never leave, and answers rounds of questions.

    Parameters
    ----------
    estimator : scikit-learn classifier
        This party's own choice. It may differ from the others'.
    X : array of shape (n_rows, n_features)
        Private. Finite numbers.
    y : array of shape (n_rows,)
        Private. Classes of the agreement.
    agreement : Agreement
        What all parties agreed on. It has this identity's key among its members.
    identity : Identity
        What this party signs with.
    ledger : Ledger, optional
        This party's own: it pays the agreement's price before each answer, and refuses beyond its
        budget. None: it answers any number of rounds.
    random_state : int, optional
        Seeds the training, never noise or masks.

    Raises
    ------
    ValueError
        The identity is not a member, wrong shapes, a class that is not in the agreement.

    Guarantees
    ----------
    Each answer is the one-hot votes (plus this party's noise, with ``noise="parties"``) plus masks
    modulo 2^32. It looks uniform without the round's secret of this party or, for each other
    participant, of that one. Only the sum over *all* participants of one call shows anything, and
    only to the aggregator. Secrets are drawn for one round, used once and forgotten, so a mask
    never hides two votes, not even after a restart; a second request in a round is refused. The same
    request again, as after a connection that broke, gets the same bytes and pays nothing.

    A model that cannot be trained or asked votes for a class fixed by the party's place in the
    agreement. The error is reported to no other participant.

    Not protected: how long an answer takes; the questions, which every participant sees.
    Source: Bonawitz et al. 2017, doi:10.1145/3133956.3133982 (masks, without recovery of dropped
    parties); Choquette-Choo et al. 2021, arXiv:2102.05188 (CaPC).

    Examples
    --------
    >>> from ostraka.parties.parties import Agreement, Identity
    >>> from sklearn.naive_bayes import GaussianNB
    >>> us = {name: Identity.fresh() for name in ("north", "south", "west")}
    >>> agreement = Agreement(
    ...     members={name: one.public_key for name, one in us.items()},
    ...     aggregator=Identity.fresh().public_key, classes=[0, 1], n_features=1, sigma=1.0)
    >>> Party(GaussianNB(), [[0.0], [1.0]], [0, 1], agreement=agreement, identity=us["west"])
    Party(name='west')
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        agreement: Agreement,
        identity: Identity,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        places = {key: (place, name) for place, (name, key) in enumerate(agreement.members.items())}
        if identity.public_key not in places:
            raise ValueError("this identity is none of the agreement's members")
        place, self.name = places[identity.public_key]
        self.agreement = agreement
        self._identity = identity
        self._payments = Payments(self.name, agreement, ledger)
        self._open: OrderedDict[str, tuple[Call, bytes]] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._replies: OrderedDict[bytes, Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        check_supported(estimator, agreement)
        X, y = rows(np.asarray(X), estimator), np.asarray(y)
        if X.shape != (len(X), agreement.n_features):
            raise ValueError(f"X must have shape (n_rows, {agreement.n_features}), got {X.shape}")
        codes = Labels.of(y, agreement.classes, n_rows=len(X), least=2).encode(y)
        seed = np.random.SeedSequence(random_state, spawn_key=(place,))
        shard = Shard(X.astype(np.float64), codes, seed, place % len(agreement.classes))
        with _ASK_ALONE:
            self._teacher: Teacher = train(estimator, [shard])[0]
        if self._teacher.failed:
            warnings.warn(
                f"The model of {self.name} could not be trained and votes a class fixed by place. "
                "That is private: do not publish it. To see why, train it by hand.",
                stacklevel=2,
            )
        self._secret: SecretSessions | None = None
        if agreement.secret is not None:
            self._secret = SecretSessions(self.name, agreement, fixed_model(self._teacher, agreement))

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """The handlers of messages, by address."""
        verbs: dict[str, Callable[[bytes], bytes]] = {"/v1/join": self.join, "/v1/vote": self.vote}
        if self._secret is not None:
            verbs |= {"/v1/ask": self.ask, "/v1/layer": self.layer}
        if self.agreement.argmax_only:
            verbs |= {"/v1/hold": self.hold, "/v1/argmax": self.argmax}
        return {
            path: partial(self._once, handler) if path in _PAID else handler
            for path, handler in verbs.items()
        }

    def _once(self, handler: Callable[[bytes], bytes], message: bytes) -> bytes:
        """The reply to a message; the same one again waits for that reply, and gets it."""
        digest = hashlib.sha256(message).digest()
        with self._lock:
            first, reply = digest not in self._replies, self._replies.setdefault(digest, Future())
            while len(self._replies) > _OPEN_ROUNDS:
                self._replies.popitem(last=False)
        if first:
            try:
                reply.set_result(handler(message))
            except BaseException as error:
                reply.set_exception(error)
                with self._lock:  # strangers' messages would put out replies that are paid for
                    self._replies.pop(digest, None)
                raise
        return reply.result()

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message to this party."""
        questions = 0 if self._secret is None else most_ask_bytes(self.agreement)
        return rounds.most_bytes(self.agreement) + questions

    def join(self, sealed: bytes) -> bytes:
        """Join a round; return a fresh key for it, signed.

        Raises
        ------
        PartyError
            The call is not the aggregator's, not under this agreement, or beyond the budget.
        """
        call = self._checked(lambda: Call.read(self._from_aggregator("call", sealed), self.agreement))
        if self.name not in call.participants:
            raise self._refusal("it is not among the participants of the call")
        self._payments.afford(call.n_rows)
        secret = new_secret()
        with self._lock:
            if call.id in self._known:
                raise self._refusal("it knows this round already: start a new one")
            if self._secret is None:
                self._open[call.digest] = call, secret
            self._known[call.id] = None
            while len(self._open) > _OPEN_ROUNDS:
                self._open.popitem(last=False)
            while len(self._known) > 64 * _OPEN_ROUNDS:  # its secret is long gone: masks would be new ones
                self._known.popitem(last=False)
        reply = self._identity.seal("reply", rounds.reply(call, self.name, exchange_key(secret)))
        if self._secret is None:
            return reply
        sessions = self._secret
        self._payments.cap()
        weights = self._checked(lambda: sessions.join(call, secret))
        return rounds.pack([reply, self._identity.seal("weights", bytes.fromhex(call.digest) + weights)])

    def ask(self, sealed: bytes) -> bytes:
        """Take masked rows and the opening of a model's first layer; return this party's half of the result.

        Raises
        ------
        PartyError
            As :meth:`vote`; or the dealer did not sign the material for this round and party.
        """
        sessions = self._sessions()
        request, material = self._checked(lambda: rounds.unpack(sealed, 2))  # the dealer signed the second
        body = self._from_aggregator("ask", request)
        session, answer = self._checked(lambda: sessions.ask(body, material))
        return self._identity.seal("ask", session.transcript + answer)

    def layer(self, sealed: bytes) -> bytes:
        """Take the opening of the second layer; return this party's half of it. PartyError as :meth:`ask`."""
        sessions, body = self._sessions(), self._from_aggregator("layer", sealed)
        session, answer = self._checked(lambda: sessions.layer(body))
        return self._identity.seal("layer", session.transcript + answer)

    def hold(self, sealed: bytes) -> bytes:
        """Add up all votes as the holder, noise included, and compare; return this party's part of it.

        Raises
        ------
        PartyError
            As :meth:`ask`; or another party's votes are not of this round, or this party is not the holder.
        """
        sessions = self._sessions()
        request, material = self._checked(lambda: rounds.unpack(sealed, 2))
        body = self._from_aggregator("hold", request)
        session, total = self._checked(lambda: sessions.hold(body, material))
        masks = self._masks(session.round, session.secret)
        self._take(session)
        total = total + self._noise(total.shape) + masks
        answer = self._checked(lambda: sessions.compared(session, total.astype(np.uint32)))
        return self._identity.seal("hold", session.transcript + answer)

    def argmax(self, sealed: bytes) -> bytes:
        """Return the holder's half of the noisy argmax, as ones and zeros. PartyError as :meth:`ask`."""
        sessions, body = self._sessions(), self._from_aggregator("argmax", sealed)
        session, ones = self._checked(lambda: sessions.argmax(body))
        return self._identity.seal("argmax", session.transcript + ones.astype("<u4").tobytes())

    def vote(self, sealed: bytes) -> bytes:
        """Return the masked votes, signed. A party votes at most once in a round.

        Raises
        ------
        PartyError
            The request is not the aggregator's, its round is not open, somebody's reply or the
            rows are not those of the call, or the budget is used up.
        """
        if self._secret is not None:
            # the last message of a secret round: this party's half of its votes, masked
            sessions, body = self._secret, self._from_aggregator("turn", sealed)
            session, half = self._checked(lambda: sessions.turn(body))
            masks = self._masks(session.round, session.secret)
            self._take(session)
            masked = half + self._noise(half.shape) + masks
            return self._identity.seal("votes", session.transcript + masked.astype("<u4").tobytes())
        body = self._from_aggregator("request", sealed)
        with refusing(self.name, self.name):
            head, data = rounds.unpack(body, 2)
            digest, replies = rounds.read_replies(head)
        with self._lock:
            opened = self._open.pop(digest, None)
        if opened is None:
            raise self._refusal("this round is not open: it was answered, given up, or never joined")
        call, secret = opened
        round_ = self._checked(lambda: Round.gather(call, replies, self.agreement))
        if round_.keys[self.name] != exchange_key(secret):
            raise self._refusal("its own key in the request is not the one it gave")
        questions = self._checked(lambda: rounds.rows_of(data, call, self.agreement))
        masks, n_classes = self._masks(round_, secret), len(self.agreement.classes)
        self._payments.pay(call.n_rows)
        with _ASK_ALONE:
            ballot = vote(questions, n_classes, [self._teacher])[0]
        votes = count_votes(ballot.codes[None], n_classes=n_classes).astype(np.uint32)
        masked = votes + self._noise(votes.shape) + masks
        return self._identity.seal("votes", round_.transcript + masked.astype("<u4").tobytes())

    def _take(self, session: Session) -> None:
        """Count and pay for a secret round, before anything that depends on votes leaves."""
        self._payments.cap(spend=1)
        self._payments.pay(session.call.n_rows, session.transcript)

    def _masks(self, round_: Round | None, secret: bytes) -> np.ndarray:
        """Return this party's masks of a round: the asker's too, unless the holder adds up."""
        if round_ is None:
            raise self._refusal("the round has no participants yet")
        n_classes, aggregator = len(self.agreement.classes), not self.agreement.argmax_only
        return self._checked(
            lambda: rounds.total_mask(secret, self.name, round_, n_classes=n_classes, aggregator=aggregator)
        )

    def _noise(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draw this party's share of the noise, uint32 modulo 2^32: none if the aggregator adds it."""
        if self.agreement.noise == "aggregator":
            return np.zeros(shape, dtype=np.uint32)
        return skellam(self.agreement.share, shape).astype(np.uint32)

    def _sessions(self) -> SecretSessions:
        if self._secret is None:
            raise self._refusal("the agreement has no secret questions")
        return self._secret

    def _from_aggregator(self, purpose: str, sealed: bytes) -> bytes:
        return unsealed(self.name, self.agreement.aggregator, purpose, sealed, self.name)

    def _checked(self, work: Callable[[], Checked]) -> Checked:
        with refusing(self.name, self.name):
            return work()

    def _refusal(self, why: str) -> PartyError:
        return refused(self.name, why, self.name)

    def __repr__(self) -> str:
        return f"Party(name={self.name!r})"


class Payments:
    """Charges of one party under one agreement. Without a ledger there is no budget, only a cap on rounds."""

    def __init__(self, name: str, agreement: Agreement, ledger: Ledger | None) -> None:
        self.ledger = ledger
        self._name, self._agreement = name, agreement
        self._lock = threading.Lock()
        self._left = 0
        if agreement.secret is not None:
            keys = [] if ledger is None else [entry.key or "" for entry in ledger.scan()]
            self._left = agreement.secret.max_rounds - sum(key.startswith(self._key(b"")) for key in keys)

    def afford(self, n_rows: int) -> None:
        """Refuse before the other parties pay, if this party's ledger cannot afford the round."""
        with self._refusing():
            if self.ledger is not None and not self.ledger.affords(self._agreement.mechanism, uses=n_rows):
                raise refused(self._name, _USED_UP, self._name, code="budget_exceeded")

    def pay(self, n_rows: int, transcript: bytes | None = None) -> None:
        """Charge the ledger durably, before any vote leaves; a secret round's transcript is its name.

        The transcript holds a fresh key of this party, so that no other round has the same name.
        """
        key = None if transcript is None else self._key(transcript)
        with self._refusing():
            if self.ledger is not None:
                mechanism = self._agreement.mechanism
                self.ledger.charge(mechanism, uses=n_rows, unit="party", simulation=False, key=key)

    def cap(self, *, spend: int = 0) -> None:
        """Refuse secret rounds beyond the agreed number, those of this agreement in the ledger included."""
        with self._lock:
            if self._left < 1:
                raise refused(self._name, "it has answered as many rounds as were agreed", self._name)
            self._left -= spend

    def _key(self, transcript: bytes) -> str:
        return f"{self._agreement.sha256} {transcript.hex()}"

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn errors of the ledger in this block into refusals that do not show its file."""
        try:
            yield
        except BudgetExceeded:
            raise refused(self._name, _USED_UP, self._name, code="budget_exceeded") from None
        except LedgerError:
            raise refused(self._name, "its ledger is out of order", self._name, code="internal") from None


@dataclass(slots=True, repr=False)
class Session:
    """One round, and the message that it waits for."""

    call: Call
    secret: bytes
    side: OwnerSide
    waits_for: str = "ask"
    round: Round | None = None
    holds: bytes = b""  # the key of the holder's pads, where this party is the holder
    largest: OwnerLargest | None = None
    opening: np.ndarray | None = None  # the asker's half of what is compared

    @property
    def transcript(self) -> bytes:
        """The digest of the round; empty before its participants are known."""
        return b"" if self.round is None else self.round.transcript

    @property
    def last(self) -> str:
        """The message which turns the votes out."""
        return "hold" if self.holds else "vote"


class SecretSessions:
    """The open rounds of one party. Every fault raises ValueError and ends its round."""

    def __init__(self, name: str, agreement: Agreement, model: FixedModel) -> None:
        self._name, self._agreement, self._model = name, agreement, model
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "SecretSessions(private)"

    def join(self, call: Call, secret: bytes) -> bytes:
        """Start a round; return the masked weights."""
        key = rounds.offered_key(call, bytes.fromhex(call.offer), self._agreement)
        pads = rounds.owner_key(secret, key, call, self._name)
        side = OwnerSide(self._model, pads, sizes_of(self._agreement, call.n_rows))
        session = Session(call, secret, side)
        if self._agreement.argmax_only and call.participants[0] == self._name:
            session.holds = rounds.owner_key(secret, key, call, HOLDER)
        self._keep(session)
        return side.weights()

    def ask(self, body: bytes, material: bytes) -> tuple[Session, bytes]:
        """Take masked rows, half of an opening and the dealer's material; return this party's half."""
        request, data, message, signed = rounds.unpack(body, 4)
        digest, replies = rounds.read_replies(request)
        session = self._taken(digest, "ask")
        call, sizes = session.call, sizes_of(self._agreement, session.call.n_rows)
        session.round = Round.gather(call, replies, self._agreement)
        if session.round.keys[self._name] != exchange_key(session.secret):
            raise ValueError("its own key in the request is not the one it gave")
        question = rounds.question_of(data, call, sizes)
        transcript = session.round.transcript
        rounds.read_material(
            signed, self._agreement, transcript=transcript, name=self._name, words=material, sealed=None
        )
        session.side.take(rounds.cipher_key(transcript, self._name), material)
        answer = session.side.first(question, message)
        self._keep(session, "layer" if sizes.hidden else session.last)
        return session, answer

    def layer(self, body: bytes) -> tuple[Session, bytes]:
        """Take the opening of the second layer; return this party's half."""
        session, message = self._next(body, "layer")
        answer = session.side.layer(message)
        self._keep(session, session.last)
        return session, answer

    def turn(self, body: bytes) -> tuple[Session, np.ndarray]:
        """Take the last message, which ends the round; return this party's half of its votes, uint32."""
        session, message = self._next(body, "vote")
        return session, session.side.votes(message)

    def hold(self, body: bytes, words: bytes) -> tuple[Session, np.ndarray]:
        """Take, as the holder, the last message and the others' votes; return the sum of all halves.

        The half is this party's own, still without noise; what the others sent is masked.
        """
        session, message = self._next(body, "hold")
        call, others = session.call, session.call.participants[1:]
        last, opening, signed, *votes = rounds.unpack(message, 3 + len(others))
        transcript = session.transcript
        rounds.read_material(
            signed, self._agreement, transcript=transcript, name=HOLDER, words=words, sealed=None
        )
        sizes = sizes_of(self._agreement, call.n_rows)
        seeded, sent = stream(session.holds), Sent(opening)
        session.opening = two_party.words(sent, sizes.n_rows, sizes.n_classes)
        sent.end()
        pads = argmax_pads(seeded, seeded, sizes.n_rows, sizes.n_classes)
        levels = two_party.levels(words, two_party.comparisons(sizes.n_rows, sizes.n_classes))
        session.largest = OwnerLargest(pads, rounds.cipher_key(transcript, HOLDER), levels)
        total = session.side.votes(last)
        for name, sealed in zip(others, votes, strict=True):
            try:
                total = total + rounds.votes_of(sealed, transcript, name, self._agreement, n_rows=call.n_rows)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return session, total

    def compared(self, session: Session, total: np.ndarray) -> bytes:
        """Open the holder's sum, masked, and compare; the last message of the round is to come."""
        if session.largest is None or session.opening is None:
            raise ValueError("the round has no votes yet")
        answer = session.largest.compared(two_party.scaled(total), session.opening)
        self._keep(session, "argmax")
        return answer

    def argmax(self, body: bytes) -> tuple[Session, np.ndarray]:
        """Take the asker's part of the comparisons, which ends the round; return half of the ones, uint32."""
        session, message = self._next(body, "argmax")
        if session.largest is None:
            raise ValueError("the round has no votes yet")
        return session, session.largest.ones(message)

    def _next(self, body: bytes, stage: str) -> tuple[Session, bytes]:
        digest, transcript, message = rounds.unpack(body, 3)
        session = self._taken(digest.decode(errors="replace"), stage)
        if session.round is None or session.round.transcript != transcript:
            raise ValueError("the message is for another round")
        return session, message

    def _taken(self, digest: str, stage: str) -> Session:
        with self._lock:
            session = self._open.pop(digest, None)
        if session is None or session.waits_for != stage:
            raise ValueError("this round is not open: it was answered, given up, or never joined")
        return session

    def _keep(self, session: Session, stage: str = "ask") -> None:
        session.waits_for = stage
        with self._lock:
            self._open[session.call.digest] = session
            while len(self._open) > _OPEN_SECRET_ROUNDS:
                self._open.popitem(last=False)


def most_ask_bytes(agreement: Agreement) -> int:
    """Return the length of the longest message of a secret round."""
    sizes = sizes_of(agreement, agreement.max_rows)
    numbers = 8 * sizes.n_rows * (sizes.first + 2 * sizes.hidden + sizes.n_classes)
    votes = 16 + KEY_BYTES + SIGNATURE_BYTES + 4 * sizes.n_rows * sizes.n_classes  # of each other party
    others = len(agreement.members) if agreement.argmax_only else 0
    return numbers + words_bytes(sizes) + others * votes + 4096
