"""Secret rounds that reveal the noisy argmax only: right answers, what holder and asker see, and failures."""

import numpy as np
import pytest

from ostraka import Budget, Ledger, release
from ostraka.mechanisms import SkellamMax
from ostraka.parties import asker as _asker
from ostraka.parties import party as _party
from ostraka.parties.parties import PartyEnsemble
from ostraka.secure import rounds
from ostraka.secure.agreement import Agreement, SecretQuestions
from ostraka.secure.keys import Identity
from ostraka.secure.masks import stream
from ostraka.secure.rounds import DEALER, HOLDER, PartyError
from ostraka.secure.two_party import Sent, argmax_pads, small, words
from tests.parties.hidden_rounds import MODELS, bad_material, data_of, fails, flipped, secret_parties, tapped
from tests.parties.test_secret_roles import HIGH, LOW, N_ROWS, looks_drawn

ROWS = np.random.default_rng(1).uniform(0, 1, (7, 2))
FIRST, OTHER = "party-1", "party-2"  # the first holds the sum


def parties_of(n_parties=3, **options):
    return secret_parties(n_parties, reveals="argmax", **options)


@pytest.mark.parametrize("units", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_the_answer_is_the_argmax_of_the_counts_and_of_equal_ones_the_first(monkeypatch, units):
    monkeypatch.setattr("ostraka.parties.party.skellam", lambda _, shape: np.zeros(shape, dtype=np.int64))
    parties = parties_of(4, hidden_units=units, max_rows=30)
    clear = PartyEnsemble.in_process(MODELS[units], data_of(4), classes=range(3), sigma=1.0, random_state=0)
    rows = np.random.default_rng(0).uniform(0, 1, (70, 2))
    counts = clear.vote(rows).open()
    assert units or (np.sort(counts, axis=1)[:, -1] == np.sort(counts, axis=1)[:, -2]).any()  # there are ties
    np.testing.assert_array_equal(parties.vote(rows).open(), np.eye(3)[counts.argmax(axis=1)])


def test_the_noise_of_every_party_is_in_the_sum_that_is_compared(monkeypatch):
    noises = []

    def skellam(variance, shape):
        noises.append(variance)
        return np.tile([0, 1, 0], (shape[0], 1)) * 100

    monkeypatch.setattr("ostraka.parties.party.skellam", skellam)
    votes = parties_of(sigma=3.0).vote(ROWS).open()
    assert noises == [3.0] * 3
    assert (votes.argmax(axis=1) == 1).all()


def test_the_argmax_is_charged_its_own_price_and_the_counts_theirs_where_somebody_may_collude():
    parties = parties_of(sigma=2.0)
    mechanism = parties.agreement.mechanism
    assert mechanism == SkellamMax(sigma=2.0, reveals="argmax")
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)) as ledger:
        answers = release(mechanism, parties.vote(ROWS), ledger=ledger)
        assert answers.shape == (7,)
        with pytest.raises(ValueError, match="argmax_only"):
            release(SkellamMax(sigma=2.0), parties.vote(ROWS), ledger=ledger)
    collude = parties_of(4, sigma=2.0, colluding=1)
    assert collude.agreement.mechanism == SkellamMax(sigma=2.0)
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)) as ledger:
        votes = collude.vote(ROWS)
        assert (release(collude.agreement.mechanism, votes, ledger=ledger) == votes.open().argmax(1)).all()


def test_a_cheating_holder_learns_whether_a_class_is_among_the_two_largest_and_the_round_names_it(
    monkeypatch,
):
    """As docs/parties.md states it: the one bit that a failure shows."""
    monkeypatch.setattr("ostraka.parties.party.skellam", lambda _, shape: np.zeros(shape, dtype=np.int64))

    class Cheating(_party.OwnerLargest):
        def compared(self, mine, theirs):
            opened = super().compared(mine, theirs)[: mine.nbytes]
            self._wins[:, 2] += 1  # class 2 is said to beat one class more than it does
            return opened + self._wins.tobytes()

    clear = PartyEnsemble.in_process(MODELS[0], data_of(5), classes=range(3), sigma=1.0, random_state=0)
    rows = np.random.default_rng(0).uniform(0, 1, (40, 2))
    order = np.argsort(-clear.vote(rows).open(), axis=1, kind="stable")  # of equal ones the first
    parties = parties_of(5)
    monkeypatch.setattr(_party, "OwnerLargest", Cheating)
    for place in range(3):
        row = rows[order[:, place] == 2][:1]
        if place == 2:
            assert parties.vote(row).open().argmax() == order[order[:, 2] == 2][0, 0]
        else:
            with pytest.raises(PartyError, match="one class a row") as caught:
                parties.vote(row)
            assert caught.value.parties == (FIRST,)


def agreement_of(**options):
    keys = {name: Identity.fresh().public_key for name in ("a", "b", "c", "asker", "dealer")}
    settings = {"sigma": 2.0, **options.pop("agreement", {})}
    return Agreement(
        members={name: keys[name] for name in "abc"},
        aggregator=keys["asker"],
        classes=range(5),
        n_features=2,
        noise="parties",
        secret=SecretQuestions(dealer=keys["dealer"], input_range=(0, 1), reveals="argmax", **options),
        **settings,
    )


