"""Parties: sums of votes come out exactly, and nothing else does, whoever misbehaves."""

import json
import pickle
import traceback

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from ostraka import Budget, GNMax, Ledger, count_votes, release
from ostraka.voters import _party, _round
from ostraka.voters._keys import agreement_key, mask, new_secret
from ostraka.voters._round import AGGREGATOR, Call, Round
from ostraka.voters.parties import Charter, Identity, Party, PartyEnsemble, PartyError, SkellamMax

FALSE_ALARM = 1e-9  # chance that right masks fail one comparison
X, Y = load_iris(return_X_y=True)
SECRET = 123.456


def ensemble(n_parties: int = 3, *, n_classes: int = 3, votes=None, **options) -> PartyEnsemble:
    """Parties that always vote for their one class: number modulo ``n_classes`` unless told."""
    votes = [number % n_classes for number in range(n_parties)] if votes is None else votes
    data = [([[0.0, 1.0]], [vote]) for vote in votes]
    return PartyEnsemble.in_process(GaussianNB(), data, classes=range(n_classes), **{"sigma": 1.0, **options})


def party_of(estimator, rows, labels, **options) -> Party:
    identity = Identity.fresh()
    return Party(estimator, rows, labels, charter=charter_with(identity), identity=identity, **options)


def charter_with(identity, **options) -> Charter:
    members = {name: Identity.fresh().public_key for name in ("north", "south")}
    settings = {"classes": [0, 1, 2], "n_features": 4, "sigma": 1.0, **options}
    return Charter(
        members={**members, "west": identity.public_key}, aggregator=Identity.fresh().public_key, **settings
    )


class Wire:
    """A party's link that keeps what went over it, and may change it."""

    def __init__(self, link, *, sent=None, received=None):
        self.link, self.log = link, {}
        self.sent, self.received = sent or {}, received or {}

    def __getattr__(self, verb):
        def ask(sealed, most):
            self.log[f"{verb} request"] = sealed = self.sent.get(verb, lambda x: x)(sealed)
            answer = self.received.get(verb, lambda x: x)(getattr(self.link, verb)(sealed, most))
            self.log[f"{verb} answer"] = answer
            return answer

        return ask


def tap(parties: PartyEnsemble, name: str = "party-1", **changes) -> Wire:
    parties._links[name] = Wire(parties._links[name], **changes)
    return parties._links[name]


def masked(parties: PartyEnsemble, rows) -> np.ndarray:
    """What the first party sends in one round: uint32 of shape (n_rows, n_classes)."""
    wire = tap(parties)
    parties.vote(rows)
    parties._links["party-1"] = wire.link
    body = wire.log["vote answer"][64 + 32 :]
    return np.frombuffer(body, dtype="<u4").reshape(len(rows), -1)


def looks_uniform(words: np.ndarray) -> bool:
    """Chi-squared of each of the four bytes, at FALSE_ALARM together."""
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4)
    seen = np.stack([np.bincount(octets[:, place], minlength=256) for place in range(4)])
    expected = len(octets) / 256
    return bool((((seen - expected) ** 2).sum(axis=1) / expected < chi2.isf(FALSE_ALARM / 4, 255)).all())


# sums


@given(
    votes=st.lists(st.integers(0, 3), min_size=3, max_size=7),
    n_rows=st.integers(1, 5),
    max_rows=st.integers(1, 6),
)
def test_sums_are_plain_counts_for_any_shape(votes, n_rows, max_rows):
    parties = ensemble(n_classes=4, votes=votes, max_rows=max_rows)
    counts = parties.vote(np.zeros((n_rows, 2))).open()
    expected = count_votes([[vote] * n_rows for vote in votes], n_classes=4)
    np.testing.assert_array_equal(counts, expected)


def test_sums_are_those_of_the_models_trained_by_hand():
    shards = [(X[k::5], Y[k::5]) for k in range(5)]
    parties = PartyEnsemble.in_process(KNeighborsClassifier(1), shards, classes=[0, 1, 2], sigma=1.0)
    predictions = [KNeighborsClassifier(1).fit(*shard).predict(X[:40]) for shard in shards]
    np.testing.assert_array_equal(parties.vote(X[:40]).open(), count_votes(predictions, n_classes=3))


