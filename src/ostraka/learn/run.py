"""Run: the facts of one fit in one value, and the record that is made from it.

Every estimator fills one. A record grows when accuracy is measured on rows with known labels, or when an
adversary is simulated; :func:`learned_nothing` says whether the model is better than a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from ostraka.core.door import protected
from ostraka.core.mechanisms.law import ABSTAIN, named
from ostraka.core.result import Result
from ostraka.data.budgets import TableLedger
from ostraka.learn.students.distil import schedule
from ostraka.voters.voting import count_votes

if TYPE_CHECKING:
    from ostraka.core.curve import Curve
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.private import Private
    from ostraka.data.units import Manifest
    from ostraka.learn.session import Data, Session
    from ostraka.learn.ways.plan import Planned, Way
    from ostraka.voters.teachers import TeacherEnsemble

_BINS = 10
_FEW_TEACHERS = 10
_CLEARLY = 2.0  # standard errors above chance
_OF_USE = 0.6  # area under the curve of a model that may be of use
_HELD_OUT = (
    "{} rows of the private table were held out as public questions: their features are not protected at all "
    "(their labels were not used for training)."
)
_COPIED = (
    "Public rows may be copies of private rows (allow_overlap): the features of such rows are not protected, "
    "and accuracy measured on them is not that of new rows."
)
_IN_INTEGERS = "ChaCha20 keyed by the operating system, drawn in integers"
PRIVATE_ATTRIBUTES = ("ensemble_", "ledger_", "manifest_", "votes_")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Owned:
    """The part of a run that stays with the owner of the data. It is never pickled.

    Attributes
    ----------
    ensemble, ledger, manifest, votes
        As the attributes of the estimators.
    public : array or data frame
        The public rows that were asked about, kept to train students of fewer answers.
    seconds : dict of str to float
        How long training took.
    """

    ensemble: Any
    ledger: Ledger
    manifest: Manifest
    votes: Private
    public: Any
    seconds: dict[str, float]

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers to publish: of units, and of rows where these are the units."""
        rows = {"n_rows": self.manifest.n_rows} if self.votes.adjacency.unit == "row" else {}
        return rows | {"n_units": self.manifest.n_units}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Run:
    """The record of a fit. All of it is public, except ``owned``.

    Attributes
    ----------
    plan : Plan, LabelPlan or CountsPlan
    classes : array of shape (n_classes,)
    student : fitted classifier
    student_name, teacher, asks : str
        How the record names them.
    labels : int64 array, shape (n_public,)
        Class index answered for each public row, or ``ABSTAIN``.
    asked : int64 array
        Rows in the order they were asked about.
    held_out : int64 array or None
        Rows of the private table that were used as public ones.
    n_classes_said : int or None
        How many different classes the student says of the public rows.
    spent : Curve
        Cost of all charges in the ledger, and of the answers that were planned and not given.
    noise : str
        Where the noise came from.
    notes : tuple of str
        What is not protected.
    warnings : tuple of str
        Public facts that make the student poor.
    owned : Owned or None
    """

    plan: Planned
    classes: np.ndarray
    student: Any
    student_name: str
    teacher: str
    asks: str
    labels: np.ndarray
    asked: np.ndarray
    held_out: np.ndarray | None
    n_classes_said: int | None
    spent: Curve
    noise: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    owned: Owned | None

    @classmethod
    def of(
        cls,
        model: Any,
        data: Data,
        session: Session,
        *,
        plan: Planned,
        predicted: Any,
        labels: np.ndarray,
        notes: tuple[str, ...],
        ensemble: TeacherEnsemble | None = None,
        votes: Private,
        public: Any = None,
        seconds: dict[str, float] | None = None,
        **facts: Any,
    ) -> Run:
        """The run of an estimator on data; ``predicted`` are its classes of public rows, None if too many.

        Unless ``facts`` say otherwise, all public rows were asked about, for what the ledger has spent.
        """
        sentences: list[str] = []
        if predicted is not None:
            answers = labels[labels != ABSTAIN]
            sentences = warnings_of(
                n_teachers=plan.n_teachers, answers=answers, predicted=predicted, classes=facts["classes"]
            )
        usual: dict[str, Any] = {"asks": "all", "asked": np.arange(len(labels)), "noise": _IN_INTEGERS}
        if "spent" not in facts:
            usual["spent"] = session.ledger.spent()
        held_out = () if data.held_out is None else (_HELD_OUT.format(len(data.held_out)),)
        copies = (_COPIED,) if getattr(model, "allow_overlap", False) else ()
        return cls(
            plan=plan,
            labels=labels,
            held_out=data.held_out,
            n_classes_said=None if predicted is None else len(np.unique(predicted)),
            notes=(*held_out, *copies, *notes),
            warnings=tuple(sentences),
            owned=Owned(
                ensemble=ensemble,
                ledger=session.ledger,
                manifest=session.manifest,
                votes=votes,
                public=public,
                seconds=seconds or {},
            ),
            **usual | facts,
        )

    def public(self) -> Run:
        """The same run without the owner's part."""
        return replace(self, owned=None)


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
    sentences = []
    if n_teachers < _FEW_TEACHERS:
        sentences.append(
            f"Only {n_teachers} teachers voted: noise that hides one of them hides most of what they say."
        )
    if len(answers) < 2 * len(classes):
        sentences.append(
            f"The student learned from {len(answers)} answers about {len(classes)} classes: few."
        )
    unheard = [str(name) for k, name in enumerate(classes.tolist()) if k not in set(answers.tolist())]
    if unheard:
        sentences.append(
            f"No answer was {', '.join(unheard[:10])}{', …' if len(unheard) > 10 else ''}: "
            "no public row that was asked about seems to hold it, so the student cannot say it."
        )
    if len(np.unique(predicted)) < 2:
        sentences.append(
            "The student says the same class of every public row. If another class is rare, rank rows by "
            "predict_proba instead; else it learned nothing."
        )
    return sentences