def test_what_is_revealed_is_agreed_on():
    agreement = agreement_of()
    assert Agreement.from_json(agreement.to_json()) == agreement
    assert '"reveals":"argmax"' in agreement.to_json()
    assert agreement_of(asker="cheating").mechanism == SkellamMax(sigma=2.0, changed=5)
    with pytest.raises(ValueError, match="reveals must be"):
        SecretQuestions(dealer="0" * 64, input_range=(0, 1), reveals="all")
    with pytest.raises(ValueError, match="sigma must be at most 1,000"):
        agreement_of(agreement={"sigma": 1001.0})


# what holder and asker see


def views(parties, rows):
    """What the holder and the asker see at the end of a round, less what each knows itself."""
    wire, dealing, holder = tapped(parties), tapped(parties, OTHER), parties.parties[FIRST]
    sessions, materials = holder._secret, {}
    hold = sessions.hold

    def held(body, material):
        session, total = hold(body, material)
        materials.update(session=session, total=total, pads=session.largest._pads, opening=session.opening)
        return session, total

    plain_side = _asker._side

    def side(round_):
        side_view = plain_side(round_)
        materials["asker"] = side_view[0]._pads
        return side_view

    sessions.hold = held
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_asker, "_side", side)
        parties.vote(rows)
    parties._links[FIRST], parties._links[OTHER], sessions.hold = wire.link, dealing.link, hold
    session = materials["session"]
    masks = rounds.total_mask(session.secret, FIRST, session.round, n_classes=3, aggregator=False)
    answer = Sent(wire.last("hold", "received")[64 + 32 :])
    opened, shape = words(answer, len(rows), 3), (len(rows), 3)
    message = rounds.unpack(wire.last("argmax", "sent")[64:], 3)[2]
    seen_by_holder = {
        "sum of halves": materials["total"] + masks,
        "opening": materials["opening"],
        "opened": materials["opening"] + opened - materials["pads"].opened,
        "wins": small(Sent(message), *shape),
    }
    votes = dealing.last("vote", "received")[64 + 32 :]
    seen_by_asker = {
        "opening": opened,
        "opened": materials["opening"] + opened - materials["asker"].opened,
        "wins": small(answer, *shape),
        "masked votes": np.frombuffer(votes, dtype="<u4").reshape(shape),
        "half of the ones": np.frombuffer(wire.last("argmax", "received")[64 + 32 :], dtype="<u4").reshape(
            shape
        ),
    }
    return seen_by_holder, seen_by_asker


def told(view):
    """Names of what a simulator that draws everything would not have drawn."""
    return [
        name for name, values in view.items() if not looks_drawn(values, bits=4 if name == "wins" else None)
    ]


@pytest.mark.statistical
@pytest.mark.parametrize("units", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_holder_and_asker_see_what_their_simulators_draw(units):
    """The holder's knows sizes only, whatever question and models; the asker's also the argmax."""
    views_by_round = []
    for seed, rows in ((0, LOW), (0, HIGH), (1, HIGH)):
        both_views = views(parties_of(hidden_units=units, max_rows=N_ROWS, seed=seed), rows)
        assert [told(view) for view in both_views] == [[], []]
        views_by_round.append(both_views)
    for first, second in ((0, 1), (1, 2)):
        for role in (0, 1):
            pairs = {
                name: values ^ views_by_round[second][role][name]
                for name, values in views_by_round[first][role].items()
            }
            assert told(pairs) == []


def spoilt_pads(holder, defect):
    """``argmax_pads`` with a defect in the pads of the holder, or in those of the asker."""

    def spoilt(key_of_role, sent, *sizes):
        pads = argmax_pads(key_of_role, sent, *sizes)
        # only the holder draws all its pads itself; the asker is sent some
        return pads._replace(**defect(pads)) if (key_of_role is sent) is holder else pads

    return spoilt


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("holder", "name", "defect"),
    [
        (True, "opened", lambda pads: {"opened": pads.opened & np.uint64(2**32 - 1)}),
        (False, "opened", lambda pads: {"opened": pads.opened & np.uint64(2**32 - 1)}),
        (True, "half of the ones", lambda pads: {"table": pads.table * np.uint32(0)}),
    ],
    ids=["holder", "asker", "table"],
)
def test_counts_behind_a_bad_mask_are_noticed(monkeypatch, holder, name, defect):
    spoilt = spoilt_pads(holder, defect)
    for side in ("asker", "party"):
        monkeypatch.setattr(f"ostraka.parties.{side}.argmax_pads", spoilt)
    monkeypatch.setattr("ostraka.parties.asker._ones", lambda mine, _: mine.astype(np.int64))
    view = views(parties_of(max_rows=N_ROWS), LOW)[int(holder)]
    assert name in told(view)


