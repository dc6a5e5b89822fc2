"""A party: it answers its aggregator once a round, within its budget, and tells nothing else."""

import json
import pickle
import threading
import time
import traceback

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from ostraka import Budget, Ledger
from ostraka.parties import party as _party
from ostraka.parties.parties import PartyEnsemble
from ostraka.parties.party import Party
from ostraka.secure import rounds
from ostraka.secure.agreement import Agreement
from ostraka.secure.keys import Identity, exchange_key, new_secret
from ostraka.secure.rounds import Call, PartyError
from tests.parties.hidden_rounds import fails
from tests.threads import at_once

X, Y = load_iris(return_X_y=True)
SECRET = 123.456


def party_of(estimator, rows, labels, **options) -> Party:
    identity = Identity.fresh()
    return Party(estimator, rows, labels, agreement=agreement_with(identity), identity=identity, **options)


def agreement_with(identity, **options) -> Agreement:
    members = {name: Identity.fresh().public_key for name in ("north", "south")}
    settings = {"classes": [0, 1, 2], "n_features": 4, "sigma": 1.0, **options}
    return Agreement(
        members={**members, "west": identity.public_key}, aggregator=Identity.fresh().public_key, **settings
    )


def test_a_stranger_cannot_ask(ensemble, tap):
    stranger = Identity.fresh()
    parties = ensemble()
    agreement = parties.agreement
    with pytest.raises(ValueError, match="another aggregator"):
        PartyEnsemble(parties.parties, agreement=agreement, identity=stranger)
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    for verb, purpose in (("join", "call"), ("vote", "request")):
        forged = stranger.seal(purpose, wire.log[f"{verb} request"][64:])
        with pytest.raises(PartyError, match="signature") as caught:
            getattr(parties.parties["party-1"], verb)(forged)
        assert caught.value.code == "wrong_identity"


def test_one_answer_a_round_and_no_second_call_for_it(ensemble, tap):
    parties = ensemble()
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    party = parties.parties["party-1"]
    with pytest.raises(PartyError, match="not open"):
        party.vote(wire.log["vote request"])
    with pytest.raises(PartyError, match="knows this round"):
        party.join(wire.log["join request"])


def test_the_same_request_again_gets_the_same_bytes_and_is_paid_once(ensemble, tap):
    parties = ensemble()
    wire, party = tap(parties), parties.parties["party-1"]
    sound, begun, replies = party.vote, threading.Event(), []

    def slow(request):
        begun.set()
        time.sleep(0.1)
        return sound(request)

    party.vote = slow
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)) as ledger:
        party._payments.ledger = ledger
        with at_once(lambda: parties.vote([[0.0, 0.0]])):
            begun.wait()  # now the request comes again, before there is a reply
            replies.append(party.answers["/v1/vote"](wire.log["vote request"]))
        replies.append(party.answers["/v1/vote"](wire.log["vote request"]))
        assert {*replies} == {wire.log["vote answer"]}
        assert len(ledger.entries()) == 1


def test_requests_that_are_refused_put_out_no_reply(ensemble, tap, monkeypatch):
    monkeypatch.setattr(_party, "_OPEN_ROUNDS", 2)
    parties = ensemble()
    wire, answer = tap(parties), parties.parties["party-1"].answers["/v1/vote"]
    parties.vote([[0.0, 0.0]])
    for number in range(3):
        with pytest.raises(PartyError, match="signature"):
            answer(bytes([number] * 99))
    assert answer(wire.log["vote request"]) == wire.log["vote answer"]
    for _ in range(2):
        parties.vote([[0.0, 0.0]])
        assert len(parties.parties["party-1"]._replies) <= 2


def test_the_answer_to_a_round_is_gone_even_if_the_request_was_wrong(ensemble, tap):
    # else an aggregator could try requests until one suits it
    parties = ensemble()
    wire = tap(parties, received={"vote": lambda _: b""})
    with pytest.raises(PartyError):
        parties.vote([[0.0, 0.0]])
    body = wire.log["vote request"][64:]
    request = parties._identity.seal("request", body[:-8] + np.float64(1).tobytes())
    with pytest.raises(PartyError, match="not open"):
        parties.parties["party-1"].vote(request)


