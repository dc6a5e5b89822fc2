"""Exact costs against brute force: every neighbour one by one, in multi-precision arithmetic or in logs."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.accounting import exact_curve
from ostraka.core.accounting.bounds import exact_rdp
from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms.screen import AgainstGuesses

SOME_ORDERS = (1.125, 2.0, 3.0, 8.0, 64.0, 500.0, 1536.0, math.inf)
ADDED = "1e-26"  # what the rounding of a probability near 1 may add to a divergence: it only ever adds
LOST = "1e-190"  # and divergences below this may come out as 0


def neighbours(counts, relation="replace-one"):
    """Every histogram one ballot away: a class with a vote gives it to another, or to nobody."""
    counts = np.asarray(counts, dtype=float)
    unit_votes = np.eye(counts.size)
    nobody = np.zeros(counts.size)
    for i in range(counts.size):
        gives = counts[i] >= 1
        if relation == "add-or-remove":
            yield unit_votes[i] + nobody
            if gives:
                yield nobody - unit_votes[i]
        elif gives:
            yield from (unit_votes[j] - unit_votes[i] for j in range(counts.size) if j != i)


def divergence(log_p, log_q, order):
    """Rényi divergence; as a sum in which no term is negative, so that small ones keep their digits."""
    if order == math.inf:
        return max(a - b for a, b in zip(log_p, log_q, strict=True))
    order = mp.mpf(order)
    ratios = [(b, a - b) for a, b in zip(log_p, log_q, strict=True)]
    excess = (mp.exp(b) * (mp.expm1(order * l) - order * mp.expm1(l)) for b, l in ratios)
    return mp.log1p(mp.fsum(excess)) / (order - 1)


def worst(law, counts, orders, relation="replace-one"):
    """Largest divergence to or from any neighbour, at every order. ``law``: move -> log probabilities."""
    base = law(np.zeros(len(counts)))
    neighbour = [law(move) for move in neighbours(counts, relation)]
    ordered = [(base, p) for p in neighbour] + [(p, base) for p in neighbour]
    return [max(divergence(p, q, order) for p, q in ordered) for order in orders]


def assert_exact(got, wanted, *, relative=1e-9):
    for g, want in zip(got, wanted, strict=True):
        assert g >= want * (1 - mp.mpf(relative)) - mp.mpf(LOST)
        assert g <= want * (1 + mp.mpf(relative)) + mp.mpf(ADDED)


def two_class_logs(kind, gap, scale):
    """Log probabilities of two classes a ``gap`` apart, both tails exact."""
    distance = abs(mp.mpf(gap)) / scale
    tail = mp.erfc(distance / 2) / 2 if kind == "gaussian" else (2 + distance) / 4 * mp.exp(-distance)
    logs = [mp.log1p(-tail), mp.log(tail)]
    return logs if gap >= 0 else logs[::-1]


MECHANISMS = {"gaussian": lambda scale: GNMax(sigma=scale), "laplace": lambda scale: LNMax(scale=scale)}
both_noises = pytest.mark.parametrize("kind", MECHANISMS)


@both_noises
@pytest.mark.parametrize("scale", [0.01, 0.05, 0.1, 0.126, 0.15, 0.5, 2.0, 20.0, 40.0, 400.0])
def test_two_classes_agree_with_the_closed_form_from_a_tie_to_certainty(kind, scale):
    rows = [[1, 1], [0, 2], [3, 2], [10, 0], [30, 1], [60, 50], [250, 0], [1000, 3]]
    got = exact_rdp(MECHANISMS[kind](scale), rows, orders=SOME_ORDERS)
    with mp.workdps(50):
        for row, costs in zip(rows, got, strict=True):

            def law(move, row=row):
                gap = int(row[0] - row[1] + move[0] - move[1])
                return two_class_logs(kind, gap, mp.mpf(scale))

            assert_exact(costs, worst(law, row, SOME_ORDERS), relative=2e-10)


@pytest.mark.parametrize("relation", [pytest.param("replace-one", marks=pytest.mark.slow), "add-or-remove"])
@pytest.mark.parametrize(
    ("kind", "counts", "scale"),
    [
        pytest.param("gaussian", [7, 4, 2], 4.0, marks=pytest.mark.slow),
        ("gaussian", [2, 2, 1], 0.5),
        ("laplace", [20, 1, 0], 2.0),
        ("laplace", [6, 6, 6, 0], 5.0),
        ("laplace", [2, 1, 0], 0.5),
    ],
)
def test_more_classes_agree_with_every_neighbour_in_multi_precision(
    kind, counts, scale, relation, oracle_law
):
    got = exact_rdp(MECHANISMS[kind](scale), [counts], relation=relation, orders=SOME_ORDERS)[0]
    with mp.workdps(17):

        def law(move):
            return [mp.log(p) for p in oracle_law(np.add(counts, move).tolist(), kind, scale)]

        assert_exact(got, worst(law, counts, SOME_ORDERS, relation))


@pytest.fixture(scope="module")
def unanimous():
    """What the fourteenth SVHN histogram of arXiv:2209.10732 costs at sigma = 20, and the histogram."""
    counts = [226, 24] + [0] * 8
    return exact_rdp(GNMax(sigma=20.0), [counts], orders=(8.0,))[0], counts


def test_a_nearly_unanimous_vote_costs_3_5e_12(unanimous):
    # the reverse direction: forward it is 3.083e-12
    assert unanimous[0][0] == pytest.approx(3.545e-12, rel=2e-4, abs=0)


@pytest.mark.slow  # quick: the one above
def test_a_nearly_unanimous_vote_is_exact_to_many_digits(oracle_law, unanimous):
    got, counts = unanimous
    with mp.workdps(22):

        def law(move):
            return [mp.log(p) for p in oracle_law(np.add(counts, move).tolist(), "gaussian", 20)]

        moves = ([-1, 1], [-1, 0, 1], [1, -1], [0, -1, 1])  # all others are these with the zeros renamed
        base, neighbour = law(np.zeros(10)), [law(np.pad(move, (0, 10 - len(move)))) for move in moves]
        wanted = max(divergence(p, q, 8.0) for t in neighbour for p, q in ((base, t), (t, base)))
        assert_exact(got, [wanted], relative=1e-10)


def log_law(mechanism, counts, shown_votes):
    """Log probabilities of every outcome, from the outcome map."""
    if not isinstance(mechanism, Confident):
        return mechanism.log_outcomes(shown_votes if isinstance(mechanism, Threshold) else counts)
    screen, argmax = mechanism.screen, mechanism.argmax
    passes, stops = screen.log_outcomes(shown_votes).T
    return np.concatenate([argmax.log_outcomes(counts) + passes[:, None], stops[:, None]], axis=1)


def brute_force(mechanism, counts, orders, *, relation="replace-one", surprise=None):
    """One query: the law of every neighbour, both directions, in logs."""
    counts = np.asarray(counts, dtype=float)
    shown_votes = counts if surprise is None else np.asarray(surprise, dtype=float)
    moves = np.array(list(neighbours(counts, relation)))
    base = log_law(mechanism, counts[None], shown_votes[None])
    neighbour = log_law(mechanism, counts + moves, shown_votes + moves)
    out = []
    for order in orders:
        ordered = []
        for p, q in ((base, neighbour), (neighbour, base)):
            lam = p - q
            if order == math.inf:
                ordered.append(lam.max())
            elif (order * lam).max() < 300:
                excess = np.exp(q) * (np.expm1(order * lam) - order * np.expm1(lam))
                ordered.append(np.log1p(excess.sum(axis=1)).max() / (order - 1))
            else:
                ordered.append(logsumexp(order * p + (1 - order) * q, axis=1).max() / (order - 1))
        out.append(max(ordered))
    return np.array(out)


ARGMAXES = [GNMax(sigma=0.5), GNMax(sigma=3.0), GNMax(sigma=40.0), LNMax(scale=0.5), LNMax(scale=7.0)]
SCREENS = [Threshold(at=at, sigma=s, noise=n) for n in ("largest", "every") for at, s in ((12, 1.5), (20, 9))]
PAIRS = [
    Confident(screen=screen, argmax=argmax)
    for screen in SCREENS
    for argmax in (GNMax(sigma=3.0), GNMax(sigma=0.5))
]


def histograms(seed, n, n_classes):
    """Clear and unclear votes, with ties and empty classes among them."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(25, rng.dirichlet(np.full(n_classes, 0.4), size=n))


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove"])
@pytest.mark.parametrize("mechanism", [*ARGMAXES, *SCREENS, *PAIRS], ids=str)
def test_every_mechanism_agrees_with_brute_force_over_its_outcome_law(mechanism, relation):
    rows = np.concatenate([histograms(1, 12, 4), np.array([[25, 0, 0, 0], [7, 6, 6, 6], [5, 5, 5, 5]])])
    got = exact_rdp(mechanism, rows, relation=relation, orders=SOME_ORDERS)
    for row, costs in zip(rows, got, strict=True):
        wanted = brute_force(mechanism, row, SOME_ORDERS, relation=relation)
        np.testing.assert_allclose(costs, wanted, rtol=1e-8, atol=1e-13)