def test_dealer_and_holder_together_learn_the_noisy_counts(monkeypatch):
    parties = parties_of(sigma=1.0)
    dealer, holder = parties._dealer._party, parties.parties[FIRST]
    hold, plain_side, materials, counted = holder._secret.hold, dealer._made, {}, []
    deal = lambda dealing, name: (materials.update(dealing=dealing), plain_side(dealing, name))[1]  # noqa: E731

    def held(body, material):
        session, total = hold(body, material)
        materials.update(session=session)
        return session, total

    def compared(session, total):
        dealing = materials["dealing"]
        call, transcript = dealing.round.call, dealing.round.transcript
        keys = rounds.AskerKeys.of(dealing.secret, call.key, call)
        pads = argmax_pads(stream(keys.pads(transcript, HOLDER)), bytes, len(ROWS), 3)
        half = ((session.opening - pads.opened) >> np.uint64(32)).astype(np.uint32)
        counted.append((half + total).astype(np.int32))
        return answered(session, total)

    answered = holder._secret.compared
    monkeypatch.setattr(dealer, "_made", deal)
    monkeypatch.setattr(holder._secret, "hold", held)
    monkeypatch.setattr(holder._secret, "compared", compared)
    votes = parties.vote(ROWS).open()
    assert np.abs(counted[0]).max() < 60  # noisy counts, and not numbers of 32 bits
    assert (votes.argmax(axis=1) == counted[0].argmax(axis=1)).all()


def test_all_that_the_asker_has_of_other_votes_never_adds_up():
    """The holder's own masked votes never leave it: with them the masks of the others would cancel."""
    parties = parties_of()
    wires = {name: tapped(parties, name) for name in parties.parties}
    parties.vote(ROWS)
    assert not any(verb == "vote" for verb, *_ in wires[FIRST].log)
    assert all(any(verb == "vote" for verb, *_ in wires[name].log) for name in wires if name != FIRST)


def test_only_the_first_participant_holds_and_it_gives_no_votes():
    parties = parties_of(4, quorum=3)
    wires = {name: tapped(parties, name) for name in parties.parties}
    sealed = {}

    def swapped(verb, direction, data):
        if (verb, direction) == ("hold", "sent"):
            last = rounds.unpack(rounds.unpack(rounds.unpack(data, 2)[0][64:], 3)[2], 6)[0]
            parts = rounds.unpack(rounds.unpack(data, 2)[0][64:], 3)
            turn = parties._identity.seal("turn", rounds.pack([*parts[:2], last]))
            with pytest.raises(PartyError, match="not open"):
                wires[FIRST].link.ask("vote", turn, 10**6)
            sealed["hold"] = data
        return data

    wires[FIRST].change = swapped
    fails(parties, "not open")
    with pytest.raises(PartyError, match="not open"):
        wires[OTHER].link.ask("hold", sealed["hold"], 10**6)
    wires[FIRST].change = lambda _verb, _direction, data: data
    assert parties.vote(ROWS, without=[FIRST]).open().sum(axis=1).tolist() == [1] * 7  # the next one holds
    assert any(verb == "hold" for verb, *_ in wires[OTHER].log)


def test_a_server_lets_the_longest_message_through():
    """Twice as many rows of many parties: the limit grows by no less than what the holder is sent."""
    longest, limits = [], []
    for n_rows in (100, 200):
        parties = parties_of(20, max_rows=n_rows, n_classes=2, n_features=1)
        wire = tapped(parties)
        parties.vote(np.linspace(0, 1, n_rows)[:, None])
        longest.append(max(len(data) for _, direction, data in wire.log if direction == "sent"))
        limits.append(parties.parties[FIRST].most_bytes)
    assert longest[0] <= limits[0]
    assert np.diff(longest) <= np.diff(limits) <= 1.1 * np.diff(longest)


# somebody changes a message


def test_material_and_votes_that_the_asker_changes_are_found_out_by_the_holder():
    parties = parties_of()

    wire = tapped(parties, FIRST, bad_material("hold"))
    fails(parties, "party-1 refuses: the material is not what the dealer signed")

    def votes_changed(verb, direction, data):
        if (verb, direction) != ("hold", "sent"):
            return data
        sealed, material = rounds.unpack(data, 2)
        *head, message = rounds.unpack(sealed[64:], 3)
        *parts, last = rounds.unpack(message, 5)
        body = rounds.pack([*head, rounds.pack([*parts, flipped(last, -1)])])
        return rounds.pack([parties._identity.seal("hold", body), material])

    wire.change = votes_changed
    fails(parties, "party-1 refuses: party-3: the signature of the votes")


def test_without_the_argmax_agreed_nobody_holds():
    assert {"/v1/hold", "/v1/argmax"}.isdisjoint(secret_parties().parties[FIRST].answers)
    parties = secret_parties()
    dealer = tapped(parties, DEALER)
    parties.vote(ROWS)
    transcript, _ = rounds.unpack(dealer.last("material", "sent")[64:], 2)
    request = parties._identity.seal("material", rounds.pack([transcript, HOLDER.encode()]))
    with pytest.raises(PartyError, match="never asked for"):
        dealer.link.ask("material", request, 10**6)
