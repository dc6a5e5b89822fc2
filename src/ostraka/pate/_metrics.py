"""Measures of a student on rows with known labels, in addition to accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import roc_auc_score

if TYPE_CHECKING:
    from ostraka.result import Result

__all__ = ["learned_nothing", "measured", "warnings_of"]

_BINS = 10
_FEW_TEACHERS = 10
_CLEARLY = 2.0  # standard errors above chance


def measured(
    student: Any, X: Any, y: np.ndarray, *, classes: np.ndarray
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Accuracy, balanced accuracy, recall of each class, confusion matrix, AUC and calibration.

    Parameters
    ----------
    student : fitted classifier
    X, y : arrays
        Public rows and their true labels.
    classes : array of shape (n_classes,)

    Returns
    -------
    utility : dict
        ``student``, ``majority``, ``balanced``, ``auc`` (two classes with probabilities, else None),
        ``calibration_error`` and ``recall`` by class (None where ``y`` lacks it).
    series : dict
        ``confusion`` with a row for each true class; ``calibration``: mean confidence, accuracy and
        number of rows in each bin of confidence.
    """
    predicted = np.asarray(student.predict(X))
    confusion = np.array(
        [[np.sum((y == true) & (predicted == said)) for said in classes] for true in classes]
    )
    rows = confusion.sum(axis=1)
    recall = [float(confusion[k, k] / rows[k]) if rows[k] else None for k in range(len(classes))]
    known = [value for value in recall if value is not None]
    sure = np.asarray(student.predict_proba(X)) if hasattr(student, "predict_proba") else None
    binary = len(classes) == 2 and sure is not None and rows.all()
    calibration, error = (None, None) if sure is None else _calibration(sure, predicted == y)
    utility = {
        "student": float((predicted == y).mean()),
        "majority": float(np.unique(y, return_counts=True)[1].max() / len(y)),
        "balanced": float(np.mean(known)) if known else None,
        "auc": float(roc_auc_score(y == classes[1], sure[:, 1])) if binary and sure is not None else None,
        "calibration_error": error,
        "recall": {str(name): value for name, value in zip(classes.tolist(), recall, strict=True)},
    }
    return utility, {"confusion": confusion, "calibration": calibration}


def learned_nothing(result: Result) -> str:
    """Return why the student is no better than guessing; empty if it is better or this is unknown.

    Parameters
    ----------
    result : Result
        Of :class:`~ostraka.PATEClassifier`, best after ``evaluate``.

    Returns
    -------
    str
        Part of a sentence.

    Examples
    --------
    >>> from ostraka.result import Result
    >>> learned_nothing(Result(kind="learn", settings={"n_classes": 2}, utility={"classes_said": 1}))
    'the student says the same class of every row'
    """
    n_classes = result.settings["n_classes"]
    if _ranks(result):
        return ""
    if result.utility.get("classes_said", n_classes) < 2:
        return "the student says the same class of every row"
    balanced, confusion = result.utility.get("balanced"), result.series.get("confusion")
    if balanced is None or confusion is None:
        return ""
    rows = np.sum(confusion, axis=1)
    rows = rows[rows > 0]
    chance = 1 / n_classes
    error = float(np.sqrt(np.sum(chance * (1 - chance) / rows)) / len(rows))
    if balanced > chance + _CLEARLY * error:
        return ""
    return f"the student's balanced accuracy is {100 * balanced:.1f} %, no better than a guess"


def _ranks(result: Result) -> bool:
    """Return whether the student ranks rows of two classes clearly better than chance."""
    auc, confusion = result.utility.get("auc"), result.series.get("confusion")
    if auc is None or confusion is None:
        return False
    n = np.sum(confusion, axis=1)
    error = float(np.sqrt((n.sum() + 1) / (12 * n.prod()))) if n.all() else np.inf  # of a random order
    return bool(auc > 0.5 + _CLEARLY * error)


def warnings_of(
    *, n_teachers: int, answers: np.ndarray, predicted: np.ndarray, classes: np.ndarray
) -> list[str]:
    """Return sentences about public facts that make a model poor.

    Parameters
    ----------
    n_teachers : int
    answers : int array
        Class indices that were released, without abstentions.
    predicted : array
        The student's classes of the public rows.
    classes : array of shape (n_classes,)
    """
    told = []
    if n_teachers < _FEW_TEACHERS:
        told.append(
            f"Only {n_teachers} teachers voted: noise that hides one of them hides most of what they say."
        )
    if len(answers) < 2 * len(classes):
        told.append(f"The student learned from {len(answers)} answers about {len(classes)} classes: few.")
    unheard = [str(name) for k, name in enumerate(classes.tolist()) if k not in set(answers.tolist())]
    if unheard:
        told.append(
            f"No answer was {', '.join(unheard[:10])}{', …' if len(unheard) > 10 else ''}: "
            "no public row that was asked about seems to hold it, so the student cannot say it."
        )
    if len(np.unique(predicted)) < 2:
        told.append(
            "The student says the same class of every public row. If another class is rare, rank rows by "
            "predict_proba instead; else it learned nothing."
        )
    return told


def _calibration(sure: np.ndarray, right: np.ndarray) -> tuple[dict[str, Any], float]:
    """Mean confidence and accuracy in bins of confidence, and the mean gap between them (ECE)."""
    confidence = sure.max(axis=1)
    place = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    filled = [k for k in range(_BINS) if (place == k).any()]
    rows = [int((place == k).sum()) for k in filled]
    said = [float(confidence[place == k].mean()) for k in filled]
    held = [float(right[place == k].mean()) for k in filled]
    gap = sum(n * abs(a - b) for n, a, b in zip(rows, said, held, strict=True)) / len(right)
    return {"confidence": said, "accuracy": held, "rows": rows}, float(gap)
