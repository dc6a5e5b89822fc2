"""Finding: an upper and a lower bound for the same thing, and what they say together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ostraka.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Finding", "Measure", "Verdict", "audit_record"]

Verdict = Literal["consistent", "violated", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of a promise: what was promised, what is exactly so, what was seen.

    Attributes
    ----------
    what : str
        Such as ``"order 2"`` or ``"epsilon at delta 1e-05"``.
    upper : float, nats
        Promised to leak at most.
    exact : float or None, nats
        What these two worlds leak by the outcome map; None for a black box.
    lower : float, nats
        Seen to leak at least, at the finding's confidence.
    """

    what: str
    upper: float
    exact: float | None
    lower: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one audit found.

    Attributes
    ----------
    name : str
        What was audited.
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


def audit_record(findings: Sequence[Finding]) -> Result:
    """Findings as a record, from which :mod:`ostraka.plots` draws.

    They are the owner's: what an audit saw of trained models is nothing that a mechanism released.

    Examples
    --------
    >>> from ostraka.audits import audit_answers
    >>> finding = audit_answers([990, 10], [20, 980], claimed_epsilon=3.0, delta=1e-5)
    >>> audit_record([finding]).kind
    'audit'
    """
    return Result(kind="audit", owner={"audit": [finding.to_dict() for finding in findings]})


def _plain(value: float | None) -> float | str | None:
    return "inf" if value == math.inf else value
