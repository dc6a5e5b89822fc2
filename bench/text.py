"""SST-2: phrases that vote, and DP-SGD on the same features, which come from public text alone.

20,000 phrases of the training file are public and keep no label, the others are private, and the 872
sentences of the other file are new. Words and pairs of words are weighted by the public phrases and reduced
to 1,000 components of them. ``FeatureCells`` makes the features of both methods. Delta is 1e-5. Noise of ours
is seeded, as in ``bench utility``: a simulation. The rival is logistic regression by Opacus; without Opacus
only ours runs. The rival gets the clip and the learning rate that are best **on the reported rows**,
for new and for public ones apart. Its
neighbours add or remove a row.
"""

from __future__ import annotations

import importlib.util
import time
from functools import partial

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bench import dp_sgd
from bench._ways import as_lines, each_way
from bench.neighbours import sentences
from bench.utility import said

N_PUBLIC, N_COMPONENTS = 20_000, 1000
EPSILONS: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 20.0)
RIVAL_EPSILONS: tuple[float, ...] = (0.5, 1.0)
RATES = (
    (1.0, 1.0),
    (1.0, 4.0),
    (1.0, 16.0),
    (1.0, 64.0),
    (0.3, 13.0),
    (0.3, 50.0),
    (0.1, 40.0),
    (0.1, 150.0),
)  # after the clip
DRAWS = 10
QUICK = {"N_PUBLIC": 300, "N_COMPONENTS": 20, "EPSILONS": (20.0,), "RIVAL_EPSILONS": (), "DRAWS": 1}


def main() -> None:
    """Ours, the same with shuffled labels, without privacy, and the rival."""
    start = time.process_time()
    (texts, y), (new, truth) = sentences("train"), sentences("dev")
    public, private = np.split(np.random.default_rng(0).permutation(len(texts)), [N_PUBLIC])
    public_texts = [texts[row] for row in public]
    words = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[?!]", min_df=3
    )
    features = make_pipeline(words, TruncatedSVD(N_COMPONENTS, random_state=0)).fit(public_texts)
    public_features, private_features = (
        features.transform(part_texts) for part_texts in (public_texts, [texts[row] for row in private])
    )
    fresh = features.transform(new)
    print(
        f"  {len(public):,} public, {len(private):,} private and {len(new):,} new phrases, "
        f"features of all in {time.process_time() - start:.0f} s of one core",
        flush=True,
    )
    voters = partial(
        each_way,
        public_features,
        private_features,
        fresh=np.concatenate([fresh, public_features]),
        n_features=N_COMPONENTS,
    )
    labels = np.concatenate([truth, y[public]])
    for voting in voters(y[private]):
        for epsilon in EPSILONS:
            accuracies = [voting.right(epsilon, 10**6 + seed, labels) for seed in range(DRAWS)]
            said(
                f"SST-2, new, {voting.name}",
                epsilon,
                [float(accuracy[: len(new)].mean()) for accuracy in accuracies],
            )
            said(
                f"SST-2, public, {voting.name}",
                epsilon,
                [float(accuracy[len(new) :].mean()) for accuracy in accuracies],
            )
    for voting in voters(np.random.default_rng(0).permutation(y[private])):
        mixed = [voting.right(1.0, 10**6 + seed, labels)[: len(new)] for seed in range(DRAWS)]
        said(f"SST-2, shuffled labels, {voting.name}", 1.0, [float(right.mean()) for right in mixed])
    rows, fresh, public_features = (
        as_lines(public_features, part, n_features=N_COMPONENTS)
        for part in (private_features, fresh, public_features)
    )
    classifier = LogisticRegression(C=10.0, max_iter=200).fit(rows, y[private])
    said("SST-2, no privacy, logistic, new", "none", [classifier.score(fresh, truth)])
    said("SST-2, no privacy, logistic, public", "none", [classifier.score(public_features, y[public])])
    rival(rows, y[private], (fresh, truth), (public_features, y[public]))


def rival(X: np.ndarray, y: np.ndarray, *scored_on: tuple[np.ndarray, np.ndarray]) -> None:
    """Logistic regression by DP-SGD, one seed for each clip and learning rate; new and public rows."""
    if importlib.util.find_spec("opacus") is None:
        print("  Opacus is not installed (docs/when-not.md)")
        return
    for epsilon in RIVAL_EPSILONS:
        scores, start = [], time.process_time()
        for clip, rate in RATES:
            network = dp_sgd.linear(X.shape[1], 2)
            stated = dp_sgd.private_fit(
                network, X, y, epsilon=epsilon, rate=rate, name="text", seed=0, clip=clip
            )
            scores.append([dp_sgd.accuracy(network, rows, labels) for rows, labels in scored_on])
            print(
                f"    Opacus, clip {clip:g}, learning rate {rate:g}, epsilon {stated:.3f}: "
                f"new {scores[-1][0]:.4f}, public {scores[-1][1]:.4f}",
                flush=True,
            )
        new, public = np.max(scores, axis=0)
        said("Opacus, SST-2, new", epsilon, [float(new)], [time.process_time() - start])
        said("Opacus, SST-2, public", epsilon, [float(public)])


if __name__ == "__main__":
    main()