@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_interactive_gnmax_is_one_law_whose_screen_sees_the_surprise(screen):
    rows = histograms(2, 8, 3)
    guesses = np.random.default_rng(3).dirichlet([1, 1, 1], size=8)
    gate = AgainstGuesses(mechanism=screen, guesses=guesses, n_teachers=25)
    pair, surprise = Confident(screen=screen, argmax=GNMax(sigma=3.0)), gate.difference(rows)
    got = exact_rdp(Confident(screen=gate, argmax=GNMax(sigma=3.0)), rows, orders=SOME_ORDERS)
    for row, odd, costs in zip(rows, surprise, got, strict=True):
        wanted = brute_force(pair, row, SOME_ORDERS, surprise=odd)
        np.testing.assert_allclose(costs, wanted, rtol=1e-8, atol=1e-13)
    assert not np.allclose(got, exact_rdp(pair, rows, orders=SOME_ORDERS))


@pytest.mark.parametrize("noise", ["largest", "every"])
@pytest.mark.parametrize("sigma", [1.0, 4.0, 40.0])
def test_a_screen_far_from_its_threshold_agrees_with_multi_precision(noise, sigma):
    counts = [10, 3]
    for gap in (-12, -5, 0, 8, 9.5, 12, 20, 37, 40, 60):
        at = round(gap * sigma) + 10
        got = exact_rdp(Threshold(at=at, sigma=sigma, noise=noise), [counts], orders=SOME_ORDERS)[0]
        with mp.workdps(40):

            def law(move, at=at):
                z = [(mp.mpf(at) - int(c)) / (sigma * mp.sqrt(2)) for c in np.add(counts, move)]
                z = [min(z)] if noise == "largest" else z
                stops = mp.fsum(mp.log1p(-mp.erfc(x) / 2) if x > 0 else mp.log(mp.erfc(-x) / 2) for x in z)
                return [mp.log(-mp.expm1(stops)) if stops > -1 else mp.log1p(-mp.exp(stops)), stops]

            assert_exact(got, worst(law, counts, SOME_ORDERS))