def test_many_rows_take_several_rounds_and_are_told():
    identities = [Identity.fresh() for _ in range(4)]
    charter = Charter(
        members={f"p{k}": one.public_key for k, one in enumerate(identities[:3])},
        aggregator=identities[3].public_key,
        classes=["no", "yes"],
        n_features=1,
        sigma=1.0,
        max_rows=4,
    )
    members = {
        f"p{k}": Party(GaussianNB(), [[0.0], [1.0]], ["no", "yes"], charter=charter, identity=one)
        for k, one in enumerate(identities[:3])
    }
    told = []
    parties = PartyEnsemble(
        members, charter=charter, identity=identities[3], progress=lambda *step: told.append(step)
    )
    rows = np.arange(10.0)[:, None]
    expected = GaussianNB().fit([[0.0], [1.0]], [0, 1]).predict(rows)
    np.testing.assert_array_equal(parties.vote(rows).open(), 3 * np.eye(2, dtype=int)[expected])
    assert told == [("votes", 4, 10), ("votes", 8, 10), ("votes", 10, 10)]
    assert list(parties.classes_) == ["no", "yes"]


def test_votes_can_be_released_like_those_of_teachers_but_protect_a_party():
    parties = ensemble(9, votes=[1] * 9, sigma=1.0)
    votes = parties.vote([[0.0, 0.0]])
    with Ledger(":memory:", budget=Budget(epsilon=100.0, delta=1e-5)) as ledger:
        assert release(parties.charter.mechanism, votes, ledger=ledger) == [1]
        assert ledger.protects == "party"
    assert votes.adjacency.unit == "party"
    assert parties.charter.mechanism == GNMax(sigma=1.0)


# what messages show


def test_masks_of_all_participants_cancel_exactly():
    secrets = {name: new_secret() for name in ("a", "b", "c", "d")}
    round_, aggregator = some_round(secrets)
    total = sum(_round.total_mask(secret, name, round_, n_classes=3) for name, secret in secrets.items())
    for name in secrets:
        total = total - known_to_aggregator(aggregator, name, round_)
    assert not total.any()


def some_round(secrets, *, n_rows=2, charter="0" * 64):
    aggregator = new_secret()
    call = Call(
        charter=charter,
        id=new_secret().hex(),
        key=agreement_key(aggregator),
        n_rows=n_rows,
        participants=tuple(secrets),
        question="0" * 64,
    )
    return Round(call, {name: agreement_key(secret) for name, secret in secrets.items()}), aggregator


def known_to_aggregator(aggregator, name, round_):
    stream = mask(
        aggregator,
        round_.keys[name],
        transcript=round_.transcript,
        pair=(AGGREGATOR, name),
        size=3 * round_.call.n_rows,
    )
    return stream.reshape(-1, 3)


@pytest.mark.statistical
def test_a_masked_message_alone_is_uniform_and_so_is_the_difference_of_two():
    parties, rows = ensemble(n_classes=2), np.zeros((1000, 2))
    one, two = (np.concatenate([masked(parties, rows) for _ in range(20)]) for _ in range(2))
    assert looks_uniform(one)
    assert looks_uniform(one - two)  # a mask used twice would leave the votes' difference: zero
    for wrong in (one - one, one >> 1, one & 0xFFFFFFFE, np.where(one % 64 == 0, one + 1, one)):
        assert not looks_uniform(wrong.astype(np.uint32))


@pytest.mark.statistical
def test_all_but_two_parties_with_the_aggregator_see_only_the_sum_of_the_two():
    secrets = {name: new_secret() for name in ("a", "b", "c", "d")}
    round_, aggregator = some_round(secrets, n_rows=20_000)
    left = {}
    for name in ("a", "b"):
        left[name] = _round.total_mask(secrets[name], name, round_, n_classes=3)
        left[name] = left[name] - known_to_aggregator(aggregator, name, round_)
        for other in ("c", "d"):  # colluding: each tells the stream shared with this party
            known = mask(
                secrets[other],
                round_.keys[name],
                transcript=round_.transcript,
                pair=(name, other),
                size=60_000,
            ).reshape(-1, 3)
            left[name] = left[name] - known
    assert looks_uniform(left["a"])
    assert looks_uniform(left["b"])
    assert not (left["a"] + left["b"]).any()


