"""Finding: an upper and a lower bound for the same quantity, and the verdict that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ostraka.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Finding", "Measure", "Verdict"]

Verdict = Literal["consistent", "violated", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One quantity of a promise: its promised upper bound, its exact value, and its lower bound.

    Attributes
    ----------
    what : str
        Such as ``"order 2"`` or ``"epsilon at delta 1e-05"``.
    upper : float, nats
        The promise.
    exact : float or None, nats
        The same of these two worlds by the outcome map; None for a black box.
    lower : float, nats
        The lower bound from what was seen, at the finding's confidence.
    """

    what: str
    upper: float
    exact: float | None
    lower: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one audit.

    Attributes
    ----------
    name : str
        The system that was audited.
    verdict : {"consistent", "violated", "inconclusive"}
    sentence : str
        The same in plain words.
    measures : tuple of Measure
    confidence : float
        All lower bounds of the finding hold together with this probability.
    trials : int
        In each world.
    method, note : str

    Examples
    --------
    >>> from ostraka.audits import audit_answers
    >>> audit_answers([990, 10], [20, 980], claimed_epsilon=3.0, delta=1e-5).to_dict()["verdict"]
    'violated'
    """

    name: str
    verdict: Verdict
    sentence: str
    measures: tuple[Measure, ...]
    confidence: float
    trials: int
    method: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "measures": [
                {"what": m.what, "upper": _plain(m.upper), "exact": _plain(m.exact), "lower": m.lower}
                for m in self.measures
            ],
            "confidence": self.confidence,
            "trials": self.trials,
            "method": self.method,
            "note": self.note,
        }

    @staticmethod
    def result(findings: Sequence[Finding]) -> Result:
        """Findings as a record, from which :mod:`ostraka.plots` draws.

        They are for the owner only: lower bounds of trained models were not released by any mechanism.

        Examples
        --------
        >>> from ostraka.audits import audit_answers
        >>> finding = audit_answers([990, 10], [20, 980], claimed_epsilon=3.0, delta=1e-5)
        >>> Finding.result([finding]).kind
        'audit'
        """
        return Result(kind="audit", owner={"audit": [finding.to_dict() for finding in findings]})


def _plain(value: float | None) -> float | str | None:
    return "inf" if value == math.inf else value
