"""Counters as Prometheus text. Public quantities only: no label, no row, no question."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from ostraka.service import _clock

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Metrics"]

_EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Counts of requests since this process started."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()  # rows, by client
        self.refusals: Counter[tuple[str, str]] = Counter()  # requests, by client ("" unknown) and code
        self.last_refused: dict[tuple[str, str], int] = {}
        self._slower: list[int] = [0] * (len(_EDGES) + 1)
        self._seconds = 0.0

    def answered(self, client: str, *, rows: int, seconds: float) -> None:
        """Count one request that was answered."""
        self.answers[client] += rows
        self._seconds += seconds
        self._slower[bisect_left(_EDGES, seconds)] += 1

    def refused(self, client: str, code: str) -> None:
        """Count one request that was refused."""
        self.refusals[client, code] += 1
        self.last_refused[client, code] = _clock.now()

    def text(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """All counts and the given gauges (name, meaning, value)."""
        lines = [
            "# HELP ostraka_answers_total Rows answered, by client.",
            "# TYPE ostraka_answers_total counter",
        ]
        lines += [f'ostraka_answers_total{{client="{who}"}} {n}' for who, n in sorted(self.answers.items())]
        lines += [
            "# HELP ostraka_refusals_total Requests refused, by client and code.",
            "# TYPE ostraka_refusals_total counter",
        ]
        lines += [
            f'ostraka_refusals_total{{client="{who}",code="{code}"}} {n}'
            for (who, code), n in sorted(self.refusals.items())
        ]
        lines += [
            "# HELP ostraka_answer_seconds From the whole body read to the reply, of answered requests.",
            "# TYPE ostraka_answer_seconds histogram",
        ]
        totals = list(itertools.accumulate(self._slower))
        lines += [
            f'ostraka_answer_seconds_bucket{{le="{edge:g}"}} {n}'
            for edge, n in zip((*_EDGES, float("inf")), totals, strict=True)
        ]
        lines += [
            f"ostraka_answer_seconds_sum {self._seconds:.6f}",
            f"ostraka_answer_seconds_count {totals[-1]}",
        ]
        for name, meaning, value in gauges:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines).replace('le="inf"', 'le="+Inf"') + "\n"
