"""Run: the facts of one fit in one value. Both estimators fill it; the record is made from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from ostraka.curve import Curve
    from ostraka.ledger import Ledger
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.plan import LabelPlan, Plan
    from ostraka.private import Private
    from ostraka.voters import TeacherEnsemble
    from ostraka.voters.shards import Manifest

__all__ = ["PRIVATE_ATTRIBUTES", "Owned", "Run"]

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

    ensemble: TeacherEnsemble | None
    ledger: Ledger
    manifest: Manifest
    votes: Private
    public: Any
    seconds: dict[str, float]


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

    plan: Plan | LabelPlan | CountsPlan
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

    def public(self) -> Run:
        """The same run without the owner's part."""
        return replace(self, owned=None)
