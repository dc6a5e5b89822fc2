"""Many questions in one fit: processor time of choosing and asking, and of recording.

The teachers are 100 logistic regressions on Gaussian classes, the student another. Training is left out.
``typical`` rows are chosen in parts, beside all clusters at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
from sklearn.linear_model import LogisticRegression

from ostraka import GNMax, PATEClassifier
from ostraka.learn import classifier as _fitted
from ostraka.learn.students import distil as query_strategy
from ostraka.learn.ways import argmax as _learning

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

QUESTIONS, PUBLIC, CLASSES, COLUMNS, AT_ONCE = 10_000, 20_000, 10, 10, True
QUICK = {"QUESTIONS": 40, "PUBLIC": 80, "AT_ONCE": False}


def timed(module: Any, name: str, spent: dict[str, float]) -> AbstractContextManager[object]:
    """Let a function of a module add its processor time to ``spent``, for a while."""
    function: Callable[..., Any] = getattr(module, name)

    def work(*arguments: Any, **named: Any) -> Any:
        start = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.process_time() - start

    return mock.patch.object(module, name, work)


def main() -> None:
    """Fit once, and print where the time went."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(CLASSES, COLUMNS))
    y = rng.integers(0, CLASSES, 5000)
    X = centres[y] + rng.normal(size=(len(y), COLUMNS))
    public = centres[rng.integers(0, CLASSES, PUBLIC)] + rng.normal(size=(PUBLIC, COLUMNS))
    model = PATEClassifier(
        LogisticRegression(),
        n_teachers=100,
        mechanism=GNMax(sigma=200.0),
        n_answers=QUESTIONS,
        epsilon=50.0,
        delta=1e-6,
        student=LogisticRegression(),
        classes=range(CLASSES),
        n_jobs=1,
        random_state=0,
    )
    spent: dict[str, float] = {}
    with (
        threadpoolctl.threadpool_limits(1),
        timed(_learning, "typical", spent),
        timed(_learning.Argmax, "ask", spent),
        timed(_fitted, "record", spent),
    ):
        model.fit(X, y, public)
    print(
        f"  {QUESTIONS:,} questions: chosen, asked and answered {spent['ask']:.2f} s of processor, of "
        f"which typical rows {spent['typical']:.2f}; recorded {spent['record']:.2f}"
    )
    if AT_ONCE:
        start = time.process_time()
        with threadpoolctl.threadpool_limits(1), mock.patch.object(query_strategy, "_AT_ONCE", QUESTIONS):
            query_strategy.typical(public, n=QUESTIONS // 2, random_state=0)
        print(f"  typical rows by all clusters at once {time.process_time() - start:.2f} s")


if __name__ == "__main__":
    main()