@pytest.mark.parametrize("field", ["id", "question", "charter", "n_rows", "participants", "keys"])
def test_masks_are_new_ones_whenever_anything_of_a_round_changes(field):
    secrets = {name: new_secret() for name in ("a", "b", "c")}
    round_, _ = some_round(secrets)
    call, keys = round_.call, dict(round_.keys)
    values = {name: getattr(call, name) for name in call.__slots__}
    if field == "keys":
        keys["c"] = agreement_key(new_secret())
    else:
        values[field] = {"n_rows": 3, "participants": ("a", "b")}.get(field, "f" * 64)
    other = Round(Call(**values), keys)
    assert other.transcript != round_.transcript
    streams = [
        mask(secrets["a"], keys["b"], transcript=one.transcript, pair=("a", "b"), size=64)
        for one in (round_, other)
    ]
    assert (streams[0] != streams[1]).mean() > 0.9


def test_an_aggregator_that_tells_parties_different_things_gets_nothing():
    parties = ensemble()
    victim = parties.parties["party-1"]

    def another_call(sealed):  # signed by the aggregator itself
        call = json.loads(sealed[64:])
        return parties._identity.seal("call", json.dumps({**call, "id": "a" * 64}).encode())

    tap(parties, sent={"join": another_call})
    with pytest.raises(PartyError, match="party-1: the reply is to another call") as caught:
        parties.vote([[0.0, 0.0]])
    assert caught.value.parties == (victim.name,)


# who misbehaves


@pytest.mark.parametrize("direction", ["sent", "received"])
@pytest.mark.parametrize("verb", ["join", "vote"])
@pytest.mark.parametrize("place", [0, 63, 64, 100, -1])
def test_a_changed_message_fails_the_round_and_names_the_party(direction, verb, place):
    def flipped(sealed):
        changed = bytearray(sealed)
        changed[place] ^= 1
        return bytes(changed)

    parties = ensemble()
    tap(parties, **{direction: {verb: flipped}})
    with pytest.raises(PartyError, match="party-1") as caught:
        parties.vote([[0.0, 0.0]])
    assert caught.value.parties == ("party-1",)
    assert caught.value.code == "wrong_identity"


@pytest.mark.parametrize("length", [0, 10, 64, 90])
def test_a_message_cut_short_fails_the_round(length):
    for direction in ("sent", "received"):
        parties = ensemble()
        tap(parties, **{direction: {"vote": lambda sealed: sealed[:length]}})
        with pytest.raises(PartyError, match="party-1"):
            parties.vote([[0.0, 0.0]])


def test_a_party_that_signs_with_another_key_is_named():
    parties = ensemble()
    tap(parties, received={"join": lambda sealed: Identity.fresh().seal("reply", sealed[64:])})
    with pytest.raises(PartyError, match="party-1: the signature of the reply") as caught:
        parties.vote([[0.0, 0.0]])
    assert caught.value.code == "wrong_identity"


def test_a_party_cannot_answer_for_another_nor_reuse_the_answer_of_another_round():
    parties = ensemble()
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    for verb, old in (("join", wire.log["join answer"]), ("vote", wire.log["vote answer"])):
        wire.received = {verb: lambda _, old=old: old}
        with pytest.raises(PartyError, match=r"another (call|round)"):
            parties.vote([[0.0, 0.0]])


def test_a_stranger_cannot_ask():
    stranger = Identity.fresh()
    parties = ensemble()
    charter = parties.charter
    with pytest.raises(ValueError, match="another aggregator"):
        PartyEnsemble(parties.parties, charter=charter, identity=stranger)
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    for verb, purpose in (("join", "call"), ("vote", "request")):
        forged = stranger.seal(purpose, wire.log[f"{verb} request"][64:])
        with pytest.raises(PartyError, match="signature") as caught:
            getattr(parties.parties["party-1"], verb)(forged)
        assert caught.value.code == "wrong_identity"


def test_one_answer_a_round_and_no_second_call_for_it():
    parties = ensemble()
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    party = parties.parties["party-1"]
    with pytest.raises(PartyError, match="not open"):
        party.vote(wire.log["vote request"])
    with pytest.raises(PartyError, match="knows this round"):
        party.join(wire.log["join request"])


