"""Rate limits of clients. A rate limit delays a request; no budget depends on it."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEMBERED = 20_000


class Buckets:
    """One token bucket per client, on a monotonic clock; those of the latest clients are remembered."""

    def __init__(self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        check.positive(rate=rate)
        check.integer(burst=burst, least=1)
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._level: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, rows: int) -> int:
        """Return 0 if this many rows may be asked about now, else the whole seconds to wait."""
        now = self._clock()
        level, then = self._level.pop(client, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._rate)
        wanted = min(float(rows), self._burst)  # a batch larger than the burst needs a full bucket
        if level < wanted:
            self._level[client] = level, now
            return math.ceil((wanted - level) / self._rate)
        self._level[client] = level - rows, now
        if len(self._level) > _REMEMBERED:
            self._level.popitem(last=False)
        return 0
