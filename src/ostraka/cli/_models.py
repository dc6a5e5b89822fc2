"""Teachers, students and engines by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

__all__ = ["Engine", "Student", "Teacher", "Way"]


class Engine(StrEnum):
    """Where teachers train: here, or on the cluster in use."""

    JOBLIB = "joblib"
    RAY = "ray"
    DASK = "dask"


class Way(StrEnum):
    """How private rows answer."""

    ARGMAX = "argmax"
    COUNTS = "counts"
    AUTO = "auto"


class Teacher(StrEnum):
    """What is trained on each shard."""

    AUTO = "auto"
    LOGISTIC = "logistic"
    NEIGHBOUR = "neighbour"
    TREE = "tree"
    FOREST = "forest"

    def estimator(self, *, default: Teacher) -> Any:
        """A scikit-learn classifier; ``auto`` is the default."""
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.tree import DecisionTreeClassifier

        return {
            Teacher.LOGISTIC: _logistic(),
            Teacher.NEIGHBOUR: KNeighborsClassifier(n_neighbors=1),
            Teacher.TREE: DecisionTreeClassifier(min_samples_leaf=3),
            Teacher.FOREST: RandomForestClassifier(n_estimators=20, min_samples_leaf=2),
        }[default if self is Teacher.AUTO else self]


class Student(StrEnum):
    """What learns from the answers."""

    AUTO = "auto"
    LOGISTIC = "logistic"
    BOOSTING = "boosting"
    SPREADING = "spreading"
    SELF_TRAINING = "self-training"

    def estimator(self, *, default: Student) -> Any:
        """A scikit-learn classifier, or the name of a student of ours; ``auto`` is the default."""
        chosen = default if self is Student.AUTO else self
        return _logistic() if chosen is Student.LOGISTIC else chosen.value


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=300)
