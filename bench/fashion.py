"""Fashion-MNIST by rows that vote, and by DP-SGD on the same features, over ten deals of all 70,000 images.

First the published split: the 60,000 training images are private, and of the test images the first 9,000 are
public without labels and the last 1,000 new; three draws of noise. Then deals of as many; delta is 1e-5.
Features are greys and edges, their principal components, a Gaussian kernel with 1,000 public images, and 500
components of that, by public images alone. Noise of ours is seeded, as in ``bench utility``: a simulation.
Rows vote by counts or in rounds, and either promise is made: a row is not replaced, or is not left out. The
rival is logistic regression by Opacus with the clip and the learning rate that are best **on the reported
images**; without Opacus only ours runs. Its neighbours add or remove a row. ``python -m bench.fashion
published`` stops after the published split.
"""

from __future__ import annotations

import importlib.util
import sys
import time

import numpy as np
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bench import _data, dp_sgd
from bench._ways import as_lines, each_way
from bench.neighbours import edges
from bench.utility import images, said

DEALS, RIVAL_DEALS, DRAWS = 10, 2, 3
ONLY_PUBLISHED = False
EPSILONS: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 20.0)
RIVAL_EPSILONS: tuple[float, ...] = (0.5, 1.0)
RATES = (
    (1.0, 4.0),
    (1.0, 16.0),
    (1.0, 64.0),
    (0.3, 16.0),
    (0.3, 50.0),
    (0.1, 50.0),
    (0.1, 150.0),
)  # after the clip
N_PUBLIC, N_NEW, N_PRIVATE = 9000, 1000, 60_000
QUICK = {
    "DEALS": 1,
    "DRAWS": 1,
    "EPSILONS": (1.0,),
    "RIVAL_EPSILONS": (),
    "N_PUBLIC": 300,
    "N_NEW": 100,
    "N_PRIVATE": 600,
}


def main() -> None:
    """Ours on the published split and on deals, the same with shuffled labels, and the rival."""
    published()
    if not ONLY_PUBLISHED:
        on_deals()


def published() -> None:
    """Three draws of noise."""
    X, y, public, new, truth = dealt(None)
    for voting in each_way(public, X, y, np.concatenate([public, new])):
        for epsilon in EPSILONS:
            accuracies = [voting.right(epsilon, 10**6 + draw, truth) for draw in range(DRAWS)]
            shown("Fashion-MNIST, published", voting.name, epsilon, accuracies)


def on_deals() -> None:
    """All deals, then the rival on the first ones."""
    accuracies: dict[tuple[str, float], list[np.ndarray]] = {}
    mixed: dict[str, list[np.ndarray]] = {}
    rows = []
    for deal in range(DEALS):
        start = time.process_time()
        X, y, public, new, truth = dealt(deal)
        joined, mixed_up = np.concatenate([public, new]), np.random.default_rng(0).permutation(y)
        for voting in each_way(public, X, y, joined):
            for epsilon in EPSILONS:
                right = voting.right(epsilon, 10**6 + deal, truth)
                accuracies.setdefault((voting.name, epsilon), []).append(right)
        print(f"  deal {deal}: {time.process_time() - start:.0f} s of one core", flush=True)
        if deal < RIVAL_DEALS:
            rows.append((as_lines(public, X), y, as_lines(public, public), as_lines(public, new), truth))
            for voting in each_way(public, X, mixed_up, joined):
                mixed.setdefault(voting.name, []).append(voting.right(1.0, 10**6 + deal, truth))
    for (name, epsilon), right in accuracies.items():
        shown("Fashion-MNIST", name, epsilon, right)
        if epsilon in RIVAL_EPSILONS:
            shown("Fashion-MNIST, the rival's deals", name, epsilon, right[:RIVAL_DEALS])
    for name, right in mixed.items():
        shown("Fashion-MNIST, shuffled labels", name, 1.0, right)
    rival(rows)


