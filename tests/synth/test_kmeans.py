import math

import numpy as np
import pytest

from ostraka import Adjacency, Private
from ostraka.core.mechanisms import sums
from ostraka.synth import PrivateKMeans
from ostraka.synth import clusters as _clusters
from ostraka.synth import fitting as _fitting
from ostraka.synth.clusters import (
    Found,
    NoisyLloyd,
    denoised,
    noisy_clip,
    random_features,
    refilled,
)

MIDDLES = np.array([[0.2, 0.2, 0.5], [0.8, 0.2, 0.5], [0.5, 0.9, 0.1]])


def blobs(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 3, n)
    return np.clip(MIDDLES[which] + rng.normal(0, 0.05, (n, 3)), 0, 1), which


def fitted(X, y=None, *, seed=1, fit=None, **settings):
    return PrivateKMeans(**{"n_clusters": 3, "epsilon": 1.0, **settings}).fit(
        X, y, rng=np.random.default_rng(seed), **(fit or {})
    )


def matched(centres):
    """How far each middle is from the nearest centre."""
    return np.linalg.norm(centres[:, None] - MIDDLES, axis=2).min(axis=0)


@pytest.mark.parametrize("kernel", ["plain", "rbf"])
def test_clusters_are_found_from_public_rows(kernel):
    X, which = blobs()
    model = fitted(X, kernel=kernel, start=MIDDLES + 0.05, gamma=4.0)
    assert matched(model.cluster_centers_).max() < 0.05
    predicted = model.predict(X)
    assert np.mean(predicted == which) > 0.97
    assert model.cluster_sizes_ == pytest.approx(np.bincount(which), abs=300)


def test_clusters_are_found_without_a_public_row():
    assert matched(fitted(blobs()[0], n_clusters=6, n_iterations=6).cluster_centers_).max() < 0.12


@pytest.mark.parametrize("kernel", ["plain", "rbf"])
def test_means_of_classes_are_a_start(kernel):
    X, which = blobs()
    model = fitted(X, which, start="classes", kernel=kernel, gamma=4.0, fit={"classes": [0, 1, 2]})
    assert matched(model.cluster_centers_).max() < 0.05


def test_each_class_has_clusters_of_its_own():
    X, which = blobs()
    labels = np.array(["a", "b", "c"])[which]
    model = fitted(X, labels, n_clusters=2, epsilon=4.0, fit={"classes": ["a", "b", "c"]})
    assert model.cluster_classes_.tolist() == ["a", "a", "b", "b", "c", "c"]
    rows, labels_drawn = model.sample(3000, random_state=0)
    for k, name in enumerate("abc"):
        np.testing.assert_allclose(rows[labels_drawn == name].mean(axis=0), MIDDLES[k], atol=0.03)


def test_binary_rows_are_drawn_as_binary_rows():
    X = (blobs()[0] > 0.5).astype(float)
    rows, _ = fitted(X, binary=True).sample(2000, random_state=0)
    assert set(np.unique(rows)) <= {0.0, 1.0}
    np.testing.assert_allclose(rows.mean(axis=0), X.mean(axis=0), atol=0.08)


def lloyd(**settings):
    fixed = {"n_features": 3, "n_clusters": 2, "n_iterations": 2, "sigma": 5.0, "longest": 2.0}
    return NoisyLloyd(**fixed | settings)


