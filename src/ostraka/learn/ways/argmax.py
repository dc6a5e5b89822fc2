"""The way of argmaxes: teachers vote on public rows, and each answer is paid for.

In come an estimator's settings and data, out goes a run. :class:`Argmax` trains teachers on shards;
:class:`Prompted` has prompts as teachers, which a language model answers. :func:`same_questions` says which
public rows are one question, by the ``consistent`` setting of a fit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import _safe_indexing

from ostraka.audit.attacks.votes import leakage_panel
from ostraka.core.accounting.bounds import exact_curve, exact_profiles, exact_rdp
from ostraka.core.consistent import Consistent
from ostraka.core.door import release
from ostraka.core.mechanisms.law import ABSTAIN, named
from ostraka.core.private import Adjacency, Private
from ostraka.core.result import Result
from ostraka.learn.run import Owned, Run
from ostraka.learn.students.distil import Distilled, schedule, typical, uncertainty_sampling
from ostraka.learn.ways.plan import MANY, Plan, Way
from ostraka.voters.teachers import TeacherEnsemble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.audit.bound import Finding
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts, World
    from ostraka.voters.prompts import PromptEnsemble

_CANDIDATES = 10  # rows to choose from for each answer; more cost the teachers time and change little
_TEACHERS = 12  # trained to learn how often teachers agree
_LEAST = 2  # answers for each class, below which no model was better than a guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Argmax(Way):
    """Teachers on disjoint shards; the base of PATE-FM's way, too, whose plan has queries beside answers."""

    accountant: ClassVar[str] = (
        "Exact composition of the outcome laws whatever the votes, Rényi curves and Gaussian-DP composition; "
        "the smallest"
    )
    advice: ClassVar[str] = "'ostraka plan' proposes a budget and a number of teachers and answers to try"
    stages: ClassVar[dict[str, str]] = {
        "shards": "rows dealt to teachers",
        "teachers": "teachers trained",
        "votes": "teachers voted",
        "answers": "questions answered",
    }

    @classmethod
    def planned(cls, model: Any, facts: Facts) -> Self:
        """The way for an estimator's settings."""
        return cls(plan=Plan.of(model, facts))

    def learn(self, model: Any, data: Data, seeds: Seeds, session: Session) -> Run:
        """Train teachers, ask and pay for questions, train the student."""
        plan, classes = self.plan, data.classes(model.classes)
        teachers = self.teachers(model, data, seeds)
        key = session.key(data, repr(plan), seeds, *self.settings(model, teachers))
        plan.require_affordable(session.ledger, key=key)
        self.rehearse(model, data, teachers, len(classes))
        start = time.monotonic()
        self.train(teachers, model, data, session)
        seconds = {"teachers": time.monotonic() - start}
        labels, questions, votes = self.ask(model, data, seeds, teachers, session=session, key=key)
        model._tell("student", 0, 1)  # noqa: SLF001  (same package)
        start = time.monotonic()
        student = self.student(model, seeds.student).fit(data.public, labels, classes=classes)
        seconds["student"] = time.monotonic() - start
        model._tell("student", 1, 1)  # noqa: SLF001
        # how many questions went unasked or unanswered depends on the votes, so all of them count
        uses = (len(questions), int((labels != ABSTAIN).sum()))
        paid = {repr(step.mechanism): n for step, n in zip(plan.steps, uses, strict=False)}
        return Run.of(
            model,
            data,
            session,
            plan=plan,
            classes=classes,
            student=student,
            labels=labels,
            asked=questions,
            spent=session.ledger.spent() + plan.left(paid),
            votes=votes,
            seconds=seconds,
            **self.facts(model, data, teachers, student),
        )

    def teachers(self, model: Any, data: Data, seeds: Seeds) -> Any:
        """What votes, not trained."""
        return TeacherEnsemble(
            self.teacher(model, data),
            n_teachers=self.plan.n_teachers,
            engine=model.engine,
            n_jobs=model.n_jobs,
            random_state=seeds.teachers,
            progress=model.progress,
        )

    def train(self, teachers: Any, model: Any, data: Data, session: Session) -> None:
        """Train each teacher on its shard."""
        teachers.fit(data.X, data.y, data.groups, classes=model.classes, manifest=session.manifest)

    def teacher(self, model: Any, data: Data) -> Any:
        """What is trained on each shard."""
        n_units = data.n_units // self.plan.n_teachers
        return _teacher(model.estimator, n_features=data.X.shape[1], n_units=n_units)

    def student(self, model: Any, seed: int, *, asking: bool = False) -> Any:
        """The student to train; while asking, a faster student replaces "auto"."""
        if isinstance(model.student, Distilled):
            return clone(model.student)
        kind = "auto" if model.student is None else model.student
        return Distilled("spreading" if asking and kind == "auto" else kind, random_state=seed)

    def settings(self, model: Any, teachers: Any) -> tuple[Any, ...]:
        """What makes these answers others, beside the data, the plan and the seeds."""
        return model.asks, model.student, teachers.estimator, *settings_of(model.consistent)

    def rehearse(self, model: Any, data: Data, teachers: TeacherEnsemble, n_classes: int) -> None:
        """Try teachers, accounting, recording and student on made-up labels and votes, before any charge.

        Raises
        ------
        ValueError
            One of them fails; the message says what it raised.
        """
        same_questions(model.consistent, data.public, secret=bytes(32), teachers="rehearsal")
        teachers.dry_run(data.public, n_classes=n_classes, n_rows=data.n_units // teachers.n_teachers)
        self.try_accounting(n_classes)
        self.try_student(model, data, n_classes)

    def try_student(self, model: Any, data: Data, n_classes: int) -> None:
        """Let the student learn made-up labels of public rows, so that a failure comes before any charge."""
        sample = _safe_indexing(data.public, np.arange(min(data.public.shape[0], 10 * n_classes)))
        try:
            self.student(model, 0, asking=True).fit(sample, np.arange(sample.shape[0]) % n_classes)
        except Exception as error:
            raise ValueError(
                f"student {model.student!r} cannot learn; on public rows with made-up labels it says: {error}"
            ) from error

    def try_accounting(self, n_classes: int) -> None:
        """Account for made-up votes and record them, so that a failure comes before any charge."""
        counts = np.zeros((1, n_classes))
        counts[0, 0] = self.plan.n_teachers
        try:
            curve = self.plan.curve().to_dict()
            Result(kind="learn", owner=self._figures(counts), upper={"curve": curve}).to_json()
        except Exception as error:
            raise ValueError(
                f"{self.plan.mechanism!r} cannot be accounted for, so nothing was charged; on made-up votes "
                f"it says: {type(error).__name__}: {error}"
            ) from error

    def ask(
        self, model: Any, data: Data, seeds: Seeds, teachers: TeacherEnsemble, *, session: Session, key: str
    ) -> tuple[np.ndarray, np.ndarray, Private]:
        """Let the teachers vote on candidate rows, and ask about as many of these as planned.

        Returns the label of each public row, the rows that were asked about in this order, and their votes.
        After an interruption, the same key finds the answers in the ledger.
        """
        public, n_answers = data.public, self.plan.n_answers
        rule = same_questions(model.consistent, public, secret=session.secret, teachers=key)
        order = np.random.default_rng(seeds.asking).permutation(public.shape[0])
        chance = model.asks == "random"
        pool = np.sort(order[: n_answers if chance else _CANDIDATES * n_answers])
        rows, student = _safe_indexing(public, pool), self.student(model, seeds.student, asking=True)
        votes, answers = teachers.vote(rows), np.full(len(pool), ABSTAIN)
        questions, waiting = np.empty(0, dtype=np.int64), np.searchsorted(pool, order[: len(pool)])
        for step, size in enumerate((n_answers,) if chance else schedule(n_answers=n_answers)):
            batch = waiting[:size]  # at random; else typical rows first, then those least certain
            if step == 0 and not chance and not hasattr(rows, "iloc"):
                batch = np.asarray(typical(rows, n=size, random_state=seeds.asking))
            elif not chance and (answers != ABSTAIN).any():
                student.fit(rows, answers, classes=range(len(data.classes(model.classes))))
                if hasattr(student, "predict_proba"):
                    batch = uncertainty_sampling(student.predict_proba(rows), n=size, among=waiting)
            question, name = self.plan.mechanism, f"{key}/answers"
            if rule is None:
                places = hashlib.sha256(pool[batch].astype("<i8").tobytes()).hexdigest()[:16]
                name = f"{name}/{step}/{places}"
            else:
                question = rule.once(question, _safe_indexing(public, pool[batch]))
            answers[batch] = release(question, votes[batch], ledger=session.ledger, key=name)
            questions = np.concatenate([questions, batch])
            waiting = waiting[~np.isin(waiting, batch)]
            model._tell("answers", len(questions), n_answers)  # noqa: SLF001
        labels = np.full(public.shape[0], ABSTAIN)
        labels[pool] = answers
        return labels, pool[questions], votes[questions]

    def facts(self, model: Any, data: Data, teachers: TeacherEnsemble, student: Any) -> dict[str, Any]:
        """How the record names what voted and learned, and what it says about them."""
        noise = "a secret and the question (HMAC-SHA256)" if model.consistent else "the operating system"
        return {
            "ensemble": teachers,
            "student_name": student.name_,
            "teacher": repr(getattr(teachers, "estimator", teachers)),
            "asks": model.asks,
            "noise": f"ChaCha20 keyed by {noise}",
            "notes": (*teachers.notes_, f"{data.public_numbers}, and the partition, are treated as public."),
            "predicted": student.predict(data.public),
            "public": data.public,
        }

    def trial(self, model: Any, world: World, rng: np.random.Generator) -> float:
        """Accuracy if all teachers vote like a few, which are trained."""
        plan, public, n_classes = self.plan, world.public, world.facts.n_classes
        questions = rng.permutation(public.shape[0])[: plan.n_answers]
        posed = _safe_indexing(public, questions)
        size = max(1, world.facts.n_units // plan.n_teachers)
        teacher = _teacher(model.estimator, n_features=public.shape[1], n_units=size)
        shares = np.zeros((len(questions), n_classes))
        for _ in range(_TEACHERS):
            shard = rng.integers(0, len(world.y), size=size)
            y = world.y[shard]
            constant = (y == y[0]).all()
            ballots = (
                y[0] if constant else clone(teacher).fit(_safe_indexing(world.rows, shard), y).predict(posed)
            )
            shares[np.arange(len(questions)), ballots] += 1
        votes = np.array([rng.multinomial(plan.n_teachers, share / share.sum()) for share in shares])
        labels = np.full(public.shape[0], ABSTAIN)
        labels[questions] = plan.mechanism.release(Private(votes, Adjacency.one_ballot()), rng=rng)
        if (labels == ABSTAIN).all():
            return 1 / n_classes
        # spreading stands in for "auto", which takes longer to fit
        student = self.student(model, 0, asking=True)
        return world.score(student.fit(public, labels, classes=np.arange(n_classes)))

    def record(self, run: Run, owned: Owned) -> dict[str, Any]:
        """Count the answers given; for the owner, the cost of these votes and the teachers that failed."""
        answered = int((run.labels != ABSTAIN).sum())
        return {
            "utility": {"answered": answered, "abstained": len(run.asked) - answered},
            "owner": {
                **self._figures(owned.votes.open()),
                **({} if owned.ensemble is None else {"n_failed": owned.ensemble.count_failed()}),
                "seconds": owned.seconds,
            },
        }

    def _figures(self, counts: np.ndarray) -> dict[str, Any]:
        """Return the cost of answers to these votes, and the teachers' agreement. For the owner only."""
        mechanism, delta = self.plan.mechanism, self.plan.delta
        total = exact_curve(mechanism, counts)
        order = total.best_order(delta)
        composed = exact_profiles(mechanism, counts, at=[len(counts)])
        return {
            "epsilon_these_votes": min(curve.epsilon(delta) for curve in (total, *(composed or ()))),
            "consensus": counts.max(axis=1) / self.plan.n_teachers,
            "cost": exact_rdp(mechanism, counts, orders=(order,))[:, 0],
            "cost_order": order,
            "repeats": leakage_panel(mechanism, counts, delta=delta),
            "price": self.plan.curve(1).rdp[total.orders.index(order)],
        }

    def finding(self, run: Run, **settings: Any) -> Finding:
        """The lower bound of an adversary who knows every vote but one."""
        from ostraka.audit.runs import audit_run  # noqa: PLC0415  (half the time of importing the estimator)

        plan = self.plan
        return audit_run(
            plan.mechanism,
            n_answers=plan.n_answers,
            n_teachers=plan.n_teachers,
            n_classes=len(run.classes),
            claimed_epsilon=plan.epsilon,
            delta=plan.delta,
            **settings,
        )

    def require_hope(self, *, n_classes: int, n_public: int, epsilon: float, **_: Any) -> None:
        """Raise ValueError if there are too few answers to learn from."""
        plan, enough = self.plan, _LEAST * n_classes
        if plan.n_answers >= enough:
            return
        if n_public < enough:
            raise ValueError(
                f"{n_public:,} public rows are too few to ask: {n_classes} classes need {enough:,} answers. "
                f"Nothing was spent. Bring {enough:,} public rows, or type --answers N to ask all the same"
            )
        raise ValueError(
            f"epsilon={epsilon:g} pays for {plan.n_answers:,} answers of {plan.n_teachers:,} teachers, too "
            f"few for {n_classes} classes, which need {enough:,}. Nothing was spent. Type a "
            "larger --epsilon, or --answers N to ask all the same. More teachers (--teachers N) are heard "
            "through more noise, so that an answer of theirs costs less"
        )

    def words(self, *, n_units: int, n_public: int, unit: str, teacher: str) -> dict[str, str]:
        """The teachers, the mechanism, the screen if there is one, and the questions."""
        plan = self.plan
        size = n_units // plan.n_teachers
        many = unit if size == 1 else MANY[unit]
        return {
            "teachers": f"{plan.n_teachers:,} × {teacher}, about {size:,} {many} each",
            **{name: text for name, text in named(plan.mechanism).items() if text is not None},
            "answers": f"{plan.n_answers:,} of {n_public:,} public rows",
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prompts:
    """Prompts as the teachers of :class:`~ostraka.PATEClassifier`, with the texts of the rows that it fits.

    Attributes
    ----------
    ensemble : PromptEnsemble
        Not fitted. It gets its number of teachers and its classes from the plan.
    private : sequence of str
        Private. What a prompt shows of each private row.
    public : sequence of str
        What it asks about each public row.
    """

    ensemble: PromptEnsemble
    private: Sequence[str]
    public: Sequence[str]

    def __repr__(self) -> str:
        return f"Prompts(model={self.ensemble.model!r}, n_shots={self.ensemble.n_shots})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted(Argmax):
    """Prompts vote; the student learns from the columns."""

    def teachers(self, model: Any, data: Data, seeds: Seeds) -> PromptEnsemble:  # noqa: ARG002
        """The prompts, for the classes and the number of teachers of the plan."""
        ensemble: PromptEnsemble = model.estimator.ensemble  # the user's, which stays as it is
        return replace(
            ensemble,
            n_teachers=self.plan.n_teachers,
            classes=data.classes(model.classes).tolist(),
            progress=model.progress,
        )

    def train(self, teachers: PromptEnsemble, model: Any, data: Data, session: Session) -> None:
        """Deal the texts of private rows to the prompts."""
        teachers.fit(model.estimator.private, data.y, data.groups, manifest=session.manifest)
        model._tell("teachers", self.plan.n_teachers, self.plan.n_teachers)  # noqa: SLF001  (same package)

    def settings(self, model: Any, teachers: PromptEnsemble) -> tuple[Any, ...]:
        """The student, and all that a prompt is made of."""
        endpoint = teachers.endpoint
        place = endpoint if isinstance(endpoint, str) else getattr(endpoint, "url", "")
        texts = list(model.estimator.private), list(model.estimator.public)
        return model.student, teachers.model, teachers.n_shots, repr(teachers.template), place, texts

    def rehearse(self, model: Any, data: Data, teachers: PromptEnsemble, n_classes: int) -> None:  # noqa: ARG002
        """Try accounting, recording and student on made-up labels and votes, before any charge."""
        prompts = model.estimator
        if model.consistent is not False:
            raise ValueError(
                f"consistent must be False for prompts, got {model.consistent!r}: the grid of "
                "public numbers does not say which texts are the same"
            )
        if (len(prompts.private), len(prompts.public)) != (len(data.y), data.public.shape[0]):
            raise ValueError("Prompts must have one text for each private row, and for each public one")
        self.try_accounting(n_classes)
        self.try_student(model, data, n_classes)

    def ask(
        self, model: Any, data: Data, seeds: Seeds, teachers: Any, *, session: Session, key: str
    ) -> tuple[np.ndarray, np.ndarray, Private]:
        """Ask about as many public rows as planned, drawn at random: each costs a call for each teacher."""
        n_public, n_answers = data.public.shape[0], self.plan.n_answers
        questions = np.random.default_rng(seeds.asking).permutation(n_public)[:n_answers]
        votes = teachers.vote([model.estimator.public[row] for row in questions.tolist()])
        labels = np.full(n_public, ABSTAIN)
        labels[questions] = release(self.plan.mechanism, votes, ledger=session.ledger, key=f"{key}/answers")
        model._tell("answers", n_answers, n_answers)  # noqa: SLF001
        return labels, questions, votes

    def facts(self, model: Any, data: Data, teachers: PromptEnsemble, student: Any) -> dict[str, Any]:
        """How the record names what voted and learned; the texts in the prompts are kept by nobody."""
        facts = Argmax.facts(self, model, data, teachers, student)
        noise = "ChaCha20 keyed by the operating system"
        return facts | {"ensemble": None, "teacher": repr(model.estimator), "asks": "random", "noise": noise}


def same_questions(consistent: Any, public: Any, *, secret: bytes, teachers: str) -> Consistent | None:
    """Return the rule by which this fit recognises repeats; None if every row is a question of its own.

    Raises
    ------
    ValueError
        Not a bool or Consistent, or public rows that are not a table of cells.
    """
    if consistent is False:
        return None
    if isinstance(consistent, Consistent):
        return replace(consistent, teachers=f"{consistent.teachers}/{teachers}")
    if consistent is not True:
        raise ValueError(f"consistent must be a bool or a Consistent, got {consistent!r}")
    if not (hasattr(public, "columns") or isinstance(public, np.ndarray)):
        raise ValueError("consistent=True needs public rows as an array or data frame")
    grid = Consistent.grid_of(public)
    # the fit's key, by which the teachers are named here, is a digest of these rows, and so of their grid
    return Consistent(secret=secret, grid=grid, teachers=teachers, kept=True, grid_in_teachers=True)


def settings_of(consistent: Any) -> tuple[str, ...]:
    """What belongs into the fit's key of a rule that is given: the name of its secret, steps and columns.

    What ``True`` means follows from the public rows, which are in the key.
    """
    if not isinstance(consistent, Consistent):
        return ()
    grid = consistent.grid
    steps = sorted(grid.items()) if isinstance(grid, Mapping) else float(grid)
    return (consistent.name, repr(steps), repr(consistent.columns))


def _teacher(estimator: Any, *, n_features: int, n_units: int) -> Any:
    """Return the given teacher, else trees if a shard has more units than features.

    One person's number of rows is that person's own: it may not choose the kind of all teachers.
    """
    if estimator is not None:
        return estimator
    return KNeighborsClassifier(1) if n_features >= n_units else DecisionTreeClassifier(min_samples_leaf=3)