def record(run: Run, way: Way) -> Result:
    """The record of a whole run: settings, the bound, and the owner's own figures."""
    plan, owned = run.plan, run.owned
    assert owned is not None  # noqa: S101  (a run without its owner's part was recorded before)
    charges = owned.ledger.count()
    which = "one charge, this run's" if charges == 1 else f"{charges} charges, among them this run's"
    exact = "answers are drawn exactly" if run.spent.slack == 0 else "what is rounded is charged to delta"
    parts = way.record(run, owned)
    table = {}  # what all releases from the table cost its units, where there is a ledger of the table
    if isinstance(owned.ledger, TableLedger):
        table = {"table": owned.ledger.account.spent(protected(owned.votes)).to_dict()}
    n_classes = {} if run.n_classes_said is None else {"classes_said": run.n_classes_said}
    return Result(
        kind="learn",
        settings={
            **owned.sizes,
            "unit": owned.votes.adjacency.unit,
            "relation": owned.votes.adjacency.relation,
            "n_teachers": plan.n_teachers,
            "n_classes": len(run.classes) or None,
            "n_public": len(run.labels),
            "n_answers": plan.n_answers,
            **plan.sizes,
            **named(plan.mechanism),
            "epsilon": owned.ledger.budget.epsilon,
            "asks": run.asks,
            "teacher": run.teacher,
            "student": run.student_name,
            "manifest": owned.manifest.sha256,
        },
        upper={
            "epsilon": run.spent.epsilon(plan.delta),
            "delta": plan.delta,
            "accountant": way.accountant,
            "curve": run.spent.to_dict(),
            "noise": f"{run.noise}; {exact}",
            "horizon": f"everything in the ledger: {which}",
            "simulation": owned.ledger.simulation,
            "answers_left": owned.ledger.uses_left(plan.mechanism),
            "not_protected": list(run.notes),
            **table,
        },
        utility=parts.get("utility", {}) | n_classes,
        series=plan.over_time(),
        owner=parts.get("owner", {}),
        notes=(*run.notes, *run.warnings),
    )