class TestThePrice:
    @pytest.mark.parametrize("kernel", ["plain", "rbf"])
    @pytest.mark.parametrize("start", ["split", "public"])
    def test_every_release_of_noise_is_paid_for(self, kernel, start, monkeypatch):
        """The sums that are released, with their noise, are those of the curve."""
        released = []
        plain = sums.with_noise

        def counted(totals, *, sigma, rng):
            released.append(1 / sigma**2)
            return plain(totals, sigma=sigma, rng=rng)

        monkeypatch.setattr(sums, "with_noise", counted)
        centres = ((0.1, 0.1, 0.1), (0.9, 0.9, 0.9)) if start == "public" else ()
        mechanism = lloyd(
            kernel=kernel, start=start, centres=centres, sigma_start=7.0, sigma_norms=11.0, sigma_rows=13.0
        )
        X, _ = blobs(100)
        private = _fitting.private_rows(X.astype(np.float32), np.zeros(100, dtype=int), None, rng=None)
        mechanism.release(private, rng=np.random.default_rng(0))
        assert mechanism.curve().mu_squared == pytest.approx(sum(released), rel=0.01)
        assert mechanism.curve().mu_squared >= sum(released)

    def test_the_sum_of_blocks_is_exact_in_single_precision(self):
        rows = np.full((20_000, 3), 0.57)
        summed = _clusters.Summed(rows, np.ones(len(rows)), sigma=20.0)
        assert summed.grid.dtype == np.float32
        found = summed.release(np.zeros(len(rows), dtype=int), 1, rng=np.random.default_rng(0))
        again = _clusters.Summed(rows, np.ones(len(rows)), sigma=20.0)
        again.grid = again.grid.astype(np.float64)
        exact = again.release(np.zeros(len(rows), dtype=int), 1, rng=np.random.default_rng(0))
        np.testing.assert_array_equal(found.sums, exact.sums)

    def test_the_sizes_are_noisy(self):
        """The thesis releases exact sizes: two runs would then agree."""
        X, _ = blobs(1000)
        first, second = (fitted(X, start=MIDDLES, seed=seed).cluster_sizes_ for seed in (1, 2))
        assert (first != second).all()
        noise = _clusters.size_noise(fitted(X, start=MIDDLES).mechanism_.sigma, 3)
        assert abs(first.sum() - 1000) < 8 * noise * math.sqrt(3)


