import math
from dataclasses import replace

import numpy as np
import pytest

from ostraka import BudgetExceeded
from ostraka.mechanisms import NoisyCounts
from ostraka.synth import Evolution
from ostraka.synth import fitting as _fitting
from ostraka.synth.evolution import NearestVotes, weights_of

WORDS = np.array(["aa", "ab", "ba", "ac", "bb", "cc"])


def steps(winners, rng):
    return winners + rng.normal(0, 0.3, winners.shape)


def blobs(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal([2.0, -1.0], 0.1, (n, 2))


def fitted(X=None, *, fit=None, **settings):
    fixed = {"vary": steps, "n_rounds": 5, "epsilon": 1.0}
    first = np.random.default_rng(9).normal(0, 2, (30, 2))
    return Evolution(**{"candidates": first} | fixed | settings).fit(
        blobs() if X is None else X, rng=np.random.default_rng(1), **(fit or {})
    )


def test_the_population_moves_to_the_rows():
    distances = [
        np.linalg.norm(fitted(n_rounds=n).sample(500, random_state=0).mean(axis=0) - [2, -1]) for n in (1, 8)
    ]
    assert distances[1] < 0.2
    assert distances[1] <= distances[0]


def test_texts_are_varied_by_any_callable_and_compared_by_their_embedding():
    def embed(texts):
        return np.array([[text.count(letter) for letter in "abc"] for text in texts])

    def vary(texts, rng):
        return ["".join("abc"[rng.integers(3)] if rng.random() < 0.5 else c for c in text) for text in texts]

    X = np.tile([0.0, 1.0, 1.0], (2000, 1))  # as "bc"
    model = fitted(X, candidates=WORDS, embed=embed, vary=vary, n_rounds=12)
    assert set(model.sample(100, random_state=0)) <= {"bc", "cb"}


class Stops:
    """Variations that end with an error in some calls; what they see is written down."""

    def __init__(self, *calls):
        self.calls, self.seen = calls, []

    def __call__(self, winners, rng):
        self.seen.append(winners)
        if len(self.seen) in self.calls:
            raise ConnectionError("the other machine is away")
        return steps(winners, rng)


def released(ledger):
    answers = [ledger.answer(entry.seq) for entry in ledger.entries()]
    return [None if answer is None else answer["votes"].tolist() for answer in answers]


def test_a_fit_that_stops_goes_on_and_shows_no_second_votes_of_a_round(book):
    """The machine that varies texts may keep what it sees: of each round, one release."""
    ledger, first, vary = book(2.0), np.random.default_rng(9).normal(0, 2, (30, 2)), Stops(3)
    settings = {"n_rounds": 5, "epsilon": 2.0, "random_state": 3, "name": "steps"}
    with pytest.raises(ConnectionError):
        Evolution(first, vary=vary, **settings).fit(blobs(), ledger=ledger)
    before = released(ledger)
    assert len(before) == 2  # the first call is a trial, the second made round 2, the third failed
    again = Stops()
    made = Evolution(first, vary=again, **settings).fit(blobs(), ledger=ledger)
    assert released(ledger)[:2] == before
    assert ledger.count() == 5
    assert released(ledger)[4] == made.votes_.tolist()
    np.testing.assert_array_equal(again.seen[1], vary.seen[1])
    np.testing.assert_array_equal(again.seen[2], vary.seen[2])
    same = Evolution(first, vary=steps, **settings).fit(blobs(), ledger=ledger)
    np.testing.assert_array_equal(same.votes_, made.votes_)


def test_rounds_that_cannot_all_be_paid_for_are_refused_before_the_first(book):
    ledger = book(0.9)
    with pytest.raises(BudgetExceeded, match="does not pay for 5 × NearestVotes"):
        fitted(fit={"ledger": ledger})
    assert ledger.count() == 0


def test_votes_are_noisy_counts_of_rows():
    model = fitted(n_rounds=2)
    assert abs(model.votes_.sum() - 3000) < 9 * model.mechanism_.sigma * np.sqrt(30)
    assert model.votes_.dtype == np.int64


def test_the_price_is_that_of_the_rounds():
    mechanism = fitted().mechanism_
    one_round = NoisyCounts(sigma=mechanism.sigma, l2=1.0, relation="add-or-remove").curve()
    assert mechanism.curve().epsilon(1e-5) == pytest.approx((5 * one_round).epsilon(1e-5), rel=1e-9)


def test_what_varies_sees_candidates_and_never_rows():
    candidates = []

    def spy(winners, rng):
        candidates.append(winners)
        return steps(winners, rng)

    X = blobs() + 1000.0
    fitted(X, vary=spy)
    assert candidates
    assert max(np.abs(batch).max() for batch in candidates) < 50


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_rounds": 0}, "n_rounds must"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"candidates": np.zeros((0, 2))}, "candidates must be public"),
        ({"candidates": np.zeros((4, 3))}, "embedded as finite rows"),
        (
            {"candidates": WORDS, "embed": lambda texts: np.full((len(texts), 2), np.nan)},
            "embedded as finite",
        ),
        ({"vary": lambda winners, rng: winners[1:]}, "as many candidates as it gets"),
        ({"vary": lambda winners, rng: winners * np.nan}, "embedded as finite"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(settings, words, uncharged):
    with uncharged(words) as ledger:
        fitted(fit={"ledger": ledger}, **settings)


def test_rows_that_share_a_vote_are_refused():
    mechanism = fitted(n_rounds=1).mechanism_
    eight = _fitting.private_rows(np.zeros((8, 2), np.float32), np.zeros(8), np.zeros(8), rng=None)
    for use in (mechanism.uses, lambda rows: mechanism.release(rows, rng=np.random.default_rng(0))):
        with pytest.raises(ValueError, match="share of 1"):
            use(eight)


@pytest.mark.parametrize("n_candidates", [1, 2, 5, 8])
def test_half_of_the_next_candidates_are_those_with_most_votes_and_winners_are_varied(n_candidates):
    candidates = np.arange(2.0 * n_candidates).reshape(n_candidates, 2)
    votes = np.array([9, 0, 30, 2, 30, 1, 0, 3])[:n_candidates]
    parents = []

    def vary(winners, rng):
        parents.extend(winners.tolist())
        return winners + 100

    mechanism = NearestVotes(
        n_candidates=n_candidates,
        n_rounds=3,
        sigma=1.0,
        seed=0,
        candidates=candidates,
        vary=vary,
        embed=np.asarray,
    )
    weights = np.maximum(votes - 2.0, 0)  # two standard deviations of noise
    np.testing.assert_array_equal(weights_of(votes, sigma=1.0), weights)
    assert weights_of(np.array([2, 1, -7]), sigma=1.0).tolist() == [1.0, 1.0, 1.0]
    got = mechanism._next(candidates, votes, np.random.default_rng(0))
    n_best = min(math.ceil(n_candidates / 2), int((weights > 0).sum()))
    best = sorted(range(n_candidates), key=lambda k: (-weights[k], k))[:n_best]
    np.testing.assert_array_equal(got[:n_best], candidates[best])
    chosen = np.random.default_rng(0).choice(n_candidates, n_candidates - n_best, p=weights / weights.sum())
    np.testing.assert_array_equal(got[n_best:], candidates[chosen] + 100)
    assert parents == candidates[chosen].tolist()
    other = replace(mechanism, candidates=candidates + 1, vary=steps, embed=list)
    assert mechanism == other  # a record names them otherwise
    assert (
        repr(mechanism)
        == repr(other)
        == (f"NearestVotes(n_candidates={n_candidates}, n_rounds=3, sigma=1.0, seed=0)")
    )


def test_with_hardly_any_noise_votes_are_those_of_the_nearest_round_by_round():
    X, first = blobs(500), np.random.default_rng(3).normal(0, 2, (7, 2))
    mechanism = NearestVotes(
        n_candidates=7, n_rounds=3, sigma=1e-3, seed=5, candidates=first, vary=steps, embed=np.asarray
    )
    private = _fitting.private_rows(X.astype(np.float32), np.zeros(500), None, rng=None)
    assert mechanism.uses(private) == 1
    one, n_rounds = mechanism.turns
    assert (one.n_rounds, n_rounds) == (1, 3)
    released = mechanism.release(private, rng=np.random.default_rng(0))
    public, candidates = np.random.default_rng(5), first
    for turn in range(3):
        near = ((X[:, None] - candidates[None]) ** 2).sum(axis=2).argmin(axis=1)
        votes = np.bincount(near, minlength=7)
        if turn < 2:
            candidates = mechanism._next(candidates, votes, public)
    np.testing.assert_array_equal(released["votes"], votes)
    np.testing.assert_allclose(released["candidates"], candidates)


def test_the_noise_is_the_least_of_the_price():
    for epsilon in (0.5, 4.0):
        mechanism = Evolution(np.eye(2), vary=steps, n_rounds=7, epsilon=epsilon).mechanism()
        assert (
            mechanism.curve().epsilon(1e-5)
            <= epsilon
            < replace(mechanism, sigma=mechanism.sigma * 0.9995).curve().epsilon(1e-5)
        )
    for wrong in (np.zeros(()), np.zeros((0, 2)), np.array([{}])):
        with pytest.raises(ValueError, match="candidates must be public rows or texts, one or more"):
            Evolution(wrong, vary=steps).mechanism()