def with_audit(run: Run, way: Way, result: Result, *, trials: int | None, confidence: float) -> Result:
    """Add the lower bound found by a simulated adversary of the whole run to a record."""
    finding = way.finding(run, trials=trials, confidence=confidence)
    lower = {
        "epsilon": finding.measures[0].lower,
        "delta": run.plan.delta,
        "confidence": confidence,
        "trials": finding.trials,
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "note": finding.note,
    }
    return replace(result, lower=lower)


def with_accuracies(
    run: Run, result: Result, X: Any, y: np.ndarray, *, X_private: Any = None, y_private: Any = None
) -> Result:
    """Add accuracies on rows with known labels to a record."""
    if y.shape != (len(X),):
        raise ValueError(f"y must have one label for each of {len(X)} rows, got shape {y.shape}")
    utility, series = measured(run.student, X, y, classes=run.classes)
    result = replace(result, utility={**result.utility, **utility}, series={**result.series, **series})
    if run.owned is None or run.owned.ensemble is None:  # nothing of the owner's to compare with
        return result
    predictions = run.owned.ensemble.predictions(X)
    plurality = count_votes(predictions, n_classes=len(run.classes)).argmax(axis=1)
    private = {
        "plurality": float((run.classes[plurality] == y).mean()),
        "one_teacher": float((run.classes[predictions] == y).mean()),
    }
    if X_private is not None:
        alone = clone(run.owned.ensemble.estimator).fit(X_private, y_private)
        private["non_private"] = _accuracy(alone, X, y)
    if run.owned.public is not None:
        # the accuracy of students of the first answers, and the cost of these answers
        epsilon, accuracy, chosen = [], [], run.student.estimator
        kind = run.student_name if isinstance(chosen, str) else chosen  # what "auto" chose stays chosen
        for n in np.cumsum(schedule(n_answers=run.plan.n_answers)).tolist():
            labels = np.full(len(run.labels), ABSTAIN)
            labels[run.asked[:n]] = run.labels[run.asked[:n]]
            if (labels != ABSTAIN).any():
                student = clone(run.student).set_params(estimator=kind)
                student.fit(run.owned.public, labels, classes=run.classes)
                epsilon.append(run.plan.curve(n).epsilon(run.plan.delta))
                accuracy.append(_accuracy(student, X, y))
        series = {"student": {"epsilon": epsilon, "accuracy": accuracy}}
    return replace(
        result,
        series={**result.series, **series},
        owner={**result.owner, "utility": {**result.owner.get("utility", {}), **private}},
    )