def test_paired_features_have_length_one_and_those_of_the_thesis_do_not():
    """Theorem 3 of the thesis bounds the mean of the length; one row reaches the square root of 2."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    paired = _clusters.random_features(X, n_components=50, gamma=0.5, seed=1)
    np.testing.assert_allclose(np.linalg.norm(paired, axis=1), 1.0, atol=1e-6)
    w, b = rng.normal(size=(5, 4)), rng.uniform(0, 2 * math.pi, 4)
    lengths = np.linalg.norm(math.sqrt(2 / 4) * np.cos(X @ w + b), axis=1)
    assert np.mean(lengths**2) == pytest.approx(1.0, abs=0.05)
    assert 1.3 < lengths.max() <= math.sqrt(2)


def test_inner_products_of_features_are_the_kernel():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    features = _clusters.random_features(X, n_components=20_000, gamma=0.3, seed=1)
    apart = ((X[:, None] - X) ** 2).sum(axis=2)
    np.testing.assert_allclose(features @ features.T, np.exp(-0.3 * apart), atol=0.05)


def test_a_noisy_table_of_low_rank_is_nearer_to_the_truth_after_shrinking():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 300)) * 2
    noisy = truth + rng.normal(size=truth.shape)
    assert np.linalg.norm(_clusters.denoised(noisy, 1.0) - truth) < 0.5 * np.linalg.norm(noisy - truth)
    assert not _clusters.denoised(rng.normal(size=(40, 300)), 1.1).any()


def test_the_clip_is_near_the_wanted_quantile_and_noisy():
    X = np.random.default_rng(0).normal(size=(5000, 10)) / 10
    mechanism = lloyd(n_features=10, sigma_norms=5.0)
    clip = mechanism._clip(X, np.ones(len(X)), np.random.default_rng(0))
    assert np.mean(np.linalg.norm(X, axis=1) <= clip) == pytest.approx(0.75, abs=0.05)
    shares = np.random.default_rng(1).choice([1.0, 0.25], 5000)
    for scale in (1e-9, 1.0, 3.0, 1e6):  # hardly any noise: the end of a bin, and of the last one at most
        for longest in (1.0, 7.0):
            got = noisy_clip(scale * X, shares, longest=longest, sigma=1e-3, rng=np.random.default_rng(0))
            assert got == pytest.approx(quantile_clip(scale * X, shares, longest))


class TestPersons:
    def test_shares_of_a_person_add_up_to_one_at_most(self):
        groups = np.repeat(np.arange(4), [1, 3, 8, 10_000])
        X = np.arange(len(groups), dtype=np.float32)[:, None]
        private = _fitting.private_rows(X, np.zeros(len(groups), dtype=int), groups, rng=None)
        rows = private.open()
        totals = np.bincount(groups[rows[:, 0].astype(int)], rows[:, -1])
        assert totals.max() <= 1
        assert totals.min() > 0.999
        assert np.bincount(groups[rows[:, 0].astype(int)]).max() == 8
        assert private.adjacency.unit == "person"

    @pytest.mark.parametrize("spellings", [["Jos\u00e9", "Jose\u0301"], ["7", "7.0"], ["ann", " ann "]])
    def test_two_spellings_of_a_person_share_one_weight(self, spellings):
        groups = np.array(spellings * 4 + ["another"])
        private = _fitting.private_rows(np.zeros((9, 1)), np.zeros(9, dtype=int), groups, rng=None)
        assert private.open()[:, -1].tolist() == [1 / 8] * 8 + [1]

    @pytest.mark.parametrize("nobody", [None, float("nan"), ""])
    def test_rows_without_a_person_are_refused(self, nobody):
        groups = np.array(["ann", "ben", nobody], dtype=object)
        with pytest.raises(ValueError, match="every row must name its person"):
            _fitting.rows_of_persons(groups, 3, rng=None)

    def test_a_seed_repeats_which_rows_of_a_person_are_used(self):
        groups = np.zeros(1000, dtype=int)
        first, second = (
            _fitting.rows_of_persons(groups, 1000, rng=np.random.default_rng(3)).nonzero()[0] for _ in "ab"
        )
        assert (first == second).all()
        fresh = [_fitting.rows_of_persons(groups, 1000, rng=None).nonzero()[0] for _ in "ab"]
        assert (fresh[0] != fresh[1]).any()  # alike once in 10^19


@pytest.mark.parametrize(
    ("settings", "rows", "words"),
    [
        ({"epsilon": 0.0}, None, "epsilon must"),
        ({"epsilon": 1e-12}, None, "epsilon must be larger"),
        ({"n_clusters": 0}, None, "n_clusters must"),
        ({"n_iterations": 0}, None, "n_iterations must"),
        ({"kernel": "poly"}, None, "kernel must be one of"),
        ({"start": "best"}, None, "start must be one of"),
        ({"start": [[0.1, 0.2, 0.3]]}, None, "centres must be 3 public rows"),
        ({"kernel": "rbf", "n_components": 7}, None, "n_components must be even"),
        ({}, [[1.0, math.nan, 0.0]], "must be finite"),
        ({}, [["12345", "secret", "x"]], "must be a table of numbers"),
        ({}, np.zeros((0, 3)), "must be a table"),
        ({}, np.zeros(5), "must be a table"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(settings, rows, words, uncharged):
    with uncharged(words) as ledger:
        fitted(blobs(20)[0] if rows is None else rows, fit={"ledger": ledger}, **settings)


@pytest.mark.parametrize(
    ("y", "fit", "words"),
    [
        ([0, 1, 2], {}, "classes must be given"),
        ([0, 1, 77], {"classes": [0, 1]}, "declared classes only"),
        ([0, 1], {"classes": [0, 1]}, "one label for each of"),
        ([0, 1, 1], {"classes": [0, 0]}, "different classes"),
        (None, {"groups": [1]}, "groups must be one a row"),
    ],
)
def test_labels_and_groups_are_checked_and_no_label_is_shown(y, fit, words):
    with pytest.raises(ValueError, match=words) as caught:
        fitted(blobs(3)[0], y, fit=fit)
    assert "77" not in str(caught.value)


def test_constant_rows_and_one_class_are_clusters_too():
    model = fitted(np.ones((2000, 2)), np.zeros(2000), n_clusters=2, fit={"classes": [0]})
    assert np.abs(model.sample(500, random_state=0)[0] - 1).mean() < 0.2


def test_neither_the_rows_nor_what_they_are_assigned_to_is_kept():
    X, _ = blobs(400)
    for value in vars(fitted(X)).values():
        assert not (isinstance(value, np.ndarray) and len(value) == 400)


def test_a_mechanism_refuses_rows_with_another_promise():
    X = np.zeros((5, 5))
    with pytest.raises(ValueError, match="class from 0"):
        lloyd().uses(Private(X + 7, Adjacency(moves="row", relation="add-or-remove")))


def quantile_clip(rows, shares, longest):
    """The end of the first of a hundred bins of lengths below which three quarters of the rows lie."""
    lengths = np.linalg.norm(rows, axis=1)
    for end in np.arange(1, 100) * longest / 100:
        if shares[lengths < end].sum() >= 0.75 * shares.sum():
            return end
    return longest


def shortened(rows):
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]


def means_of(rows, shares, member, n):
    return np.array(
        [
            (rows * shares[:, None])[member == k].sum(axis=0) / max(shares[member == k].sum(), 1)
            for k in range(n)
        ]
    )


def of_their_class(rows, centres, labels, clusters_of):
    distances = ((rows[:, None] - centres[None]) ** 2).sum(axis=2)
    return np.where(clusters_of[None] == labels[:, None], distances, np.inf).argmin(axis=1)


def plain_features(X, *, n_components, gamma, seed):
    directions = np.random.default_rng(seed).normal(0, math.sqrt(2 * gamma), (X.shape[1], n_components // 2))
    return np.hstack([np.cos(X @ directions), np.sin(X @ directions)]) / math.sqrt(n_components // 2)


def plainly(mechanism, X, labels, shares):
    """The same clusters without noise, by the text of Algorithm 4: centres, rows and sizes."""
    m, k = mechanism, mechanism.n_clusters
    joint, n = m.start == "classes", m.n_classes * m.n_clusters
    clusters_of = np.zeros(n, dtype=int) if joint else np.repeat(np.arange(m.n_classes), k)
    seen = np.zeros(len(X), dtype=int) if joint else labels
    split = np.random.default_rng(m.seed).normal(
        size=(n, m.n_components if m.kernel == "rbf" else X.shape[1])
    )
    split = 0 if joint else 0.1 * split / np.linalg.norm(split, axis=1, keepdims=True)
    if m.kernel == "rbf":
        how = {"n_components": m.n_components, "gamma": m.gamma, "seed": m.seed}
        rows, offset, clip = plain_features(X, **how), 0.0, 1.0
        start = plain_features(np.array(m.centres), **how) if m.start == "public" else None
        middle = means_of(rows, shares, labels, m.n_classes)
    else:
        middle, start = np.zeros((m.n_classes, X.shape[1])), None
        if m.start != "public":
            first = quantile_clip(X, shares, m.longest)
            middle = means_of(shortened(X / first), shares, labels, m.n_classes) * first
        offset = np.zeros_like(middle) if joint else middle
        about = X - offset[labels]
        clip = quantile_clip(about, shares, m.longest)
        rows = shortened(about / clip)
        middle = (middle if joint else np.zeros_like(middle)) / clip
        start = np.array(m.centres) / clip if m.start == "public" else None
    centres = middle.repeat(1 if joint else k, axis=0) + split if start is None else start
    for _ in range(m.n_iterations):
        member = of_their_class(rows, centres, seen, clusters_of)
        centres = means_of(rows, shares, member, n)
    sizes = np.bincount(member, weights=shares, minlength=n)
    if m.kernel == "rbf":
        member = of_their_class(rows, centres, seen, clusters_of)
        clip = quantile_clip(X, shares, m.longest)
        sizes = np.bincount(member, weights=shares, minlength=n)
        return centres, means_of(shortened(X / clip), shares, member, n) * clip, sizes, clusters_of
    centres = centres * clip + (0 if joint else offset[clusters_of])
    return centres, centres, sizes, clusters_of


@pytest.mark.parametrize("kernel", ["plain", "rbf"])
@pytest.mark.parametrize("start", ["split", "classes", "public"])
@pytest.mark.parametrize("shared", [False, True])
def test_with_hardly_any_noise_clusters_are_those_of_the_plain_algorithm(kernel, start, shared):
    rng, n = np.random.default_rng(4), 3000
    labels = np.sort(rng.integers(0, 2, n)) if shared else rng.integers(0, 2, n)
    middles = np.array([[[0.2, 0.3, 0.9], [0.9, 0.1, 0.4]], [[0.5, 0.9, 0.1], [0.1, 0.8, 0.8]]])
    X = (middles[labels, rng.integers(0, 2, n)] + rng.normal(0, 0.06, (n, 3))).astype(np.float32)
    shares = rng.choice([1.0, 0.5, 0.125], n) if shared else np.ones(n)
    k = 1 if start == "classes" else 2
    mechanism = NoisyLloyd(
        n_features=3,
        n_classes=2,
        n_clusters=k,
        n_iterations=3,
        sigma=1e-3,
        sigma_start=1e-3,
        sigma_norms=1e-3,
        sigma_rows=1e-3,
        longest=1.6,
        kernel=kernel,
        n_components=20,
        gamma=1.5,
        seed=3,
        start=start,
        centres=tuple(map(tuple, (middles.reshape(4, 3) + 0.03).tolist())) if start == "public" else (),
    )
    private = Private(
        np.column_stack([X, labels, shares]).astype(np.float32),
        Adjacency(unit="person", moves="row", relation="add-or-remove"),
    )
    released = mechanism.release(private, rng=np.random.default_rng(0))
    centres, rows, sizes, classes = plainly(mechanism, X.astype(np.float64), labels, shares)
    np.testing.assert_allclose(released["centres"], centres, atol=2e-3)
    np.testing.assert_allclose(released["rows"], rows, atol=2e-3)
    np.testing.assert_allclose(released["sizes"], sizes, atol=0.05)
    np.testing.assert_array_equal(released["classes"], classes)
    _, opened, member = mechanism.release_and_assign(private, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(opened, X)
    space = plain_features(X, n_components=20, gamma=1.5, seed=3) if kernel == "rbf" else X
    seen = np.zeros(n, dtype=int) if start == "classes" else labels
    want = of_their_class(space, released["centres"], seen, classes)
    assert (member == want).mean() > 0.999  # single precision aside


def test_a_cluster_without_rows_starts_anew_beside_the_largest_of_its_class():
    sizes = np.array([50.0, 0.5, 30.0, 40.0, 2.9, 3.1])
    noisy = Found(np.zeros((6, 2)), sizes, 1.0, 1.0)
    assert noisy.empty.tolist() == [False, True, False, False, True, False]
    assert Found(np.zeros((2, 2)), np.array([0.9, 1.1]), 1.0, 0.1).empty.tolist() == [True, False]
    centres, of_class = np.arange(12.0).reshape(6, 2), np.array([0, 0, 0, 1, 1, 1])
    moved = refilled(centres, noisy, of_class, seed=7)
    rng = np.random.default_rng(7)
    for place, largest in ((1, 0), (4, 3)):
        step = rng.normal(size=2)
        np.testing.assert_allclose(moved[place], centres[largest] + 0.05 * step / np.linalg.norm(step))
    np.testing.assert_array_equal(moved[[0, 2, 3, 5]], centres[[0, 2, 3, 5]])
    both = refilled(
        centres, noisy._replace(sizes=np.array([50.0, 0.5, 0.5, 30.0, 9.0, 9.0])), of_class * 0, seed=0
    )
    near = [int(np.linalg.norm(centres - row, axis=1).argmin()) for row in both[1:3]]
    assert near == [0, 3]  # of which the first has half of its rows left
    table = np.array([[2.0, 4.0], [9.0, 9.0]])
    found = Found(table, np.array([4.0, 0.5]), 1e-9, 0.1)
    assert found.means().tolist() == [[0.5, 1.0], [0.0, 0.0]]
    assert found.means(former=np.full((2, 2), 7.0)).tolist() == [[0.5, 1.0], [7.0, 7.0]]


@pytest.mark.parametrize("shape", [(3, 9), (9, 3), (40, 40)])
def test_singular_values_shrink_by_the_rule_of_gavish_and_donoho(shape):
    rng, sigma = np.random.default_rng(0), 0.7
    table = rng.normal(size=shape) + 30 * np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1]))
    left, values, right = np.linalg.svd(table, full_matrices=False)
    beta = min(shape) / max(shape)
    y = values / (sigma * math.sqrt(max(shape)))
    shrunk = [
        math.sqrt((v * v - beta - 1) ** 2 - 4 * beta) / v if v > 1 + math.sqrt(beta) else 0.0
        for v in y.tolist()
    ]
    want = left @ np.diag(np.array(shrunk) * sigma * math.sqrt(max(shape))) @ right
    np.testing.assert_allclose(denoised(table, sigma), want, atol=1e-9)
    assert denoised(table[:2], sigma) is not None
    np.testing.assert_array_equal(denoised(table[:2], sigma), table[:2])


@pytest.mark.parametrize("width", [1, 2, 3, 17])
def test_features_are_cosines_and_sines_of_the_drawn_directions(width):
    X = np.random.default_rng(1).normal(0, 3, (5000, width))
    X[3] = 0
    got = random_features(X, n_components=12, gamma=0.4, seed=9)
    np.testing.assert_allclose(got, plain_features(X, n_components=12, gamma=0.4, seed=9), atol=2e-5)


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({}, {"sigma": 0.85 / 4, "sigma_start": 0.1, "sigma_norms": 0.05 / 2}),
        ({"kernel": "rbf"}, {"sigma": 0.65 / 4, "sigma_start": 0.1, "sigma_norms": 0.05, "sigma_rows": 0.2}),
        ({"start": np.eye(2), "n_iterations": 1}, {"sigma": 0.95, "sigma_norms": 0.05}),
    ],
)
def test_the_budget_is_divided_as_is_stated(settings, shares):
    mechanism = PrivateKMeans(2, epsilon=1.3, **settings).mechanism(n_features=2, n_classes=1)
    noise = mechanism.sigma * math.sqrt(shares["sigma"])
    for name, share in shares.items():
        assert getattr(mechanism, name) == pytest.approx(noise / math.sqrt(share), rel=1e-9)
    assert 1.299 < mechanism.curve().epsilon(delta=1e-5) <= 1.3
    assert (mechanism.longest, mechanism.gamma) == (math.sqrt(2), pytest.approx(2))
    squares = sum((n / getattr(mechanism, name) ** 2) for name, n in releases_of(mechanism).items())
    assert squares == pytest.approx(1 / noise**2, rel=1e-9)  # of all that is released


def releases_of(mechanism):
    releases = {"sigma": mechanism.n_iterations, "sigma_norms": 1}
    if mechanism.start != "public":
        releases |= {"sigma_start": 1} | ({} if mechanism.kernel == "rbf" else {"sigma_norms": 2})
    return releases | ({"sigma_rows": 1} if mechanism.kernel == "rbf" else {})
