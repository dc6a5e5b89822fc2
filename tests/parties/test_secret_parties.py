"""Rounds with secret questions: right sums, or an error that names who failed; nothing is used twice."""

import contextlib
import json

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from ostraka import Budget, Ledger, release
from ostraka.mechanisms import SkellamMax
from ostraka.parties.parties import PartyEnsemble
from ostraka.parties.party import Party
from ostraka.secure import rounds, wire
from ostraka.secure.agreement import Agreement, SecretQuestions, canonical
from ostraka.secure.dealer import Dealer
from ostraka.secure.keys import Identity, exchange_key, new_secret
from ostraka.secure.rounds import DEALER, HOLDER, PartyError
from ostraka.serve.answering import require_servable
from ostraka.voters import SavedTeachers
from tests.parties.hidden_rounds import MODELS, bad_material, data_of, fails, flipped, secret_parties, tapped

ROWS = np.random.default_rng(1).uniform(0, 1, (7, 2))
VERBS = {0: ["join", "ask", "vote"], 4: ["join", "ask", "layer", "vote"]}
EVERY = [(units, verb) for units, verbs in VERBS.items() for verb in verbs]
EVERY_ROUND = [({"hidden_units": units}, verb) for units, verb in EVERY]
ARGMAX = {"reveals": "argmax"}
HELD = [(ARGMAX, verb) for verb in ("hold", "argmax")]


@pytest.mark.parametrize("units", [0, 4])
def test_sums_are_those_of_clear_rounds(monkeypatch, units):
    monkeypatch.setattr("ostraka.parties.party.skellam", lambda _, shape: np.zeros(shape, dtype=np.int64))
    parties = secret_parties(4, hidden_units=units, max_rows=3)
    clear = PartyEnsemble.in_process(MODELS[units], data_of(4), classes=range(3), sigma=1.0, random_state=0)
    rows = np.random.default_rng(0).uniform(0, 1, (10, 2))
    np.testing.assert_array_equal(parties.vote(rows).open(), clear.vote(rows).open())


def test_noisy_votes_are_released_and_priced_like_those_of_clear_rounds():
    parties = secret_parties(sigma=2.0)
    votes = parties.vote(ROWS)
    assert parties.agreement.mechanism == SkellamMax(sigma=2.0)
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5, adaptive=False)) as ledger:
        assert release(parties.agreement.mechanism, votes, ledger=ledger).shape == (7,)
        assert ledger.unit == "party"


def test_an_asker_who_may_cheat_costs_the_square_root_of_half_the_classes_more_in_l2():
    honest, cheated = SkellamMax(sigma=40.0), SkellamMax(sigma=40.0, changed=10)
    np.testing.assert_allclose(np.array(cheated.curve().rdp[:50]) / honest.curve().rdp[:50], 10 / 2)
    secret = SecretQuestions(
        dealer=Identity.fresh().public_key, input_range=(0, 1), asker="cheating", max_rounds=5
    )
    agreement = agreed(secret, classes=range(10))
    assert agreement.mechanism == SkellamMax(sigma=9.0, changed=10)
    assert Agreement.from_json(agreement.to_json()) == agreement