def with_replies(change):
    """A request whose replies are changed."""

    def changed(head, rows):
        request = json.loads(head)
        return json.dumps(request | {"replies": change(request["replies"])}).encode(), rows

    return changed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda head, rows: (head, rows[:-8] + np.float64(1).tobytes()),
            "the rows are not those of the call",
        ),
        (lambda head, rows: (head, rows + bytes(8)), r"float64 numbers of shape \(1, 2\)"),
        (with_replies(lambda replies: dict(list(replies.items())[1:])), "one reply from each"),
        (with_replies(lambda replies: {**replies, "party-9": replies["party-1"]}), "one reply from each"),
        (with_replies(lambda replies: {**replies, "party-3": "no base64!"}), "base64"),
        (with_replies(lambda replies: {**replies, "party-3": 7}), "base64"),
    ],
)
def test_a_party_refuses_other_rows_than_those_of_the_call_and_requests_without_a_reply_from_each(
    ensemble, tap, change, why
):
    parties = ensemble()

    def changed(sealed):
        return parties._identity.seal("request", rounds.pack(change(*rounds.unpack(sealed[64:], 2))))

    tap(parties, sent={"vote": changed})
    fails(parties, f"party-1 refuses: .*{why}")


@pytest.mark.parametrize(
    ("changed", "why"),
    [({}, "its own key"), ({"party-2": "0" * 64}, "party-2: the key of the reply must be one of X25519")],
    ids=["another than it gave", "of low order"],
)
def test_a_party_pays_for_no_round_whose_keys_make_no_masks(ensemble, tap, changed, why):
    parties = ensemble()
    party = parties.parties["party-1"]
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    fields = json.loads(wire.log["join request"][64:]) | {"id": "b" * 64}
    call = Call.read(json.dumps(fields).encode(), parties.agreement)
    joined = party.join(parties._identity.seal("call", call.body()))
    keys = {name: exchange_key(new_secret()) for name in parties.agreement.members} | changed
    replies = {
        name: parties.parties[name]._identity.seal("reply", rounds.reply(call, name, key))
        for name, key in keys.items()
    }
    if "party-2" in changed:
        replies["party-1"] = joined
    body = rounds.pack([rounds.write_replies(call.digest, replies), bytes(16)])
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)) as ledger:
        party._payments.ledger = ledger
        with pytest.raises(PartyError, match=why):
            party.vote(parties._identity.seal("request", body))
        assert ledger.entries() == ()


def test_old_open_rounds_give_way_to_new_ones(ensemble, monkeypatch):
    parties = ensemble()
    party = parties.parties["party-1"]
    monkeypatch.setattr(_party, "_OPEN_ROUNDS", 2)
    for _ in range(130):
        call = Call(
            agreement=parties.agreement.sha256,
            id=new_secret().hex(),
            key=exchange_key(new_secret()),
            n_rows=1,
            participants=tuple(parties.agreement.members),
            question="0" * 64,
        )
        party.join(parties._identity.seal("call", call.body()))
    assert len(party._open) == 2
    assert len(party._known) == 128  # remembered longer, but not for ever


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"agreement": "0" * 64}, "another agreement"),
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
        ({"key": "0" * 64}, "key must be one of X25519"),  # of low order
        ({"id": 7}, "id"),
        ({"more": 1}, "JSON object"),
    ],
)
def test_calls_of_another_form_are_refused(ensemble, tap, change, why):
    parties = ensemble()
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    fields = json.loads(wire.log["join request"][64:]) | {"id": "c" * 64} | change
    sealed = parties._identity.seal("call", json.dumps(fields).encode())
    with pytest.raises(PartyError, match=why):
        parties.parties["party-1"].join(sealed)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}\n", b"\xff\xfe", b"[" * 100_000, b"[2, 0]\n{}", b'[23, 0]\n{"call":1,"replies":{}}'],
)
def test_requests_of_another_form_are_refused(ensemble, body):
    parties = ensemble()
    with pytest.raises(PartyError, match="refuses"):
        parties.parties["party-1"].vote(parties._identity.seal("request", body))


