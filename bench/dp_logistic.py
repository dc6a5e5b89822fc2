"""The rival diffprivlib: logistic regression by objective perturbation, on deals that ``bench.rivals`` wrote.

``python -m bench.dp_logistic FOLDER``, in an environment of its own (docs/when-not.md): diffprivlib needs an
older scikit-learn, so this file imports nothing of the library. The promise is pure epsilon, which is
stronger than (epsilon, delta). Of several classes, each against the others has its share of epsilon, as
diffprivlib divides it. The best of four penalties **on the reported rows** is printed, which favours the
rival.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

EPSILONS = (0.5, 1.0, 2.0)
PENALTIES = (0.01, 0.1, 1.0, 10.0)
FOLDER: str | None = None
QUICK: dict[str, object] = {"EPSILONS": (1.0,)}


def scored(scores: np.ndarray, y: np.ndarray) -> float:
    """Accuracy of the class with the largest score; of two classes, the area under the ROC curve."""
    if scores.shape[1] > 2:
        return float((scores.argmax(axis=1) == y).mean())
    return float(roc_auc_score(y, scores[:, 1] - scores[:, 0]))


def main() -> None:
    """Every data set of the folder at each epsilon."""
    if FOLDER is None or importlib.util.find_spec("diffprivlib") is None:
        print("  needs diffprivlib and a folder of deals (docs/when-not.md)")
        return
    paths = sorted(Path(FOLDER).glob("*-*.npz"))
    for name in sorted({path.stem.rpartition("-")[0] for path in paths}):
        deals = [np.load(path) for path in paths if path.stem.rpartition("-")[0] == name]
        for epsilon in EPSILONS:
            scores = {C: [_one(deal, epsilon, C) for deal in deals] for C in PENALTIES}
            C, best = max(scores.items(), key=lambda item: float(np.mean(item[1])))
            print(
                f"  diffprivlib, {name:<20} epsilon {epsilon:<5} {np.mean(best):.4f} ± {np.std(best):.4f} "
                f"({len(best)}), C {C:g}",
                flush=True,
            )


def _one(deal: dict[str, np.ndarray], epsilon: float, C: float) -> float:
    from diffprivlib.models import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged in its noise
        model = LogisticRegression(epsilon=epsilon, data_norm=float(deal["longest"]), C=C, max_iter=300)
        model.fit(deal["X"], deal["y"])
        sure = model.predict_proba(deal["X_new"])
    return scored(np.asarray(sure), deal["y_new"])


if __name__ == "__main__":
    FOLDER = sys.argv[1] if len(sys.argv) > 1 else None
    main()
