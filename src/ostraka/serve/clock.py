"""Times on the owner's page, in UTC. No decision depends on them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

DAY = 86_400
_FURTHEST = 100 * 366 * DAY  # beyond that no date is told
_UNITS = ((DAY, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def now() -> int:
    """Return the seconds since 1970."""
    return int(time.time())


def utc(at: int | None) -> str:
    """Format day and time to the second; a dash for an entry without a time."""
    return "–" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def date(at: float) -> str:
    """Format the day of a time; words for a time that is far away."""
    return (
        "after a hundred years" if at > now() + _FURTHEST else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
    )


def lasting(seconds: float) -> str:
    """Format a duration in its largest whole unit, rounded down.

    >>> lasting(200_000), lasting(90), lasting(0.5)
    ('2 days', '1 minute', 'less than a second')
    """
    for size, name in _UNITS:
        if seconds >= size:
            n = int(min(seconds, _FURTHEST) // size)
            return f"{n:,} {name}{'s' if n > 1 else ''}"
    return "less than a second"