@both_noises
def test_costs_rise_with_the_order_up_to_pure_privacy(kind):
    mechanism = MECHANISMS[kind](5.0)
    costs = exact_rdp(mechanism, histograms(4, 30, 5))
    assert (np.diff(costs, axis=1) >= -1e-12 * costs[:, 1:]).all()
    # D_inf - D_order <= log(1 / P) / (order - 1) for the outcome P that attains it
    rarest = -mechanism.log_outcomes(histograms(4, 30, 5)).min(axis=1) + 2 * costs[:, -1]
    assert (costs[:, -1] - costs[:, -2] <= rarest / (ORDERS[-2] - 1)).all()


def test_the_limit_of_large_orders_of_lnmax_is_pure_privacy_2_over_scale():
    costs = exact_rdp(LNMax(scale=4.0), np.concatenate([histograms(5, 30, 3), [[200, 100, 0]]]))
    assert (costs <= 2 / 4.0 * (1 + 1e-12)).all()
    assert costs[-1, -1] == pytest.approx(0.5, rel=2e-2)  # a clear winner: the loser's chance moves by e^0.5


@pytest.mark.parametrize(
    "mechanism", [GNMax(sigma=4.0), Confident(screen=SCREENS[0], argmax=GNMax(sigma=4.0))], ids=str
)
def test_classes_with_equal_counts_are_several_classes(mechanism):
    equal, nearly = exact_rdp(mechanism, [[9, 8, 8, 0, 0], [9, 8, 8 - 1e-9, 0, 1e-9]], orders=SOME_ORDERS)
    np.testing.assert_allclose(nearly, equal, rtol=1e-7)
    merged = exact_rdp(mechanism, [[9, 8, 0]], orders=SOME_ORDERS)[0]
    assert (np.abs(merged / equal - 1) > 1e-3).any()


@given(row=st.lists(st.integers(0, 40), min_size=3, max_size=6), seed=st.integers(0, 99))
def test_classes_have_no_names(row, seed):
    order = np.random.default_rng(seed).permutation(len(row))
    pair = Confident(screen=Threshold(at=20, sigma=5.0), argmax=GNMax(sigma=6.0))
    first, second = exact_rdp(pair, [row, np.array(row)[order]])
    np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-30)


def test_a_hundred_classes_agree_with_brute_force():
    row = np.random.default_rng(6).multinomial(400, np.full(100, 0.01))
    got = exact_rdp(GNMax(sigma=8.0), [row], orders=(2.0, 32.0))[0]
    np.testing.assert_allclose(got, brute_force(GNMax(sigma=8.0), row, (2.0, 32.0)), rtol=1e-7)


def test_no_ballot_to_move_costs_nothing():
    assert (exact_rdp(GNMax(sigma=2.0), [[0, 0, 0]]) == 0).all()
    assert (exact_rdp(GNMax(sigma=2.0), [[0, 0, 0]], relation="add-or-remove") > 0).all()


def test_published_histograms_cost_what_they_did_before(data_dir):
    """Regression: our own figures, first computed with numpy on a dense grid."""
    votes = np.load(data_dir / "pate_votes" / "mnist_svhn_30_samples.npz")
    argmax = GNMax(sigma=40.0)
    mnist, svhn = exact_curve(argmax, votes["mnist_counts"]), exact_curve(argmax, votes["svhn_counts"])
    assert (100 * mnist).epsilon(delta=1e-5) == pytest.approx(2.14, abs=5e-3)
    assert (100 * svhn).epsilon(delta=1e-6) == pytest.approx(1.65, abs=5e-3)
    assert (mnist + svhn).epsilon(delta=1e-5) == pytest.approx(0.2990, abs=1e-4)