def shown(data: str, method: str, epsilon: float, accuracies: list[np.ndarray]) -> None:
    """Print the share of public images and of new ones which are right."""
    said(f"{data}, public, {method}", epsilon, [float(right[:N_PUBLIC].mean()) for right in accuracies])
    said(f"{data}, new, {method}", epsilon, [float(right[N_PUBLIC:].mean()) for right in accuracies])


def dealt(deal: int | None) -> tuple[np.ndarray, ...]:
    """Features of private images with labels, of public and new ones; labels of the last two, which score."""
    X, y, X_test, y_test = images("fashion_mnist", -1 if _data.MOST_ROWS is None else _data.MOST_ROWS)
    X, y = np.concatenate([X, X_test]), np.concatenate([y, y_test])
    order = (
        np.roll(np.arange(len(y)), len(y_test))
        if deal is None
        else np.random.default_rng(deal).permutation(len(y))
    )
    ends = np.cumsum([N_PUBLIC, N_NEW, min(N_PRIVATE, _data.MOST_ROWS or N_PRIVATE)])
    public, new, private = np.split(order[: ends[-1]], ends[:-1])
    features = fitted_features(X[public])
    private_features, public_features, fresh = (
        features.transform(X[part]) for part in (private, public, new)
    )
    return private_features, y[private], public_features, fresh, y[np.r_[public, new]]


def fitted_features(public: np.ndarray) -> Pipeline:
    """Greys and edges, their principal components, and a Gaussian kernel with 1,000 public images."""
    parts = make_pipeline(FunctionTransformer(_greys_and_edges), PCA(min(150, len(public)), random_state=0))
    sample = parts.fit_transform(public)[:1000]
    apart = ((sample[:500, None] - sample[None, 500:]) ** 2).sum(axis=2)
    middle = float(np.median(apart)) if apart.size else 1.0
    kernel = Nystroem(gamma=1 / middle, n_components=min(1000, len(public)), random_state=0)
    return make_pipeline(parts, kernel.fit(parts.transform(public)))


def _greys_and_edges(pixels: np.ndarray) -> np.ndarray:
    greys = np.asarray(pixels, dtype=np.float32).reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return np.hstack([edges(pixels), 0.7 * np.sqrt(greys).reshape(len(greys), -1)])


def rival(deals: list[tuple[np.ndarray, ...]]) -> None:
    """Logistic regression by DP-SGD on the same features, one training for each clip, rate and deal."""
    if importlib.util.find_spec("opacus") is None:
        print("  Opacus is not installed (docs/when-not.md)")
        return
    for epsilon in RIVAL_EPSILONS:
        scores, start = {}, time.process_time()
        for clip, rate in RATES:
            scores[clip, rate] = [
                _trained(rows, epsilon=epsilon, clip=clip, rate=rate, seed=k) for k, rows in enumerate(deals)
            ]
            mean = np.mean(scores[clip, rate], axis=0)
            print(
                f"    Opacus, epsilon {epsilon:g}, clip {clip:g}, learning rate {rate:g}: "
                f"public {mean[0]:.4f}, new {mean[1]:.4f}",
                flush=True,
            )
        best = max(
            scores.values(),
            key=lambda results: float(np.mean(results, axis=0)[0]),
        )
        took = [time.process_time() - start]
        said("Opacus, Fashion-MNIST, public images", epsilon, [figures for figures, _ in best], took)
        said("Opacus, Fashion-MNIST, new images", epsilon, [two for _, two in best])


def _trained(
    rows: tuple[np.ndarray, ...], *, epsilon: float, clip: float, rate: float, seed: int
) -> tuple[float, float]:
    X, y, public, new, truth = rows
    network = dp_sgd.linear(X.shape[1], 10)
    dp_sgd.private_fit(network, X, y, epsilon=epsilon, rate=rate, name="same-features", seed=seed, clip=clip)
    return (
        dp_sgd.accuracy(network, np.float32(public), truth[: len(public)]),
        dp_sgd.accuracy(network, np.float32(new), truth[len(public) :]),
    )


if __name__ == "__main__":
    ONLY_PUBLISHED = sys.argv[1:] == ["published"]
    main()
