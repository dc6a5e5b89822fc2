"""Membership by the Adversarial Robustness Toolbox (ART), and by our scores, on the same networks.

::

    python -m venv /tmp/art && /tmp/art/bin/pip install adversarial-robustness-toolbox==1.20.1
    python -m bench.peers.art_membership /tmp/art/lib/python3.11/site-packages

Half of scikit-learn's digits, a fifth of them with a label at random, train a target. ART's black-box
attack learns from half of the members and half of the others, and is measured on the rest; its rule takes
what is predicted right for a member. Ours are given no member: they have other networks, each trained on
half of the rows. All are measured on the same.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from importlib.metadata import version

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.neural_network import MLPClassifier

from ostraka.attacks import ReferenceModels

REFERENCES, TARGETS, EPOCHS, HIDDEN = 8, 4, 80, 64
CLASSES, WRONG = 10, 0.2  # share of labels that are drawn at random: those a network has to remember


def said(name: str, scores: list[np.ndarray], members: list[np.ndarray], seconds: float) -> None:
    """Means of the targets: area under the curve, and true positives at 1 % of false ones."""
    areas, rates = [], []
    for score, member in zip(scores, members, strict=True):
        areas.append(roc_auc_score(member, score))
        false, true, _ = roc_curve(member, score)
        rates.append(true[false <= 0.01].max())
    figures = f"AUC {np.mean(areas):.3f}, true positives at 1 % {np.mean(rates):.1%}"
    print(f"{name}: {figures}, {seconds:.2f} s of processor", flush=True)


def main(packages: str) -> None:
    """Each target, by each attack."""
    sys.path.append(packages)  # what is installed here comes first
    attacks = importlib.import_module("art.attacks.inference.membership_inference")
    estimators = importlib.import_module("art.estimators.classification")
    warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs, and no more
    X, y = load_digits(return_X_y=True)
    X, rng = (X / 16).astype(np.float32), np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < WRONG, rng.integers(0, CLASSES, len(y)), y)
    included, models, start = [], [], time.process_time()
    for seed in range(REFERENCES + TARGETS):
        inside = ~included[-1] if seed % 2 else rng.permutation(np.arange(len(y)) % 2 == 0)
        model = MLPClassifier((HIDDEN,), batch_size=32, max_iter=EPOCHS, random_state=seed)
        models.append(model.fit(X[inside], y[inside]))
        included.append(inside)
    print(
        f"{len(models)} networks on {len(y) // 2} digits in {time.process_time() - start:.1f} s of processor"
    )
    inside = np.array(included)
    confidences = np.array([ReferenceModels.true_label_confidences(model, X, y) for model in models])
    references = ReferenceModels.from_confidences(confidences[TARGETS:], inside[TARGETS:])
    revealed = rng.random(len(y)) < 0.5  # what ART learns from
    hidden, onehot = ~revealed, np.eye(CLASSES, dtype=np.float32)[y]
    members = [inside[target][hidden] for target in range(TARGETS)]
    wrapped = [
        estimators.BlackBoxClassifier(model.predict_proba, X.shape[1:], CLASSES) for model in models[:TARGETS]
    ]
    for kind in ("rf", "gb", "lr"):
        start, scores = time.process_time(), []
        for target, classifier in enumerate(wrapped):
            attack = attacks.MembershipInferenceBlackBox(classifier, attack_model_type=kind)
            attack_sets = [revealed & inside[target], revealed & ~inside[target]]
            attack.fit(X[attack_sets[0]], onehot[attack_sets[0]], X[attack_sets[1]], onehot[attack_sets[1]])
            scores.append(np.ravel(attack.infer(X[hidden], onehot[hidden], probabilities=True)))
        said(
            f"ART {version('adversarial-robustness-toolbox')}, {kind}",
            scores,
            members,
            time.process_time() - start,
        )
    start = time.process_time()
    rule = [
        np.ravel(attacks.MembershipInferenceBlackBoxRuleBased(classifier).infer(X[hidden], onehot[hidden]))
        for classifier in wrapped
    ]
    said("ART, its rule", rule, members, time.process_time() - start)
    for method in ("hierarchical", "rmia", "lira"):
        start = time.process_time()
        scores = [references.statistics(confidences[k], method=method)[hidden] for k in range(TARGETS)]
        said(f"ours, {method}", scores, members, time.process_time() - start)


if __name__ == "__main__":
    main(*sys.argv[1:])
