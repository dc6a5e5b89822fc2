"""Teachers, students and engines by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class Engine(StrEnum):
    """The engine that trains teachers: this machine, or the cluster in use."""

    JOBLIB = "joblib"
    RAY = "ray"
    DASK = "dask"


class Way(StrEnum):
    """The way in which private rows vote: through teachers, in one table of counts, or in a table a round.

    ``filter`` reads the tables of its rounds by Kalman filters.
    """

    ARGMAX = "argmax"
    COUNTS = "counts"
    ROUNDS = "rounds"
    FILTER = "filter"
    AUTO = "auto"


class Relation(StrEnum):
    """The neighbouring relation that is promised: a row replaced by any other, or by nothing."""

    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"


class Teacher(StrEnum):
    """The estimator that is trained on each shard."""

    AUTO = "auto"
    LOGISTIC = "logistic"
    NEIGHBOUR = "neighbour"
    TREE = "tree"
    FOREST = "forest"
    NETWORK = "network"
    PROMPTS = "prompts"

    def estimator(self, *, default: Teacher) -> Any:
        """A classifier; ``auto`` is the default."""
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.tree import DecisionTreeClassifier

        chosen = default if self is Teacher.AUTO else self
        if chosen is Teacher.NETWORK:
            from ostraka.core import check
            from ostraka.networks import TorchClassifier

            check.require("torch", extra="torch")
            return TorchClassifier(epochs=40, batch_size=16, learning_rate=5e-3)
        return {
            Teacher.LOGISTIC: _logistic(),
            Teacher.NEIGHBOUR: KNeighborsClassifier(n_neighbors=1),
            Teacher.TREE: DecisionTreeClassifier(min_samples_leaf=3),
            Teacher.FOREST: RandomForestClassifier(n_estimators=20, min_samples_leaf=2),
        }[chosen]


class Student(StrEnum):
    """The estimator that learns from the answers."""

    AUTO = "auto"
    LOGISTIC = "logistic"
    BOOSTING = "boosting"
    SPREADING = "spreading"
    SELF_TRAINING = "self-training"
    FIXMATCH = "fixmatch"

    def estimator(self, *, default: Student) -> Any:
        """A scikit-learn classifier, or the name of a student of ours; ``auto`` is the default."""
        chosen = default if self is Student.AUTO else self
        return _logistic() if chosen is Student.LOGISTIC else chosen.value


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=300)


class Defaults(NamedTuple):
    """The values of options that are not typed."""

    epsilon: float
    epsilon_by_argmax: float  # a hundred answers cost more than one table
    delta: float | None
    n_teachers: int | str
    teacher: Teacher
    student: Student

    def budget(self, way: Way) -> float:
        """The default epsilon."""
        return self.epsilon_by_argmax if way is Way.ARGMAX else self.epsilon


TABLES = Defaults(1.0, 2.0, None, "auto", Teacher.LOGISTIC, Student.LOGISTIC)
DIGITS = Defaults(1.0, 3.2, 1e-4, 100, Teacher.NEIGHBOUR, Student.SPREADING)
