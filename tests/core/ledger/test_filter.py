"""The budget filter: what an adaptive adversary can reach under it, enumerated exactly."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from ostraka import Budget, BudgetExceeded, Confident, GNMax, Ledger, LNMax, Threshold
from ostraka.accounting import exact_curve
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import begins
from ostraka.core.ledger.budget import RenyiFilter, _log_weights, _stays_above
from ostraka.core.ledger.chain import to_curve
from ostraka.ledger import ChargeRequest, LedgerError

EPSILON, DELTA = 4.0, 0.01
FINITE = np.array(ORDERS[:-1])


def divergence(p, q):
    """Rényi divergence of every finite order, both directions, by its definition."""
    one_way = [
        np.logaddexp.reduce(FINITE[:, None] * np.log(a) + (1 - FINITE[:, None]) * np.log(b), axis=1)
        / (FINITE - 1)
        for a, b in ((p, q), (q, p))
    ]
    return np.maximum(*one_way)


def curve(rdp, pure=math.inf):
    return Curve(ORDERS, (*rdp, pure))


def coin(bias):
    """A question whose answer is 0 with probability ``bias`` under P, and 1 - ``bias`` under Q."""
    return np.array([bias, 1 - bias]), np.array([1 - bias, bias])


def revelation(p, log_ratio):
    """A question that seldom says anything, and then much."""
    q = p * math.exp(-log_ratio)
    return np.array([p, 1 - p]), np.array([q, 1 - q])


def naive(total):
    """Some order, chosen once the total is known."""
    return total.epsilon(delta=DELTA) <= EPSILON


def worst_case(fits, spent, log_ratio):
    """The most frequent revelation that still fits."""

    def left(log_p):
        return 1.0 if fits(curve(spent + divergence(*revelation(math.exp(log_p), log_ratio)))) else -1.0

    log_p = np.linspace(-14.0, -1e-4, 120)
    fitting = [x for x in log_p if left(x) > 0]
    if not fitting:
        return None
    if fitting[-1] == log_p[-1]:
        return math.exp(fitting[-1])
    low, high = fitting[-1], fitting[-1] + log_p[1] - log_p[0]
    for _ in range(30):
        low, high = ((low + high) / 2, high) if left((low + high) / 2) > 0 else (low, (low + high) / 2)
    return math.exp(low)


def leaked(fits, bias, log_ratios):
    """Hockey-stick divergence at EPSILON of: toss a coin; let its side choose the next question."""
    first = coin(bias)
    spent = divergence(*first)
    total = 0.0
    for side in (0, 1):
        worst = 0.0
        for log_ratio in log_ratios:
            p = worst_case(fits, spent, log_ratio)
            if p is not None:
                after = revelation(p, log_ratio)
                terms = first[0][side] * after[0] - math.exp(EPSILON) * first[1][side] * after[1]
                worst = max(worst, float(np.maximum(terms, 0).sum()))
        total += worst
    return total


RATIOS = (3.85, 4.1, 4.75)
MIXED = RenyiFilter(epsilon=EPSILON, delta=DELTA)
SINGLE = RenyiFilter(epsilon=EPSILON, delta=DELTA, orders=(4.0,))


def test_choosing_the_order_afterwards_breaks_the_promise():
    assert leaked(naive, 0.55, RATIOS) > 1.25 * DELTA


@pytest.mark.parametrize("rule", [MIXED, SINGLE], ids=["orders in shares", "one order"])
@pytest.mark.parametrize("bias", [0.55, 0.7])
def test_the_filter_keeps_it_in_the_same_game(rule, bias):
    assert leaked(rule.fits, bias, RATIOS) <= DELTA


def test_the_filter_is_not_safe_by_refusing_everything():
    assert leaked(MIXED.fits, 0.55, RATIOS) > 0.3 * DELTA


def test_one_order_alone_is_used_nearly_to_the_last():
    assert leaked(SINGLE.fits, 0.500001, (EPSILON + math.log(4 / 3),)) > 0.7 * DELTA


def worst_strategy(fits, questions, state, spent, depth):
    """Largest hockey-stick divergence any strategy reaches from a state, by trying every choice."""
    p, q = state
    best = max(p - math.exp(1.0) * q, 0.0)
    if depth == 0:
        return best
    for law_p, law_q in questions:
        after = spent + divergence(law_p, law_q)
        if fits(curve(after)):
            reached = sum(
                worst_strategy(fits, questions, (p * a, q * b), after, depth - 1)
                for a, b in zip(law_p, law_q, strict=True)
            )
            best = max(best, reached)
    return best


@pytest.mark.parametrize(
    "swapped",
    [
        (False, True),
        *(
            pytest.param(flags, marks=pytest.mark.slow)
            for flags in ((False, False), (True, False), (True, True))
        ),
    ],
)
def test_no_strategy_of_four_questions_exceeds_delta(swapped):
    sides = [coin(0.55), coin(0.64), revelation(0.02, 1.2), revelation(0.3, 0.35)]
    questions = [
        (b, a) if swap else (a, b) for (a, b), swap in zip(sides, (*swapped, False, True), strict=True)
    ]
    budget = RenyiFilter(epsilon=1.0, delta=0.05)
    assert worst_strategy(budget.fits, questions, (1.0, 1.0), np.zeros(len(FINITE)), 4) <= 0.05


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (2.0, 1e-5), (8.0, 1e-3)])
def test_the_shares_of_the_orders_add_up_to_one(epsilon, delta):
    weights = np.exp(_log_weights(epsilon, delta, ORDERS[:-1]))
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert weights.max() > 0.05


def test_the_inequality_is_decided_as_a_dense_search_decides_it():
    rng = np.random.default_rng(3)
    t = np.geomspace(1e-9, 200, 200_001)
    decided = []
    for _ in range(60):
        slopes = np.sort(rng.uniform(0.05, 40, rng.integers(1, 6)))
        heights = rng.uniform(-9, -1, len(slopes))
        gap = (np.logaddexp.reduce(heights[:, None] + slopes[:, None] * t) - np.log(-np.expm1(-t))).min()
        assert _stays_above(slopes, heights + (1e-6 - gap))
        assert not _stays_above(slopes, heights - (1e-6 + gap))
        decided.append(gap >= 0)
        assert _stays_above(slopes, heights) == decided[-1]
    assert 5 < sum(decided) < 55


def test_one_order_is_the_known_conversion_turned_round():
    # sup over l of (1 - e^(epsilon - l)) e^(-(a-1) l) has a closed form: Canonne et al. 2020, Prop. 12
    order, share = 8.0, 0.75 * 1e-5
    limit = brentq(
        lambda rho: rho + math.log1p(-1 / order) - (math.log(share) + math.log(order)) / (order - 1) - 2.0,
        0,
        2,
    )
    rule = RenyiFilter(epsilon=2.0, delta=1e-5, orders=(order,))
    price = Curve((order,), (limit,))
    assert rule.fits(replace(price, rdp=(limit * (1 - 1e-6),)))
    assert not rule.fits(replace(price, rdp=(limit * (1 + 1e-6),)))


def most(fits):
    low, high = 0, 1
    while fits(high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@pytest.mark.parametrize("mechanism", [GNMax(sigma=40.0), LNMax(scale=100.0)])
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-5), (4.0, 1e-6)])
def test_freedom_costs_less_than_a_tenth_of_the_answers(mechanism, epsilon, delta):
    price = replace(mechanism.curve(), laws=None)  # by Rényi: of exact composition it knows nothing
    planned = most(lambda n: (n * price).epsilon(delta=delta) <= epsilon)
    free = most(lambda n: RenyiFilter(epsilon=epsilon, delta=delta).fits(n * price))
    assert 0.9 * planned < free < planned


def test_pure_differential_privacy_is_counted_without_loss():
    rule = RenyiFilter(epsilon=1.0, delta=1e-9)
    assert rule.fits(curve([math.inf] * len(FINITE), pure=1.0))
    assert not rule.fits(curve([math.inf] * len(FINITE), pure=1.0 + 1e-12))


def test_gaussians_are_counted_exactly_within_their_share():
    rule = RenyiFilter(epsilon=1.0, delta=1e-5)
    alone = Curve((2.0,), (math.inf,))
    limit = brentq(lambda m: replace(alone, mu_squared=m * m).delta(epsilon=1.0) - 0.15 * 1e-5, 1e-3, 2)
    assert rule.fits(replace(alone, mu_squared=(limit * (1 - 1e-6)) ** 2))
    assert not rule.fits(replace(alone, mu_squared=(limit * (1 + 1e-6)) ** 2))


def test_noise_in_floating_point_has_its_own_share():
    rule = RenyiFilter(epsilon=1.0, delta=1e-6)
    limit = 0.10 * 1e-6 / (1 + math.e)
    assert rule.fits(replace(Curve.zero(), slack=0.999 * limit))
    assert not rule.fits(replace(Curve.zero(), slack=1.001 * limit))


def test_refusals_never_depend_on_private_data():
    owner = exact_curve(GNMax(sigma=40.0), [[200, 50]])
    with pytest.raises(ValueError, match="publishable"):
        MIXED.fits(owner)


def test_a_total_without_the_filters_orders_does_not_fit():
    assert not SINGLE.fits(Curve((3.0,), (1e-9,)))
    assert SINGLE.fits(Curve((4.0,), (1e-9,)))


@pytest.mark.parametrize("orders", [(), (1.0,), (math.inf,), (math.nan,)])
def test_orders_must_be_finite_and_above_one(orders):
    with pytest.raises(ValueError, match="orders must"):
        RenyiFilter(epsilon=1.0, delta=1e-5, orders=orders)


class Free:
    """Costs nothing."""

    def curve(self):
        return Curve.zero()


class TestInALedger:
    """``Budget(adaptive=True)``, the default, refuses by the filter."""

    def charged(self, path, budget, *, uses):
        with Ledger(path, budget=budget) as ledger:
            ledger.charge(GNMax(sigma=40.0), uses=uses, unit="row", simulation=False)
            return sum(entry.uses for entry in ledger.entries())

    def test_it_refuses_what_a_fixed_plan_may_still_ask(self):
        fixed = Budget(epsilon=2.0, delta=1e-5, adaptive=False)
        adaptive = Budget(epsilon=2.0, delta=1e-5)
        assert self.charged(":memory:", fixed, uses=310) == 310
        assert self.charged(":memory:", adaptive, uses=300) == 300
        with pytest.raises(BudgetExceeded, match="price of choosing questions"):
            self.charged(":memory:", adaptive, uses=310)

    def test_what_is_charged_first_decides_the_rule(self):
        gaussian, laplace = GNMax(sigma=40.0), LNMax(scale=100.0)
        budget = Budget(epsilon=2.0, delta=1e-5, adaptive=True)
        renyi = RenyiFilter(epsilon=2.0, delta=1e-5)
        little = RenyiFilter(epsilon=2.0, delta=0.1 * 1e-5)
        with Ledger(":memory:", budget=budget) as ledger:
            ledger.charge(laplace, uses=1, unit="row", simulation=False)
            uses_left = ledger.uses_left(gaussian)
            fit = [renyi.fits(laplace.curve() + n * gaussian.curve()) for n in (uses_left, uses_left + 1)]
            assert fit == [True, False]
        with Ledger(":memory:", budget=budget) as ledger:
            ledger.charge(gaussian, uses=1, unit="row", simulation=False)
            uses_left = ledger.uses_left(laplace)
            fit = [little.fits(gaussian.curve() + n * laplace.curve()) for n in (uses_left, uses_left + 1)]
            assert fit == [True, False]
            assert renyi.fits(gaussian.curve() + (uses_left + 1) * laplace.curve())

    @pytest.mark.parametrize(
        ("first", "uses", "limit"),
        [
            (LNMax(scale=100.0), 1, 248),  # what costs something decides
            (LNMax(scale=100.0), 0, 308),
            (Free(), 1, 308),
        ],
    )
    def test_the_rule_outlives_the_process_and_what_is_free_decides_nothing(
        self, tmp_path, first, uses, limit
    ):
        path, gaussian = tmp_path / "ledger.sqlite", GNMax(sigma=40.0)
        with Ledger(path, budget=Budget(epsilon=2.0, delta=1e-5, adaptive=True)) as ledger:
            ledger.charge(first, uses=uses, unit="row", simulation=False)
            uses_left = [ledger.uses_left(gaussian)]
        with Ledger(path) as ledger:
            uses_left.append(ledger.uses_left(gaussian))
            ledger.charge(gaussian, uses=2, unit="row", simulation=False)
        with Ledger(path) as ledger:
            assert [*uses_left, ledger.uses_left(gaussian)] == [limit, limit, limit - 2]

    @pytest.mark.parametrize("argmax", [GNMax(sigma=40.0), GNMax(sigma=3.0), LNMax(scale=40.0)])
    def test_answers_never_decide_the_rule(self, argmax):
        combined = Confident(screen=Threshold(at=5, sigma=90.0), argmax=argmax)
        for paid in (combined, combined.screen):
            with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5, adaptive=True)) as ledger:
                ledger.grant("ada", budget_epsilon=2.0)
                request = ChargeRequest(
                    account="ada", key="1", digest="aa", cost=paid, reserve=combined, answer=0
                )
                ledger.charge_each([request], unit="row")
                first = ledger._history._first
                laws = to_curve(first.cost, first.unit, first.orders).laws
                assert begins(laws) == (argmax == GNMax(sigma=40.0))

    def test_the_file_remembers_it_and_a_ledger_of_before_keeps_its_rule(self, tmp_path):
        path = tmp_path / "ledger.sqlite"
        fixed, adaptive = (Budget(epsilon=2.0, delta=1e-5, adaptive=rule) for rule in (False, True))
        self.charged(path, Budget(epsilon=2.0, delta=1e-5), uses=1)
        with Ledger(path) as ledger:
            assert ledger.budget.adaptive
        with pytest.raises(LedgerError, match="adaptive=True"):
            Ledger(path, budget=fixed)
        before = tmp_path / "before.sqlite"
        self.charged(before, fixed, uses=309)
        assert self.charged(before, Budget(epsilon=2.0, delta=1e-5), uses=1) == 310
        for changed_budget, says in (
            (adaptive, "adaptive=False"),
            (Budget(epsilon=3.0, delta=1e-5), "epsilon=3"),
        ):
            with pytest.raises(LedgerError, match=says):
                Ledger(before, budget=changed_budget)
