"""The rate at which a budget is used, by the times of entries, and the time until it is spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DAY", "Outlook", "Pace"]

DAY = 86_400  # seconds
_STEP = 600  # seconds that are counted together
_LEAST = 3_600.0  # seconds that a rate is taken over, at least: the first questions are no rate


class Pace:
    """Uses charged in the last day, counted in steps of ten minutes.

    >>> pace = Pace()
    >>> for second in range(0, 3600, 10):
    ...     pace.add(second, 1)
    >>> pace.per_second(now=3600), pace.per_second(now=2 * DAY)
    (0.1, 0.0)
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.steps: dict[int, int] = {}

    def add(self, at: int, uses: int) -> None:
        """Count uses charged at a time. Steps that are too old are forgotten."""
        step = at // _STEP
        self.first = at if self.first is None else min(self.first, at)
        if step in self.steps:
            self.steps[step] += uses
            return
        self.steps[step] = uses
        oldest = step - DAY // _STEP
        self.steps = {each: n for each, n in self.steps.items() if each > oldest}

    def in_a_day(self, now: int) -> int:
        """Uses in the 24 hours before ``now``."""
        return sum(n for step, n in self.steps.items() if step > now // _STEP - DAY // _STEP)

    def per_second(self, now: int) -> float:
        """The rate over the 24 hours before ``now``, or since the first use, but over an hour at least."""
        begin = max(self.first or 0, (now // _STEP - DAY // _STEP + 1) * _STEP)
        return self.in_a_day(now) / max(now - begin, _LEAST)

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {"first": self.first, "steps": list(self.steps.items())}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Pace:
        """Restore from the value of :meth:`plain`."""
        pace = cls()
        pace.first, pace.steps = plain["first"], {int(step): int(n) for step, n in plain["steps"]}
        return pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The number of answers that a budget still pays for, and how long they last. All fields are public.

    Attributes
    ----------
    mechanism : str
        What was charged last; empty before the first charge.
    answers_left : int
        How many more uses of it fit.
    in_a_day : int
        Uses of anything that were charged in the last 24 hours.
    seconds_to_empty : float or None
        How long ``answers_left`` last at that rate; None where nothing was charged in 24 hours.
    """

    mechanism: str = ""
    answers_left: int = 0
    in_a_day: int = 0
    seconds_to_empty: float | None = None