def test_the_answer_to_a_round_is_gone_even_if_the_request_was_wrong():
    # else an aggregator could try requests until one suits it
    parties = ensemble()
    wire = tap(parties, received={"vote": lambda _: b""})
    with pytest.raises(PartyError):
        parties.vote([[0.0, 0.0]])
    body = wire.log["vote request"][64:]
    other = parties._identity.seal("request", body[:-8] + np.float64(1).tobytes())
    with pytest.raises(PartyError, match="not open"):
        parties.parties["party-1"].vote(other)


def test_a_party_refuses_rows_that_are_not_those_of_the_call():
    parties = ensemble()
    tap(
        parties,
        sent={"vote": lambda s: parties._identity.seal("request", s[64:-8] + np.float64(1).tobytes())},
    )
    with pytest.raises(PartyError, match="party-1 refuses: the rows are not those of the call"):
        parties.vote([[0.0, 0.0]])


def test_a_party_refuses_a_key_of_its_own_that_it_did_not_give():
    parties = ensemble()
    party = parties.parties["party-1"]
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    fields = json.loads(wire.log["join request"][64:]) | {"id": "b" * 64}
    call = Call.read(json.dumps(fields).encode(), parties.charter)
    party.join(parties._identity.seal("call", call.body()))
    replies = {
        name: parties.parties[name]._identity.seal(
            "reply", _round.reply(call, name, agreement_key(new_secret()))
        )
        for name in parties.charter.members
    }
    request = parties._identity.seal("request", _round.pack(call, replies, np.zeros((1, 2))))
    with pytest.raises(PartyError, match="its own key"):
        party.vote(request)


def test_old_open_rounds_give_way_to_new_ones():
    parties = ensemble()
    party = parties.parties["party-1"]
    for _ in range(2 * _party._OPEN_ROUNDS):
        call = Call(
            charter=parties.charter.sha256,
            id=new_secret().hex(),
            key=agreement_key(new_secret()),
            n_rows=1,
            participants=tuple(parties.charter.members),
            question="0" * 64,
        )
        party.join(parties._identity.seal("call", call.body()))
    assert len(party._open) == _party._OPEN_ROUNDS


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"charter": "0" * 64}, "another charter"),
        ({"n_rows": 0}, "n_rows"),
        ({"n_rows": 10**9}, "n_rows"),
        ({"n_rows": True}, "n_rows"),
        ({"n_rows": 1.5}, "n_rows"),
        ({"participants": ["party-1"]}, "needs 3 participants"),
        ({"participants": ["party-1", "party-2", "stranger"]}, "members"),
        ({"participants": ["party-1", "party-1", "party-2"]}, "members"),
        ({"participants": "party-1"}, "list of names"),
        ({"participants": [1, 2, 3]}, "list of names"),
        ({"key": "x" * 64}, "key"),
        ({"id": 7}, "id"),
        ({"more": 1}, "JSON object"),
    ],
)
def test_calls_of_another_form_are_refused(change, why):
    parties = ensemble()
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    fields = json.loads(wire.log["join request"][64:]) | {"id": "c" * 64} | change
    sealed = parties._identity.seal("call", json.dumps(fields).encode())
    with pytest.raises(PartyError, match=why):
        parties.parties["party-1"].join(sealed)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}\n", b"\xff\xfe", b"[" * 100_000, b'{"call":1,"replies":{}}\n']
)
def test_requests_of_another_form_are_refused(body):
    parties = ensemble()
    with pytest.raises(PartyError, match="refuses"):
        parties.parties["party-1"].vote(parties._identity.seal("request", body))


def test_a_key_of_low_order_is_refused():
    parties = ensemble()

    def low(sealed):
        reply = json.loads(sealed[64:]) | {"key": "0" * 64}
        return parties.parties["party-1"]._identity.seal("reply", json.dumps(reply).encode())

    tap(parties, received={"join": low})
    with pytest.raises(PartyError, match=r"party-[123] refuses"):
        parties.vote([[0.0, 0.0]])


def test_masks_that_do_not_cancel_are_noticed():
    parties = ensemble()
    identity = parties.parties["party-1"]._identity

    def other_votes(sealed):
        return identity.seal("votes", sealed[64:-4] + bytes(4))

    tap(parties, received={"vote": other_votes})
    with pytest.raises(PartyError, match="do not cancel") as caught:
        parties.vote([[0.0, 0.0]])
    assert caught.value.code == "disagreement"
    assert caught.value.parties == ()


