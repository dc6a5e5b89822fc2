"""What release_epsilon claims, charges, refuses and gets on real votes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from ostraka.accounting import exact_curve
from ostraka.core.accounting.publish import Certificate, _Terms, release_epsilon
from ostraka.core.accounting.smooth import SmoothBound
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.private import Adjacency, Private
from ostraka.ledger import Budget, BudgetExceeded, Ledger
from ostraka.mechanisms import Confident, GNMax, LNMax, Threshold

GNMAX = GNMax(sigma=40.0)
PAIR = Confident(screen=Threshold(at=200, sigma=150.0), argmax=GNMAX)


def private(counts, unit="row"):
    return Private(counts, Adjacency.one_ballot(unit=unit))


def agreeing(n_queries, n_classes=2, seed=0):
    """Votes of 250 teachers, two thirds of them nearly unanimous."""
    rng = np.random.default_rng(seed)
    margin = np.where(rng.random(n_queries) < 2 / 3, rng.uniform(0.9, 1, n_queries), rng.random(n_queries))
    first = np.rint(250 * (1 + margin * (n_classes - 1)) / n_classes).astype(int)
    others = np.array([rng.multinomial(250 - f, np.full(n_classes - 1, 1 / (n_classes - 1))) for f in first])
    return np.concatenate([first[:, None], others], axis=1)


@pytest.fixture(scope="session")
def adult(data_dir):
    first = np.load(data_dir / "pate_votes" / "adult_rf_250_teachers.npz")["votes"].sum(axis=0, dtype=int)
    return np.stack([250 - first, first], axis=1)


@pytest.mark.parametrize(
    ("n_answers", "prototype", "goal"),
    [
        (1000, 2.3, 1.81),
        *(pytest.param(*value, marks=pytest.mark.slow) for value in ((100, 1.05, 0.70), (500, 1.7, 1.31))),
    ],
)
def test_published_epsilon_of_adult_answers(adult, n_answers, prototype, goal):
    votes = private(adult[:n_answers])
    publications = [
        release_epsilon(GNMAX, votes, delta=1e-5, rng=np.random.default_rng(seed)) for seed in range(20)
    ]
    mean = np.mean([t.epsilon for t in publications])
    owner = exact_curve(GNMAX, adult[:n_answers]).epsilon(delta=1e-5)
    classic = (n_answers * GNMAX.curve(bound="classic")).epsilon(delta=1e-5)
    assert owner < mean < goal < prototype < classic
    assert mean < publications[0].any_votes
    assert all(t.method == "certificate" for t in publications)


def test_two_classes_with_a_screen_are_one_law(adult):
    report = release_epsilon(PAIR, private(adult[:300]), delta=1e-5, rng=np.random.default_rng(1))
    assert report.epsilon < 0.5 * report.any_votes
    repetition = release_epsilon(
        PAIR,
        private(adult[:300]),
        delta=1e-5,
        rng=np.random.default_rng(1),
        answered=np.ones(300, dtype=bool),
    )
    assert repetition == report


@pytest.mark.slow  # quick: two to five classes, above and below
def test_many_classes_have_a_valid_route(data_dir):
    votes = np.load(data_dir / "pate_votes" / "mnist_svhn_30_samples.npz")
    mnist = np.repeat(votes["mnist_counts"], 100, axis=0)
    report = release_epsilon(GNMAX, private(mnist), delta=1e-5, rng=np.random.default_rng(0))
    owner = exact_curve(GNMAX, mnist).epsilon(delta=1e-5)
    assert owner < report.epsilon < 0.75 * report.any_votes
    assert report.epsilon < 4.95  # what the 2018 bound comes to unpublished


@pytest.mark.parametrize(
    ("mechanism", "n_classes", "options"),
    [
        (GNMAX, 2, {}),
        pytest.param(GNMAX, 5, {}, marks=pytest.mark.slow),
        (LNMax(scale=40.0), 2, {}),
        pytest.param(LNMax(scale=40.0), 5, {}, marks=pytest.mark.slow),
        (Threshold(at=200, sigma=20.0), 5, {}),
        (PAIR, 5, {"answered": np.arange(250) % 3 > 0}),
        pytest.param(GNMAX, 5, {"method": "smooth"}, marks=pytest.mark.slow),
        pytest.param(
            PAIR, 5, {"method": "smooth", "answered": np.arange(250) % 3 > 0}, marks=pytest.mark.slow
        ),
        (PAIR, 5, {"answered": np.zeros(250, dtype=bool)}),
        (PAIR, 5, {"method": "smooth", "answered": np.zeros(250, dtype=bool)}),
    ],
)
def test_the_record_holds_together_and_can_be_computed_again(mechanism, n_classes, options):
    votes = private(agreeing(250, n_classes), unit="person")
    report = release_epsilon(mechanism, votes, delta=1e-5, rng=np.random.default_rng(3), **options)
    plan = eval(report.release)
    assert isinstance(plan, SmoothBound if options.get("method") == "smooth" else Certificate)
    assert plan.bound(report.published) == report.answers_rdp
    assert plan.curve().rdp[ORDERS.index(report.order)] == report.release_rdp
    again = Curve((report.order,), (report.answers_rdp + report.release_rdp,))
    delta = report.delta - (plan.failure if isinstance(plan, SmoothBound) else 0.0)
    assert report.epsilon >= min(again.epsilon(delta), report.any_votes)
    assert report.epsilon <= again.epsilon(delta * 0.99) or report.epsilon > report.any_votes
    assert 0.95 <= report.confidence < 1
    assert report.unit == "person"
    assert report.simulation
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert record["epsilon"] == report.epsilon
    assert record["guarantee"].startswith("Simulation")


def test_the_bound_covers_the_votes_as_often_as_it_says():
    counts = agreeing(300)
    publications = [
        release_epsilon(GNMAX, private(counts), delta=1e-5, rng=np.random.default_rng(seed))
        for seed in range(60)
    ]
    cost = exact_curve(GNMAX, counts, orders=(publications[0].order,)).rdp[0]
    # 60 tries at 95 % or more: 16 failures or more have a chance below 1e-7
    assert sum(t.answers_rdp < cost for t in publications) < 16


def test_without_a_seed_it_claims_in_words():
    report = release_epsilon(GNMAX, private(agreeing(300), unit="patient"), delta=1e-5)
    assert not report.simulation
    assert "differ in one patient" in report.guarantee
    assert "the answers and this number" in report.guarantee
    assert f"{report.epsilon:.4g}" in report.guarantee
    assert "1e-05" in report.guarantee


def test_the_ledger_is_charged_before_and_only_for_the_publication():
    votes = private(agreeing(300))
    with Ledger(":memory:", budget=Budget(epsilon=1.0, delta=1e-5)) as ledger:
        report = release_epsilon(GNMAX, votes, delta=1e-5, ledger=ledger, key="cost of round one")
        assert ledger.spent().rdp == pytest.approx(eval(report.release).curve().rdp, rel=1e-9)
        repetition = release_epsilon(GNMAX, votes, delta=1e-5, ledger=ledger, key="cost of round one")
        assert repetition == report
        assert len(list(ledger.entries())) == 1
    with Ledger(":memory:", budget=Budget(epsilon=0.01, delta=1e-5)) as ledger, pytest.raises(BudgetExceeded):
        release_epsilon(GNMAX, votes, delta=1e-5, ledger=ledger)


def test_where_publishing_cannot_pay_nothing_is_published():
    with Ledger(":memory:", budget=Budget(epsilon=1.0, delta=1e-5)) as ledger:
        report = release_epsilon(GNMAX, private(agreeing(3)), delta=1e-5, ledger=ledger)
        assert list(ledger.entries()) == []
    assert report.method == "any votes"
    assert report.epsilon == report.any_votes == (3 * GNMAX.curve()).epsilon(delta=1e-5)
    assert "this number" not in report.guarantee
    forced = release_epsilon(GNMAX, private(agreeing(3)), delta=1e-5, method="certificate")
    assert forced.method == "certificate"


def test_the_order_does_not_depend_on_what_was_answered():
    votes, orders = private(agreeing(400, 5)), set()
    for share in (0.05, 0.5, 1.0):
        answered = np.arange(400) < 400 * share
        report = release_epsilon(PAIR, votes, delta=1e-5, answered=answered, rng=np.random.default_rng(0))
        orders.add((report.order, report.release_rdp, report.any_votes))
    assert len(orders) == 1
    assert report.any_votes == (400 * PAIR.curve()).epsilon(delta=1e-5)
    fixed = release_epsilon(
        GNMAX, private(agreeing(400)), delta=1e-5, order=8.0, rng=np.random.default_rng(0)
    )
    assert fixed.order == 8.0


def test_with_an_order_nothing_is_converted_at_any_other():
    """Where answers decide how many are asked, each order would spend delta once (Theorem 3a)."""
    for n, agreement, method in ((400, 2 / 3, "certificate"), (3, 0.0, "any votes")):
        report = release_epsilon(
            *(GNMAX, private(agreeing(n))),
            delta=1e-5,
            order=8.0,
            agreement=agreement,
            rng=np.random.default_rng(0),
        )
        assert (report.method, report.order) == (method, 8.0)
        at_8 = Curve((8.0,), (n * GNMAX.curve().rdp[ORDERS.index(8.0)],)).epsilon(1e-5)
        assert report.any_votes == pytest.approx(at_8, rel=1e-12)
        assert report.any_votes > (n * GNMAX.curve()).epsilon(1e-5)
        assert report.epsilon >= Curve((8.0,), (report.answers_rdp,)).epsilon(1e-5)


def test_what_is_rounded_is_paid_for_within_delta():
    """A smooth bound is computed in float64; a certificate is a whole number, drawn exactly."""
    counts, seed = agreeing(400), np.random.default_rng(3)
    report = release_epsilon(GNMAX, private(counts), delta=1e-5, rng=seed)
    assert report.method == "certificate"
    assert report.epsilon == Curve((report.order,), (report.answers_rdp + report.release_rdp,)).epsilon(1e-5)
    many = private(agreeing(800))  # so many that what is published stays below the price for any votes
    report = release_epsilon(GNMAX, many, delta=1e-5, method="smooth", rng=seed)
    free = Curve((report.order,), (report.answers_rdp + report.release_rdp,)).epsilon(1e-5)
    assert free < report.epsilon
    with pytest.raises(ValueError, match="too small for what is rounded"):
        release_epsilon(GNMAX, private(counts), delta=2.0**-38, method="smooth")


def test_epsilon_is_what_is_paid_for_or_that_for_any_votes():
    terms = _Terms(order=8.0, price=0.1, remainder=9e-6, ceiling=2.5, any_votes=3.0, hoped=1.0)
    plain = [Curve((8.0,), (bound + 0.1,)).epsilon(9e-6) for bound in (0.2, 0.7, 1.5)]
    assert plain[0] < 2.5 < plain[2] < 3.0
    assert [terms.epsilon(bound) for bound in (0.2, 0.7, 1.5)] == [plain[0], plain[1], 3.0]
    assert replace(terms, any_votes=1.0).epsilon(0.2) == 1.0


def test_the_rows_that_were_answered_are_the_ones_that_count():
    counts = agreeing(400, 5)
    torn = np.sort(counts, axis=1)[:, -1] < 200
    n_torn = int(torn.sum())
    sure = np.zeros(400, dtype=bool)
    sure[np.flatnonzero(~torn)[:n_torn]] = True
    publications = [
        release_epsilon(PAIR, private(counts), delta=1e-5, answered=mask, rng=np.random.default_rng(1))
        for mask in (sure, torn)
    ]
    assert publications[0].published < publications[1].published


def test_a_bound_beyond_what_is_paid_for_falls_back_to_any_votes():
    torn = np.tile([126, 124], (1000, 1))
    report = release_epsilon(GNMAX, private(torn), delta=1e-5, rng=np.random.default_rng(0), agreement=1.0)
    assert report.any_votes <= report.epsilon < 1.05 * report.any_votes


@pytest.mark.parametrize(
    ("mechanism", "options", "error", "says"),
    [
        (GNMAX, {"delta": 0.0}, ValueError, "delta"),
        (GNMAX, {"method": "guess"}, ValueError, "method must be one of"),
        (GNMAX, {"agreement": 2.0}, ValueError, "agreement"),
        (GNMAX, {"order": 8.1}, ValueError, "order"),
        (GNMAX, {"answered": [True, True]}, ValueError, "with a screen"),
        (PAIR, {}, ValueError, "answered is needed"),
        (PAIR, {"answered": [True]}, ValueError, r"bool of shape \(2,\)"),
        (PAIR, {"answered": [1, 0]}, ValueError, "bool"),
        (PAIR, {"answered": [True, True], "agreement": math.nan}, ValueError, "agreement must be"),
        ((GNMAX, GNMAX), {}, TypeError, "mechanism must be"),
        (3, {}, TypeError, "mechanism must be"),
        (Threshold(at=2, sigma=1.0), {"method": "smooth"}, TypeError, "Threshold.* offers no bound"),
    ],
)
def test_what_is_not_covered_is_refused(mechanism, options, error, says):
    with pytest.raises(error, match=says):
        release_epsilon(mechanism, private([[200, 40, 10], [90, 80, 80]]), **{"delta": 1e-5, **options})


def test_votes_that_are_not_private_or_not_ballots_are_refused():
    with pytest.raises(TypeError, match="votes must be Private"):
        release_epsilon(GNMAX, [[200, 50]], delta=1e-5)
    with pytest.raises(ValueError, match="whole ballots"):
        release_epsilon(GNMAX, private([[200, 50], [200, 49]]), delta=1e-5)
    twice = Private([[200, 50]] * 200, Adjacency(unit="row", at_most=2.0))
    with pytest.raises(ValueError, match="hides"):
        release_epsilon(GNMAX, twice, delta=1e-5, method="certificate")
    assert math.isfinite(release_epsilon(GNMAX, private([[200, 50]]), delta=1e-5).epsilon)


@pytest.mark.parametrize(
    "adjacency",
    [
        Adjacency(at_most=50.0),
        Adjacency.one_label(),
        Adjacency(noise_sigma=5.0),
        Adjacency(relation="add-or-remove"),
        Adjacency(relation="add-or-remove", sampling_rate=0.1),
        Adjacency.one_row(),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["auto", "certificate", "smooth"])
def test_votes_of_which_one_unit_changes_more_are_refused(adjacency, method):
    """Before, "auto" published 0.11 for votes of which one unit moves fifty."""
    with pytest.raises(ValueError, match="hides"):
        release_epsilon(GNMAX, Private([[240, 10]], adjacency), delta=1e-5, method=method)
