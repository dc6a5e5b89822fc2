"""The ensemble of parties: sums come out exactly, or not at all and with the name of who failed."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from ostraka import Budget, GNMax, Ledger, count_votes, release
from ostraka.mechanisms import SkellamMax
from ostraka.parties.asker import plausible
from ostraka.parties.parties import PartyEnsemble
from ostraka.parties.party import Party
from ostraka.secure.agreement import Agreement
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError
from tests.parties.hidden_rounds import fails

X, Y = load_iris(return_X_y=True)


@settings(max_examples=10)
@given(
    votes=st.lists(st.integers(0, 3), min_size=3, max_size=7),
    n_rows=st.integers(1, 5),
    max_rows=st.integers(1, 6),
)
def test_sums_are_plain_counts_for_any_shape(ensemble, votes, n_rows, max_rows):
    parties = ensemble(n_classes=4, votes=votes, max_rows=max_rows)
    counts = parties.vote(np.zeros((n_rows, 2))).open()
    expected = count_votes([[vote] * n_rows for vote in votes], n_classes=4)
    np.testing.assert_array_equal(counts, expected)


def test_sums_are_those_of_the_models_trained_by_hand():
    shards = [(X[k::5], Y[k::5]) for k in range(5)]
    parties = PartyEnsemble.in_process(KNeighborsClassifier(1), shards, classes=[0, 1, 2], sigma=1.0)
    predictions = [KNeighborsClassifier(1).fit(*shard).predict(X[:40]) for shard in shards]
    np.testing.assert_array_equal(parties.vote(X[:40]).open(), count_votes(predictions, n_classes=3))


@pytest.mark.parametrize(
    ("data", "why"),
    [([], "members must be 3"), ([(5.0, [0, 1, 2])] * 3, "X must have shape"), ([(X[:, 0], Y)] * 3, "shape")],
)
def test_data_of_nobody_and_rows_without_columns_are_refused(data, why):
    with pytest.raises(ValueError, match=why):
        PartyEnsemble.in_process(GaussianNB(), data, classes=[0, 1, 2], sigma=1.0)


def test_many_rows_take_several_rounds_and_are_told():
    identities = [Identity.fresh() for _ in range(4)]
    agreement = Agreement(
        members={f"p{k}": identity.public_key for k, identity in enumerate(identities[:3])},
        aggregator=identities[3].public_key,
        classes=["no", "yes"],
        n_features=1,
        sigma=1.0,
        max_rows=4,
    )
    members = {
        f"p{k}": Party(GaussianNB(), [[0.0], [1.0]], ["no", "yes"], agreement=agreement, identity=identity)
        for k, identity in enumerate(identities[:3])
    }
    events = []
    parties = PartyEnsemble(
        members, agreement=agreement, identity=identities[3], progress=lambda *step: events.append(step)
    )
    rows = np.arange(10.0)[:, None]
    expected = GaussianNB().fit([[0.0], [1.0]], [0, 1]).predict(rows)
    np.testing.assert_array_equal(parties.vote(rows).open(), 3 * np.eye(2, dtype=int)[expected])
    assert events == [("votes", 4, 10), ("votes", 8, 10), ("votes", 10, 10)]
    assert list(parties.classes_) == ["no", "yes"]


def test_votes_can_be_released_like_those_of_teachers_but_protect_a_party(ensemble):
    parties = ensemble(9, votes=[1] * 9, sigma=1.0)
    votes = parties.vote([[0.0, 0.0]])
    with Ledger(":memory:", budget=Budget(epsilon=100.0, delta=1e-5)) as ledger:
        assert release(parties.agreement.mechanism, votes, ledger=ledger) == [1]
        assert ledger.unit == "party"
    assert votes.adjacency.unit == "party"
    assert parties.agreement.mechanism == GNMax(sigma=1.0)


# a party that misbehaves


def test_an_aggregator_that_tells_parties_different_things_gets_nothing(ensemble, tap):
    parties = ensemble()
    victim = parties.parties["party-1"]

    def another_call(sealed):  # signed by the aggregator itself
        call = json.loads(sealed[64:])
        return parties._identity.seal("call", json.dumps({**call, "id": "a" * 64}).encode())

    tap(parties, sent={"join": another_call})
    fails(parties, "party-1: the reply is to another call", victim.name)


@pytest.mark.parametrize("direction", ["sent", "received"])
@pytest.mark.parametrize("verb", ["join", "vote"])
@pytest.mark.parametrize("place", [0, 64, -1])
def test_a_changed_message_fails_the_round_and_names_the_party(ensemble, tap, direction, verb, place):
    def flipped(sealed):
        changed = bytearray(sealed)
        changed[place] ^= 1
        return bytes(changed)

    parties = ensemble()
    tap(parties, **{direction: {verb: flipped}})
    assert fails(parties, "party-1", "party-1").code == "wrong_identity"


@pytest.mark.parametrize("length", [0, 10, 64, 90])
def test_a_message_cut_short_fails_the_round(ensemble, tap, length):
    for direction in ("sent", "received"):
        parties = ensemble()
        tap(parties, **{direction: {"vote": lambda sealed: sealed[:length]}})
        fails(parties, "party-1")


def test_a_party_that_signs_with_another_key_is_named(ensemble, tap):
    parties = ensemble()
    tap(parties, received={"join": lambda sealed: Identity.fresh().seal("reply", sealed[64:])})
    assert fails(parties, "party-1: the signature of the reply").code == "wrong_identity"


def test_a_party_cannot_answer_for_another_nor_reuse_the_answer_of_another_round(ensemble, tap):
    parties = ensemble()
    wire = tap(parties)
    parties.vote([[0.0, 0.0]])
    for verb, old in (("join", wire.log["join answer"]), ("vote", wire.log["vote answer"])):
        wire.received = {verb: lambda _, old=old: old}
        fails(parties, r"another (call|round)")


def test_masks_that_do_not_cancel_are_noticed(ensemble, tap):
    parties = ensemble()
    identity = parties.parties["party-1"]._identity

    def other_votes(sealed):
        return identity.seal("votes", sealed[64:-4] + bytes(4))

    tap(parties, received={"vote": other_votes})
    error = fails(parties, "do not cancel")
    assert error.code == "disagreement"
    assert error.parties == ()


@pytest.mark.parametrize("total", [[4, -1], [1, 3], [-(2**31), 3 - 2**31]])
def test_counts_that_no_votes_add_up_to_are_noticed(ensemble, total):
    agreement = ensemble().agreement
    assert agreement.noise == "aggregator"
    np.testing.assert_array_equal(plausible(np.array([[3, 0]], dtype=np.uint32), 3, agreement), [[3, 0]])
    with pytest.raises(PartyError, match="did not cast one vote a row"):
        plausible(np.array([total]).astype(np.uint32), 3, agreement)


def test_a_mistake_in_the_code_is_no_party_error(ensemble, tap):
    parties = ensemble()
    tap(parties, sent={"join": lambda _: 1 / 0})
    with pytest.raises(ZeroDivisionError):
        parties.vote([[0.0, 0.0]])
    assert repr(parties).startswith("PartyEnsemble(3 parties, agreement='")


# dropping out


def test_a_missing_party_fails_the_round_and_can_be_left_out_if_the_agreement_says_so(ensemble, tap):
    parties = ensemble(5, n_classes=5, quorum=4)

    def gone(_):
        raise PartyError("party-2 does not answer", code="unreachable", parties=("party-2",))

    for verb in ("join", "vote"):
        tap(parties, "party-2", sent={verb: gone})
        missing = fails(parties, "party-2 does not answer", "party-2").parties
    outcome = parties.vote([[0.0, 0.0]], without=missing)
    assert outcome.open().tolist() == [[1, 0, 1, 1, 1]]
    with pytest.raises(ValueError, match="quorum"):
        parties.vote([[0.0, 0.0]], without=["party-1", "party-2"])
    with pytest.raises(ValueError, match="stranger"):
        parties.vote([[0.0, 0.0]], without="stranger")


def test_without_a_quorum_all_parties_are_needed(ensemble):
    with pytest.raises(ValueError, match="needs 4 parties"):
        ensemble(4).vote([[0.0, 0.0]], without=["party-1"])


# questions, members, noise


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
def test_questions_of_another_form_are_not_asked(ensemble, rows, why):
    with pytest.raises(ValueError, match=why):
        ensemble().vote(rows)


def test_parties_must_be_those_of_the_agreement(ensemble):
    parties = ensemble()
    with pytest.raises(ValueError, match="those of the agreement"):
        PartyEnsemble(
            {"party-1": "http://127.0.0.1:1"}, agreement=parties.agreement, identity=parties._identity
        )


def test_errors_travel_between_processes():
    error = PartyError("west refuses", code="refused", parties=("west",))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.parties) == ("west refuses", "refused", ("west",))


def test_noisy_votes_are_taken_by_their_own_mechanism_only(ensemble):
    parties = ensemble(4, noise="parties", sigma=2.0)
    votes = parties.vote(np.zeros((5, 2)))
    exact = ensemble(4, sigma=2.0).vote(np.zeros((5, 2)))
    assert parties.agreement.mechanism == SkellamMax(sigma=2.0)
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)) as ledger:
        for mechanism, private in (
            (GNMax(sigma=2.0), votes),
            (SkellamMax(sigma=3.0), votes),
            (SkellamMax(sigma=2.0), exact),
        ):
            with pytest.raises(ValueError, match="hides"):
                release(mechanism, private, ledger=ledger)
        assert ledger.entries() == ()
        assert release(parties.agreement.mechanism, votes, ledger=ledger).shape == (5,)
        assert ledger.unit == "party"


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("colluding", "left_out", "variance"),
    [
        pytest.param(0, 0, 6 * 9 / 5, marks=pytest.mark.slow),
        pytest.param(2, 0, 6 * 9 / 3, marks=pytest.mark.slow),
        (0, 1, 9.0),
    ],
)
def test_the_noise_has_the_agreed_variance_whoever_is_missing(ensemble, colluding, left_out, variance):
    parties = ensemble(
        6, votes=[0] * 6, n_classes=2, noise="parties", sigma=3.0, colluding=colluding, quorum=5
    )
    without = [f"party-{k + 1}" for k in range(left_out)]
    noisy = parties.vote(np.zeros((20_000, 2)), without=without).open() - [6 - left_out, 0]
    assert abs(noisy.mean()) < 7.5 * np.sqrt(variance / noisy.size)
    for draws, expected in (
        (noisy, variance),
        (noisy[:, 0] - noisy[:, 1], 2 * variance),  # of their own for each class,
        (noisy[::2] - noisy[1::2], 2 * variance),  # and for each row
    ):
        # the fourth moment of Skellam noise is 3 v^2 + v; beyond 7.5 standard deviations lies less than
        # 1e-12, the skewness of a variance of so many draws included
        error = 7.5 * np.sqrt((2 * expected**2 + expected) / draws.size)
        assert abs(draws.var() - expected) < error < 0.1 * expected