@pytest.mark.parametrize("options", [None, {}, {"hidden_units": 4}, ARGMAX], ids=str)
def test_a_reply_that_is_lost_on_the_way_is_fetched_again_and_paid_once(monkeypatch, ensemble, options):
    """The votes and what follows them: a round that is paid for must not be lost with a connection."""
    parties = ensemble() if options is None else secret_parties(**options)
    sound, lost = wire.Line._ask, []

    def losing(line, method, path, *rest, **how):
        answer = sound(line, method, path, *rest, **how)
        if path not in {"/v1/join", "/v1/ask", "/v1/layer"} and (line, path) not in lost:
            lost.append((line, path))
            raise wire.Late("ConnectionResetError", sent=True)
        return answer

    monkeypatch.setattr(wire.Line, "_ask", losing)
    with contextlib.ExitStack() as stack:
        urls = {
            name: stack.enter_context(wire.PartyServer(party)).url for name, party in parties.parties.items()
        }
        ledgers = {
            name: stack.enter_context(Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)))
            for name in urls
        }
        for name, ledger in ledgers.items():
            parties.parties[name]._payments.ledger = ledger
            parties._links[name] = wire.link(name, urls[name], timeout=60)
        assert parties.vote(ROWS).shape == (7, 3)
        assert [len(ledger.entries()) for ledger in ledgers.values()] == [1, 1, 1]
    paths = {None: [], "argmax": ["/v1/argmax", "/v1/hold"]}[(options or {}).get("reveals")]
    assert sorted(path for _, path in lost) == [*paths, *["/v1/vote"] * (3 - len(paths) // 2)]


# a message that is changed, a process that dies


@pytest.mark.parametrize("direction", ["sent", "received"])
@pytest.mark.parametrize(
    ("options", "verb", "name"),
    [
        *((*exchange, "party-1") for exchange in (*EVERY_ROUND, *HELD)),
        (ARGMAX, "vote", "party-2"),
        *(({}, verb, DEALER) for verb in ("open", "deal", "material")),
    ],
)
@pytest.mark.parametrize("place", [5, -1])
def test_a_changed_message_fails_the_round_and_names_the_party(options, verb, name, direction, place):
    parties = secret_parties(**options)
    tapped(
        parties,
        name,
        lambda exchange, heading, data: (
            flipped(data, place) if (exchange, heading) == (verb, direction) else data
        ),
    )
    fails(parties, "the dealer" if name == DEALER else name, name)


def test_an_asker_that_changes_the_material_is_found_out_by_the_party():
    parties = secret_parties()
    tapped(parties, change=bad_material("ask"))
    fails(parties, "party-1 refuses: the material is not what the dealer signed")


@pytest.mark.parametrize("larger", [False, True])
def test_a_party_refuses_a_request_with_another_key_than_it_gave(larger):
    parties = secret_parties()
    party = parties.parties["party-1"]

    def change(verb, direction, data):
        if (verb, direction) != ("ask", "sent"):
            return data
        sealed, material = rounds.unpack(data, 2)
        request, *others = rounds.unpack(sealed[64:], 4)
        digest, replies = rounds.read_replies(request)
        own = json.loads(replies["party-1"][64:])
        keys = (exchange_key(new_secret()) for _ in range(100))
        own["key"] = next(key for key in keys if (key > own["key"]) is larger)
        replies["party-1"] = party._identity.seal("reply", canonical(own).encode())
        body = rounds.pack([rounds.write_replies(digest, replies), *others])
        return rounds.pack([parties._identity.seal("ask", body), material])

    tapped(parties, change=change)
    fails(parties, "its own key in the request is not the one it gave")


def test_wide_models_fit_into_the_reply_that_an_asker_takes():
    parties = secret_parties(n_features=200, n_classes=10)
    tapped(parties)
    assert parties.vote(np.full((1, 200), 0.5)).shape == (1, 10)


def test_material_that_another_key_signed_is_refused_by_both():
    parties = secret_parties()
    parties._dealer._party._identity = Identity.fresh()
    fails(parties, "the dealer: the signature of the offer", DEALER)


@pytest.mark.parametrize(
    "key", [7, "ab" * 31, "AB" * 32, "00" * 32], ids=["number", "short", "capitals", "order"]
)
def test_a_key_that_is_none_is_not_taken_from_the_dealer(key, monkeypatch):
    parties = secret_parties()
    monkeypatch.setattr("ostraka.secure.dealer.exchange_key", lambda _: key)
    fails(parties, "one of X25519 in its one spelling", DEALER)


@pytest.mark.parametrize("direction", ["sent", "received"])
@pytest.mark.parametrize(
    ("options", "name", "verb"),
    [
        *((options, "party-2", verb) for options, verb in EVERY_ROUND),
        *(({}, DEALER, verb) for verb in ("open", "deal", "material")),
        *((ARGMAX, "party-1", verb) for verb in ("ask", "hold", "argmax")),  # the holder
        (ARGMAX, "party-2", "vote"),
        (ARGMAX, DEALER, "material"),
    ],
)
def test_a_death_at_any_exchange_fails_the_round_and_names_who_died(options, name, verb, direction):
    parties = secret_parties(4, quorum=3, sigma=9.0, **options)
    budget = Budget(epsilon=99.0, delta=1e-5, adaptive=False)
    ledgers = {one: Ledger(":memory:", budget=budget) for one in parties.parties}
    for one, ledger in ledgers.items():
        parties.parties[one]._payments.ledger = ledger
    dead, questions, has_holders = [], [], options is ARGMAX

    def dies(exchange, heading, data):
        if (exchange, heading) == ("material", "sent"):
            questions.append(rounds.unpack(data[64:], 2)[1].decode())
        last = not has_holders or name != DEALER or questions[-1:] == [HOLDER]  # its last deal, to the holder
        if (exchange, heading) == (verb, direction) and not dead and last:
            dead.append(name)
            raise PartyError(f"{name} does not answer", code="unreachable", parties=(name,))
        return data

    tapped(parties, name, dies)
    fails(parties, f"{name} does not answer", name)
    paid = {one: len(ledger.entries()) for one, ledger in ledgers.items()}
    assert paid["party-3" if has_holders else "party-1"] == (
        verb in {"vote", "hold", "argmax"}
    )  # it stays charged
    if has_holders:
        assert paid["party-1"] == ((verb, direction) == ("hold", "received") or verb == "argmax")
    without = () if name == DEALER else (name,)
    assert parties.vote(ROWS, without=without).shape == (7, 3)
    for ledger in ledgers.values():
        ledger.close()


# nothing is used twice


@pytest.mark.parametrize(("options", "verb"), [*EVERY_ROUND, *HELD])
def test_a_message_sent_again_is_refused_or_gets_the_same_reply(options, verb):
    parties = secret_parties(**options)
    wire = tapped(parties)
    parties.vote(ROWS)
    if verb in {"vote", "hold", "argmax"}:  # as the round is paid for
        assert wire.link.ask(verb, wire.last(verb, "sent"), 10**6) == wire.last(verb, "received")
        return
    with pytest.raises(PartyError, match=r"not open|knows this round") as caught:
        wire.link.ask(verb, wire.last(verb, "sent"), 10**6)
    assert caught.value.parties == ("party-1",)


@pytest.mark.parametrize("verb", ["deal", "material"])
def test_the_dealer_deals_once(verb):
    parties = secret_parties()
    wire = tapped(parties, DEALER)
    parties.vote(ROWS)
    with pytest.raises(PartyError, match=r"dealt, given up"):
        wire.link.ask(verb, wire.last(verb, "sent"), 10**6)


def test_copies_of_openings_change_no_round_that_is_open():
    parties = secret_parties()
    wire, copies = tapped(parties, DEALER), []

    def replayed(verb, direction, data):
        if (verb, direction) == ("open", "received"):
            copies.append(wire.log[-1][2])
            assert wire.link.ask("open", copies[-1], 10**6) == data, "the same opening has one key"
        if (verb, direction) == ("deal", "sent"):
            for copy in copies[:-1]:
                with pytest.raises(PartyError, match="opened before") as caught:
                    wire.link.ask("open", copy, 10**6)
                assert caught.value.parties != (DEALER,)
        return data

    wire.change = replayed
    for _ in range(3):
        assert parties.vote(ROWS[:2]).shape == (2, 3)
    assert len(copies) == 3


def test_after_a_restart_neither_dealer_nor_party_knows_a_round():
    parties = secret_parties()
    links = [tapped(parties), tapped(parties, DEALER)]
    parties.vote(ROWS)
    old = parties.parties["party-1"]
    again = Party(MODELS[0], *data_of(3)[0], agreement=parties.agreement, identity=old._identity)
    fresh = Dealer(parties.agreement, parties._dealer.link._party._identity)
    for verb, method in (("ask", again.ask), ("vote", again.vote)):
        with pytest.raises(PartyError, match="not open"):
            method(links[0].last(verb, "sent"))
    for verb, method in (("deal", fresh.deal), ("material", fresh.material)):
        with pytest.raises(PartyError, match="given up"):
            method(links[1].last(verb, "sent"))


def test_steps_out_of_order_end_the_round():
    parties = secret_parties(hidden_units=4)

    wire = tapped(parties)

    def early(verb, direction, data):
        if (verb, direction) == ("layer", "sent"):
            parts = rounds.unpack(data[64:], 3)
            turn = parties._identity.seal("turn", rounds.pack([*parts[:2], bytes(21)]))
            with pytest.raises(PartyError, match="not open"):
                wire.link.ask("vote", turn, 10**6)
        return data

    wire.change = early
    fails(parties, "party-1 refuses: this round is not open")


def test_rounds_are_capped_those_before_a_restart_included_and_those_of_another_agreement_not():
    (agreement, keys), (another, others) = agreed_keys(max_rounds=2), agreed_keys(max_rounds=2)
    with Ledger(":memory:", budget=Budget(epsilon=9999.0, delta=1e-5, adaptive=False)) as ledger:
        for _ in range(5):  # which are no rounds
            ledger.charge(agreement.mechanism, uses=1, unit="party", simulation=False)
        for agreed_on, who, n_rounds in ((another, others, 2), (agreement, keys, 2), (agreement, keys, 0)):
            members = {
                name: Party(MODELS[0], *data_of(3)[0], agreement=agreed_on, identity=who[name], ledger=paid)
                for name, paid in zip("abc", (ledger, None, None), strict=True)
            }
            roles = {"identity": who["asker"], "dealer": Dealer(agreed_on, who["dealer"])}
            parties = PartyEnsemble(members, agreement=agreed_on, questions="secret", **roles)
            for _ in range(n_rounds):
                parties.vote(ROWS)
            fails(parties, "as many rounds as were agreed")


def test_a_party_whose_budget_is_used_up_gives_no_votes():
    parties = secret_parties(sigma=2.0)
    price = 1.001 * (7 * parties.agreement.mechanism.curve()).epsilon(delta=1e-5)
    with Ledger(":memory:", budget=Budget(epsilon=price, delta=1e-5, adaptive=False)) as ledger:
        parties.parties["party-2"]._payments.ledger = ledger
        parties.vote(ROWS)
        fails(parties, "party-2 refuses: what it may answer is used up")


# bad input


def agreed_keys(**options):
    keys = {name: Identity.fresh() for name in ("a", "b", "c", "asker", "dealer")}
    secret = SecretQuestions(dealer=keys["dealer"].public_key, input_range=(0, 1), **options)
    members = {name: keys[name].public_key for name in "abc"}
    return agreed(secret, members=members, aggregator=keys["asker"].public_key), keys


def agreed(secret, **options):
    settings = {
        "members": {name: Identity.fresh().public_key for name in "abc"},
        "aggregator": Identity.fresh().public_key,
        "classes": range(3),
        "n_features": 2,
        "sigma": 9.0,
        "noise": "parties",
    }
    return Agreement(secret=secret, **{**settings, **options})


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([[0.0, np.nan]], "finite"),
        ([[0.0]], "shape"),
        ([[0.0, 1.5]], "input_range"),
        ([[-1e-9, 0.5]], "input_range"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_sent(rows, why):
    parties = secret_parties()
    wires = [tapped(parties, name) for name in ("party-1", DEALER)]
    with pytest.raises(ValueError, match=why) as caught:
        parties.vote(rows)
    assert "1.5" not in str(caught.value)
    assert not any(wire.log for wire in wires)


def test_what_would_not_hold_is_refused_when_it_is_agreed():
    keys = {name: Identity.fresh().public_key for name in "abcd"}
    good = SecretQuestions(dealer=keys["d"], input_range=(0, 1))
    members = {name: keys[name] for name in "abc"}
    with pytest.raises(ValueError, match="noise='parties'"):
        agreed(good, noise="aggregator")
    with pytest.raises(ValueError, match="at most 16 classes"):
        agreed(good, classes=range(17))
    for dealer in (keys["a"], keys["d"]):
        with pytest.raises(ValueError, match="neither the asker nor a member"):
            agreed(SecretQuestions(dealer=dealer, input_range=(0, 1)), members=members, aggregator=keys["d"])


@pytest.mark.parametrize(
    "change",
    [
        {"dealer": "x"},
        {"input_range": (1, 0)},
        {"input_range": (0, float("inf"))},
        {"input_range": 3},
        {"hidden": 65},
        {"hidden": 1.5},
        {"max_rounds": 0},
        {"asker": "evil"},
    ],
)
def test_settings_of_secret_questions_are_checked(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        SecretQuestions(**{"dealer": Identity.fresh().public_key, "input_range": (0, 1), **change})


def test_estimators_that_cannot_vote_in_secret_are_refused_at_construction():
    agreement, keys = agreed_keys()
    with pytest.raises(ValueError, match="LogisticRegression"):
        Party(GaussianNB(), *data_of(1)[0], agreement=agreement, identity=keys["a"])


def test_questions_must_be_as_agreed():
    parties = secret_parties()
    with pytest.raises(ValueError, match="questions must be 'secret'"):
        PartyEnsemble(parties.parties, agreement=parties.agreement, identity=parties._identity)
    with pytest.raises(ValueError, match="need a dealer"):
        PartyEnsemble(
            parties.parties, agreement=parties.agreement, identity=parties._identity, questions="secret"
        )
    with pytest.raises(ValueError, match="input_range"):
        PartyEnsemble.in_process(
            MODELS[0], data_of(3), classes=range(3), sigma=1.0, noise="parties", questions="secret"
        )
    with pytest.raises(ValueError, match="another dealer"):
        Dealer(parties.agreement, Identity.fresh())


def test_parties_with_secret_questions_are_neither_saved_nor_served(tmp_path):
    parties, address = secret_parties(), "http://127.0.0.1:1"
    voter = PartyEnsemble(
        dict.fromkeys(parties.parties, address),
        agreement=parties.agreement, identity=parties._identity, questions="secret", dealer=address,
    )  # fmt: skip
    width = voter.agreement.n_features
    saved = SavedTeachers(
        ensemble=voter,
        mechanism=voter.agreement.mechanism,
        columns=tuple(map(str, range(width))),
        numeric=(True,) * width,
        grid={str(column): 1.0 for column in range(width)},
    )
    with pytest.raises(ValueError, match="ask the PartyEnsemble itself, or agree on clear questions"):
        saved.save(tmp_path / "teachers")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="spend with every round"):
        require_servable(saved, voter.agreement.mechanism, Budget(epsilon=500.0, delta=1e-6, adaptive=False))


@pytest.mark.parametrize("verb", ["ask", "layer", "vote", "hold", "argmax", "deal", "material", "open"])
@pytest.mark.parametrize(
    "body", [b"", b"[]\n", b"[1,2]\nxx", b"\xff", b'[0,0,"x"]\n', b'[0,0,0,0,"x"]\n', b"[" * 9999]
)
def test_whatever_the_asker_signs_is_answered_or_refused(verb, body):
    parties = secret_parties(reveals="argmax" if verb in {"hold", "argmax"} else "counts")
    to_dealer = verb in {"deal", "material", "open"}
    link = parties._dealer if to_dealer else parties._links["party-1"]
    purpose = {"vote": "turn", "open": "opening"}.get(verb, verb)
    message = parties._identity.seal(purpose, body)
    message = rounds.pack([message, b""]) if verb in {"ask", "hold"} else message
    for sent in (message, body):
        with pytest.raises(PartyError, match="refuses"):
            link.ask(verb, sent, 10**6)


def test_a_failed_model_still_votes(monkeypatch):
    monkeypatch.setattr("ostraka.parties.party.skellam", lambda _, shape: np.zeros(shape, dtype=np.int64))
    data = [(np.zeros((2, 2)), [0, 0]), (np.ones((2, 2)), [2, 2]), (np.ones((2, 2)), [2, 2])]
    parties = PartyEnsemble.in_process(
        MODELS[0],
        data,
        classes=range(3),
        sigma=1.0,
        noise="parties",
        questions="secret",
        input_range=(0, 1),
    )
    assert parties.vote([[0.5, 0.5]]).open().tolist() == [[1, 0, 2]]