def test_a_party_refuses_a_round_that_it_is_no_part_of(ensemble, tap):
    parties = ensemble(4, quorum=3)
    wire = tap(parties)
    parties.vote([[0.0, 0.0]], without=["party-4"])
    with pytest.raises(PartyError, match="party-4 refuses: it is not among the participants"):
        parties.parties["party-4"].join(wire.log["join request"])


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("0", "key of the reply"),
        (None, "key of its own"),
        ("0" * 64, "party-1: the key of the reply"),  # of low order
    ],
)
def test_keys_that_are_none_or_somebody_elses_are_refused(ensemble, tap, key, why):
    parties = ensemble()
    others = tap(parties, "party-2")
    identity = parties.parties["party-1"]._identity

    def changed(sealed):
        call = json.loads(parties._links["party-1"].log["join request"][64:])
        reply = json.loads(sealed[64:]) | {"key": call["key"] if key is None else key}
        return identity.seal("reply", json.dumps(reply).encode())

    tap(parties, received={"join": changed})
    fails(parties, why)
    assert "vote request" not in others.log


def test_a_party_refuses_what_is_not_finite_though_the_aggregator_signed_it(ensemble, tap, monkeypatch):
    parties = ensemble()
    monkeypatch.setattr(np, "isfinite", lambda rows: np.ones(np.shape(rows), dtype=bool))
    wire = tap(parties)
    parties.vote([[np.nan, 0.0]])
    monkeypatch.undo()
    call = Call.read(wire.log["join request"][64:], parties.agreement)
    data = np.array([[np.nan, 0.0]]).tobytes()
    with pytest.raises(ValueError, match="must be finite"):
        rounds.rows_of(data, call, parties.agreement)


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
def test_data_that_do_not_fit_the_agreement_are_refused_without_quoting_them(rows, labels):
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
    with pytest.raises(ValueError, match="none of the agreement's members"):
        Party(GaussianNB(), X, Y, agreement=agreement_with(Identity.fresh()), identity=Identity.fresh())


def test_a_party_pays_before_it_answers_and_stops_at_its_own_budget(ensemble):
    parties = ensemble(sigma=2.0)
    party = parties.parties["party-2"]
    price = 1.001 * (6 * parties.agreement.mechanism.curve()).epsilon(delta=1e-5)
    with Ledger(":memory:", budget=Budget(epsilon=price, delta=1e-5, adaptive=False)) as ledger:
        party._payments.ledger = ledger
        for _ in range(2):
            parties.vote(np.zeros((3, 2)))
        assert [(entry.uses, entry.unit) for entry in ledger.entries()] == [(3, "party")] * 2
        assert fails(parties, "party-2 refuses: what it may answer is used up").code == "budget_exceeded"


def test_a_party_whose_budget_is_used_up_between_call_and_request_sends_nothing(ensemble, tap):
    parties = ensemble(sigma=2.0)
    party = parties.parties["party-2"]
    price = 1.001 * parties.agreement.mechanism.curve().epsilon(delta=1e-5)
    with Ledger(":memory:", budget=Budget(epsilon=price, delta=1e-5, adaptive=False)) as ledger:
        party._payments.ledger = ledger
        tap(parties, "party-2", sent={"vote": lambda s: (spend(ledger, parties), s)[1]})
        fails(parties, "used up")
        assert len(ledger.entries()) == 1
    with pytest.raises(PartyError, match="party-2"):  # closed: out of order, and it says no more
        parties.vote([[0.0, 0.0]])


def spend(ledger, parties):
    ledger.charge(parties.agreement.mechanism, uses=1, unit="party", simulation=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def lasting(ensemble):
    """Parties for many examples."""
    return ensemble()


@given(field=st.sampled_from([*Call.__slots__, "replies", "call"]), value=JSON)
def test_whatever_the_aggregator_signs_is_answered_or_refused(lasting, field, value):
    parties = lasting
    party, seal = parties.parties["party-1"], parties._identity.seal
    call = {
        "agreement": parties.agreement.sha256,
        "id": new_secret().hex(),
        "key": exchange_key(new_secret()),
        "n_rows": 1,
        "participants": list(parties.agreement.members),
        "question": "0" * 64,
    }
    sent = json.dumps(call | {field: value} if field in call else call).encode()
    request = {"call": Call.read(json.dumps(call).encode(), parties.agreement).digest, "replies": {}}
    try:
        party.join(seal("call", sent))
        party.vote(seal("request", rounds.pack([json.dumps(request | {field: value}).encode(), b""])))
    except PartyError as refused:
        assert refused.parties == ("party-1",)  # noqa: PT017  (an answer is as good)
