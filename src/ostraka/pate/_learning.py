"""Carry out a plan on data: train teachers, ask and pay for questions, train the student."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import _safe_indexing

from ostraka.door import ABSTAIN
from ostraka.mechanisms.protocols import parts
from ostraka.pate._consistent import same_questions
from ostraka.pate._counts import CountsPlan, learn_counts
from ostraka.pate._data import unprotected
from ostraka.pate._metrics import warnings_of
from ostraka.pate._questions import Questions, require_affordable
from ostraka.pate._record import OS_NOISE, SECRET_NOISE, try_record
from ostraka.pate._rounds import RoundsPlan, learn_rounds
from ostraka.pate._run import Owned, Run
from ostraka.students import Distilled
from ostraka.voters import TeacherEnsemble

if TYPE_CHECKING:
    from ostraka.pate._data import Data, Seeds
    from ostraka.pate._session import Session
    from ostraka.pate._ways import Way
    from ostraka.pate.classifier import PATEClassifier
    from ostraka.pate.plan import Plan

__all__ = ["learn", "teacher_of"]

_NUMBERS = "The numbers of rows, units and features, and the partition, are treated as public."


def learn(model: PATEClassifier, data: Data, way: Way, seeds: Seeds, here: Session) -> Run:
    """Carry out the plan of a way; what can fail is tried before anything is charged.

    Raises
    ------
    BudgetExceeded
        The ledger cannot pay for the plan.
    ValueError
        Teachers, student, cells or mechanism fail on made-up labels and votes.
    """
    if isinstance(way.plan, RoundsPlan):
        return learn_rounds(model, data, way.plan, here, way.cells)
    if isinstance(way.plan, CountsPlan):
        return learn_counts(model, data, way.plan, here, way.cells, seed=seeds.student)
    return _by_teachers(model, data, way.plan, seeds, here)


def _by_teachers(model: PATEClassifier, data: Data, plan: Plan, seeds: Seeds, here: Session) -> Run:
    classes = data.classes(model.classes)
    teachers = _teachers(model, data, plan, seeds.teachers)
    questions = _questions(model, data, plan, seeds, here=here, teachers=teachers)
    require_affordable(here.ledger, plan, key=questions.key)
    _dry_run(model, data, plan, teachers)
    teachers.fit(data.X, data.y, data.groups, classes=model.classes, manifest=here.manifest)
    questions.ask()
    questions.tell("student", 0, 1)
    student = _student(model, seeds.student).fit(data.public, questions.labels, classes=classes)
    questions.tell("student", 1, 1)
    return _run(model, data, here, questions, student)


def teacher_of(estimator: Any, *, n_features: int, n_rows: int) -> Any:
    """Return the given teacher, else trees if a shard has more rows than features."""
    if estimator is not None:
        return estimator
    return KNeighborsClassifier(1) if n_features >= n_rows else DecisionTreeClassifier(min_samples_leaf=3)


def _teachers(model: PATEClassifier, data: Data, plan: Plan, seed: int) -> TeacherEnsemble:
    shard = len(data.y) // plan.n_teachers
    return TeacherEnsemble(
        teacher_of(model.estimator, n_features=data.X.shape[1], n_rows=shard),
        n_teachers=plan.n_teachers,
        engine=model.engine,
        n_jobs=model.n_jobs,
        random_state=seed,
        progress=model.progress,
    )


def _questions(
    model: PATEClassifier, data: Data, plan: Plan, seeds: Seeds, *, here: Session, teachers: TeacherEnsemble
) -> Questions:
    """The questions to ask; the same questions to the same teachers have the same key."""
    key = here.key(data, repr(plan), seeds, model.asks, model.student, teachers.estimator)
    return Questions(
        public=data.public,
        plan=plan,
        teachers=teachers,
        ledger=here.ledger,
        key=key,
        student=_student(model, seeds.student, asking=True),
        n_classes=len(data.classes(model.classes)),
        asks=model.asks,
        seed=seeds.asking,
        tell=model._tell,  # noqa: SLF001  (same package)
        consistent=same_questions(model.consistent, data.public, secret=here.secret, teachers=key),
    )


def _student(model: PATEClassifier, seed: int, *, asking: bool = False) -> Distilled:
    """Return the student to train; while asking, a faster student replaces "auto"."""
    if isinstance(model.student, Distilled):
        student: Distilled = clone(model.student)
        return student
    kind = "auto" if model.student is None else model.student
    return Distilled("spreading" if asking and kind == "auto" else kind, random_state=seed)


def _dry_run(model: PATEClassifier, data: Data, plan: Plan, teachers: TeacherEnsemble) -> None:
    """Try teachers, accounting, recording and student on made-up labels and votes, before any charge."""
    n_classes = len(data.classes(model.classes))
    teachers.dry_run(data.public, n_classes=n_classes, n_rows=len(data.y) // teachers.n_teachers)
    try_record(plan, n_classes=n_classes)
    few = _safe_indexing(data.public, np.arange(min(data.public.shape[0], 10 * n_classes)))
    try:
        _student(model, 0, asking=True).fit(few, np.arange(few.shape[0]) % n_classes)
    except Exception as error:
        raise ValueError(
            f"student {model.student!r} cannot learn; on public rows with made-up labels it says: {error}"
        ) from error


def _run(model: PATEClassifier, data: Data, here: Session, questions: Questions, student: Distilled) -> Run:
    plan, teachers = questions.plan, questions.teachers
    # how many questions went unanswered depends on the votes, so all of them count as answered
    predicted = student.predict(data.public)
    warned = warnings_of(
        n_teachers=plan.n_teachers,
        answers=questions.labels[questions.labels != ABSTAIN],
        predicted=predicted,
        classes=student.classes_,
    )
    missing = plan.n_answers - int((questions.labels != ABSTAIN).sum())
    return Run(
        plan=plan,
        classes=student.classes_,
        student=student,
        student_name=student.name_,
        teacher=repr(teachers.estimator),
        asks=model.asks,
        labels=questions.labels,
        asked=questions.asked,
        held_out=data.held_out,
        spent=here.ledger.spent() + missing * parts(plan.mechanism)[1].curve(),
        noise=SECRET_NOISE if model.consistent else OS_NOISE,
        notes=(*unprotected(data, allow_overlap=model.allow_overlap), *teachers.notes_, _NUMBERS),
        warnings=tuple(warned),
        n_classes_said=len(np.unique(predicted)),
        owned=Owned(
            ensemble=teachers,
            ledger=here.ledger,
            manifest=here.manifest,
            votes=questions.votes,
            public=data.public,
            seconds={},
        ),
    )