# dropping out


def test_a_missing_party_fails_the_round_and_can_be_left_out_if_the_charter_says_so():
    parties = ensemble(5, n_classes=5, quorum=4)

    def gone(_):
        raise PartyError("party-2 does not answer", code="unreachable", parties=("party-2",))

    for verb in ("join", "vote"):
        parties._links["party-2"] = Wire(parties._links["party-2"], sent={verb: gone})
        with pytest.raises(PartyError, match="party-2 does not answer") as caught:
            parties.vote([[0.0, 0.0]])
        assert caught.value.parties == ("party-2",)
    rest = parties.vote([[0.0, 0.0]], without=caught.value.parties)
    assert rest.open().tolist() == [[1, 0, 1, 1, 1]]
    with pytest.raises(ValueError, match="quorum"):
        parties.vote([[0.0, 0.0]], without=["party-1", "party-2"])
    with pytest.raises(ValueError, match="stranger"):
        parties.vote([[0.0, 0.0]], without="stranger")


def test_without_a_quorum_all_parties_are_needed():
    with pytest.raises(ValueError, match="needs 4 parties"):
        ensemble(4).vote([[0.0, 0.0]], without=["party-1"])


# questions and data


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([[np.nan, 0.0]], "finite"),
        ([[np.inf, 0.0]], "finite"),
        ([[0.0]], "shape"),
        ([0.0, 1.0], "shape"),
        (np.zeros((0, 2)), "shape"),
    ],
)
def test_questions_of_another_form_are_not_asked(rows, why):
    with pytest.raises(ValueError, match=why):
        ensemble().vote(rows)


def test_a_party_refuses_what_is_not_finite_though_the_aggregator_signed_it(monkeypatch):
    parties = ensemble()
    monkeypatch.setattr(np, "isfinite", lambda rows: np.ones(np.shape(rows), dtype=bool))
    wire = tap(parties)
    parties.vote([[np.nan, 0.0]])
    monkeypatch.undo()
    call = Call.read(wire.log["join request"][64:], parties.charter)
    data = np.array([[np.nan, 0.0]]).tobytes()
    with pytest.raises(ValueError, match="must be finite"):
        _round.rows_of(data, call, parties.charter)


class Fails(ClassifierMixin, BaseEstimator):
    """Quotes its private rows when it fails, in training or in voting."""

    def __init__(self, when="fit"):
        self.when = when

    def fit(self, rows, labels):
        self.classes_ = np.unique(labels)
        if self.when == "fit":
            raise RuntimeError(f"cannot learn from {rows.max()}")
        return self

    def predict(self, rows):
        raise RuntimeError(f"cannot answer with {SECRET}")


@pytest.mark.filterwarnings("ignore:The model of")
@pytest.mark.parametrize("when", ["fit", "predict"])
def test_a_model_that_fails_votes_all_the_same(when):
    data = [([[0.0, SECRET], [1.0, 1.0]], [0, 1])] * 4
    parties = PartyEnsemble.in_process(Fails(when), data, classes=[0, 1], sigma=1.0)
    assert parties.vote([[0.0, 0.0]]).open().tolist() == [[2, 2]]  # fixed by place


def test_the_owner_is_warned_of_a_model_that_cannot_be_trained():
    with pytest.warns(UserWarning, match="west could not be trained") as caught:
        party_of(Fails(), X, Y)
    assert str(X.max()) not in str(caught[0].message)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (X[:, :3], Y),
        (X, Y[:-1]),
        (X, np.where(np.arange(len(Y)) == 7, 77, Y)),
        (np.where(X.max() == X, np.nan, X), Y),
    ],
)
def test_data_that_do_not_fit_the_charter_are_refused_without_quoting_them(rows, labels):
    with pytest.raises(ValueError, match=r"must|declared") as caught:
        party_of(GaussianNB(), rows, labels)
    text = "".join(traceback.format_exception_only(caught.value))
    assert "77" not in text
    assert str(X.max()) not in text


def test_a_party_shows_and_sends_nothing_of_itself():
    party = party_of(GaussianNB(), X + SECRET, Y)
    assert repr(party) == "Party(name='west')"
    with pytest.raises(TypeError, match="does not travel"):
        pickle.dumps(party)