def _accuracy(model: Any, X: Any, y: np.ndarray) -> float:
    return float((np.asarray(model.predict(X)) == y).mean())


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
        ``student``, ``majority``, ``balanced``, ``auc`` and ``auc_error`` as :func:`area` has them (None
        without probabilities), ``calibration_error`` and ``recall`` by class (None where ``y`` lacks it).
    series : dict
        ``confusion`` with a row for each true class; ``calibration``: mean confidence, accuracy and
        number of rows in each bin of confidence.
    """
    predicted = np.asarray(student.predict(X))
    confusion = np.array(
        [[np.sum((y == true) & (predicted == label)) for label in classes] for true in classes]
    )
    rows = confusion.sum(axis=1)
    recall = [float(confusion[k, k] / rows[k]) if rows[k] else None for k in range(len(classes))]
    recalls = [value for value in recall if value is not None]
    sure = np.asarray(student.predict_proba(X)) if hasattr(student, "predict_proba") else None
    auc, auc_error, calibration, error = None, None, None, None
    if sure is not None:
        auc, auc_error = area(y, sure, classes=classes)
        # mean confidence and accuracy in bins of confidence, and the mean gap between them (ECE)
        confidence, right = sure.max(axis=1), predicted == y
        place = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
        bins = [place == k for k in range(_BINS) if (place == k).any()]
        calibration = {
            "confidence": [float(confidence[inside].mean()) for inside in bins],
            "accuracy": [float(right[inside].mean()) for inside in bins],
            "rows": [int(inside.sum()) for inside in bins],
        }
        triples = zip(*calibration.values(), strict=True)
        error = float(sum(n * abs(claim - share) for claim, share, n in triples) / len(y))
    utility = {
        "student": float((predicted == y).mean()),
        "majority": float(np.unique(y, return_counts=True)[1].max() / len(y)),
        "balanced": float(np.mean(recalls)) if recalls else None,
        "auc": auc,
        "auc_error": auc_error,
        "calibration_error": error,
        "recall": {str(name): value for name, value in zip(classes.tolist(), recall, strict=True)},
    }
    return utility, {"confusion": confusion, "calibration": calibration}


def area(y: Any, sure: np.ndarray, *, classes: np.ndarray) -> tuple[float | None, float | None]:
    """Area under the curve, and the standard error that it has where rows are in a random order.

    Of several classes, the mean over those that some rows have and others lack, each against all others. Its
    error is at most the mean of theirs. None where there is no such class.
    Source of the error: Mann and Whitney 1947, doi:10.1214/aoms/1177730491.

    Examples
    --------
    >>> area([0, 0, 1, 1], np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9]]), classes=np.arange(2))
    (0.75, 0.3227486121839514)
    """
    y = np.asarray(y)
    areas, errors = [], []
    for k, name in enumerate(classes.tolist()):
        mine = y == name
        n_mine, n_others = int(mine.sum()), int((~mine).sum())
        if n_mine and n_others and (k or len(classes) > 2):
            areas.append(roc_auc_score(mine, sure[:, k]))
            errors.append(math.sqrt((len(y) + 1) / (12 * n_mine * n_others)))
    return (float(np.mean(areas)), float(np.mean(errors))) if areas else (None, None)


def learned_nothing(result: Result) -> str:
    """Return why the student is no better than guessing; empty if it is better or this is unknown.

    A student with probabilities is judged by how it ranks rows: it learned nothing if its area under the
    curve is not above a half, and below .6, both by more than two standard errors. Where no rows with labels
    were measured, the area is what the posterior expects. Few rows so decide nothing. One without
    probabilities is judged by the recall of its classes.

    Parameters
    ----------
    result : Result
        Of :class:`~ostraka.PATEClassifier` or :class:`~ostraka.learn.PATERegressor`, best after ``evaluate``.

    Returns
    -------
    str
        Part of a sentence.

    Examples
    --------
    >>> from ostraka.core.result import Result
    >>> learned_nothing(Result(kind="learn", settings={"n_classes": 2}, utility={"classes_said": 1}))
    'the student says the same class of every row'
    """
    if "r2" in result.utility:
        share, error = result.utility["r2"], result.utility.get("r2_error", 0.0)
        if share is None or share > _CLEARLY * error:
            return ""
        return f"R² is {share:.2f}, no better than the mean of all numbers"
    n_classes = result.settings["n_classes"]
    balanced, confusion = result.utility.get("balanced"), result.series.get("confusion")
    ranked = result.utility if result.utility.get("auc") is not None else result.utility.get("expected", {})
    auc, error = ranked.get("auc"), ranked.get("auc_error")
    if auc is not None and error is not None:
        if auc > 0.5 + _CLEARLY * error or auc > _OF_USE - _CLEARLY * error:
            return ""
        what = "is" if ranked is result.utility else "is expected to be"
        return f"its area under the curve {what} {auc:.2f} ± {error:.2f}, no better than that of a guess"
    if result.utility.get("classes_said", n_classes) < 2:
        return "the student says the same class of every row"
    if balanced is None or confusion is None:
        return ""
    rows = np.sum(confusion, axis=1)
    rows = rows[rows > 0]
    chance = 1 / n_classes
    error = float(np.sqrt(np.sum(chance * (1 - chance) / rows)) / len(rows))
    if balanced > chance + _CLEARLY * error:
        return ""
    return f"the student's balanced accuracy is {100 * balanced:.1f} %, no better than a guess"