def test_a_party_must_be_a_member():
    with pytest.raises(ValueError, match="none of the charter's members"):
        Party(GaussianNB(), X, Y, charter=charter_with(Identity.fresh()), identity=Identity.fresh())


def test_parties_must_be_those_of_the_charter():
    parties = ensemble()
    with pytest.raises(ValueError, match="those of the charter"):
        PartyEnsemble({"party-1": "http://127.0.0.1:1"}, charter=parties.charter, identity=parties._identity)


def test_errors_travel_between_processes():
    error = PartyError("west refuses", code="refused", parties=("west",))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.parties) == ("west refuses", "refused", ("west",))


# what a party pays


def test_a_party_pays_before_it_answers_and_stops_at_its_own_budget():
    parties = ensemble(sigma=2.0)
    party = parties.parties["party-2"]
    price = 1.001 * (6 * parties.charter.mechanism.curve()).epsilon(delta=1e-5)
    with Ledger(":memory:", budget=Budget(epsilon=price, delta=1e-5)) as ledger:
        party._ledger = ledger
        for _ in range(2):
            parties.vote(np.zeros((3, 2)))
        assert [(one.uses, one.protects) for one in ledger.entries()] == [(3, "party")] * 2
        with pytest.raises(PartyError, match="party-2 refuses: what it may answer is used up") as caught:
            parties.vote([[0.0, 0.0]])
        assert caught.value.code == "budget_exceeded"


def test_a_party_whose_budget_is_used_up_between_call_and_request_sends_nothing():
    parties = ensemble(sigma=2.0)
    party = parties.parties["party-2"]
    price = 1.001 * parties.charter.mechanism.curve().epsilon(delta=1e-5)
    with Ledger(":memory:", budget=Budget(epsilon=price, delta=1e-5)) as ledger:
        party._ledger = ledger
        tap(parties, "party-2", sent={"vote": lambda s: (spend(ledger, parties), s)[1]})
        with pytest.raises(PartyError, match="used up"):
            parties.vote([[0.0, 0.0]])
        assert len(ledger.entries()) == 1
    with pytest.raises(PartyError, match="party-2"):  # closed: out of order, and it says no more
        parties.vote([[0.0, 0.0]])


def spend(ledger, parties):
    ledger.charge(parties.charter.mechanism, uses=1, protects="party", simulation=False)


# noise of the parties


def test_noisy_votes_are_taken_by_their_own_mechanism_only():
    parties = ensemble(4, noise="parties", sigma=2.0)
    votes = parties.vote(np.zeros((5, 2)))
    exact = ensemble(4, sigma=2.0).vote(np.zeros((5, 2)))
    assert parties.charter.mechanism == SkellamMax(sigma=2.0)
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)) as ledger:
        for mechanism, private in (
            (GNMax(sigma=2.0), votes),
            (SkellamMax(sigma=3.0), votes),
            (SkellamMax(sigma=2.0), exact),
        ):
            with pytest.raises(ValueError, match="hides"):
                release(mechanism, private, ledger=ledger)
        assert ledger.entries() == ()
        assert release(parties.charter.mechanism, votes, ledger=ledger).shape == (5,)
        assert ledger.protects == "party"


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("colluding", "left_out", "variance"), [(0, 0, 6 * 9 / 5), (2, 0, 6 * 9 / 3), (0, 1, 9.0)]
)
def test_the_parties_noise_has_the_agreed_variance_whoever_is_missing(colluding, left_out, variance):
    parties = ensemble(
        6, votes=[0] * 6, n_classes=2, noise="parties", sigma=3.0, colluding=colluding, quorum=5
    )
    without = [f"party-{k + 1}" for k in range(left_out)]
    noisy = parties.vote(np.zeros((20_000, 2)), without=without).open() - [6 - left_out, 0]
    # Skellam: the fourth moment about the mean is 3 v^2 + v
    error = 6.2 * np.sqrt((2 * variance**2 + variance) / noisy.size)  # 6.2 sd of a normal: below FALSE_ALARM
    assert abs(noisy.mean()) < 6.2 * np.sqrt(variance / noisy.size)
    assert abs(noisy.var() - variance) < error < 0.1 * variance
