"""What each way is expected to give at each price, forecast on public rows alone."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.data import task as tasks
from ostraka.data.table import read
from ostraka.learn.classifier import PATEClassifier
from ostraka.learn.ways.choose import cells_of, made_up
from ostraka.learn.ways.forecast import forecast, proxy_worlds
from ostraka.learn.ways.plan import Facts

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.data.task import Columns, Task

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_FEWEST = 120  # public rows with true labels that stand for the private ones
_HALF = 0.5
_TRUE = "public rows with their true labels stand for the private rows"
_MADE_UP = (
    "public rows with made-up labels stand for the private rows, so that ways can be compared: how hard your "
    "task is, nobody knows before the model is measured"
)


class Outlook:
    """Forecasts of accuracy, way by way and price by price, as they come.

    Parameters
    ----------
    private, public, columns, holdout
        As of :func:`ostraka.data.task.tables`.

    Guarantees
    ----------
    Of the private table it uses the number of units and of classes alone, which count as public. Accuracies
    are of public rows.
    """

    WAYS = ("counts", "rounds", "filter", "argmax")

    def __init__(
        self, private: Path, public: Path | None, *, columns: Columns, holdout: float | None
    ) -> None:
        self._private, self._public, self._columns, self._holdout = private, public, columns, holdout
        self._stopped = self.done = False
        self._basis = ""
        self._accuracies: dict[str, dict[float, tuple[float, float, float] | None]] = {}

    def stop(self) -> None:
        """End :meth:`run` at the next price."""
        self._stopped = True

    def run(self) -> None:
        """Forecast every way at every price: the middle of the slider first."""
        task = tasks.tables(self._private, self._public, columns=self._columns, holdout=self._holdout, seed=0)
        delta = min(1e-5, 0.1 / task.n_units)
        rows, labels = self._stand_in(task)
        for epsilon in sorted(EPSILONS, key=lambda each: abs(math.log(each))):
            facts = Facts(
                n_units=task.n_units,
                n_classes=task.n_classes,
                n_public=len(task.X_public),
                grouped=task.groups is not None,
                epsilon=epsilon,
                delta=delta,
            )
            worlds = proxy_worlds(rows, labels, facts, seed=0)
            for way in self.WAYS:
                if self._stopped:
                    return
                if way == "rounds" and facts.grouped:  # it protects rows, not people
                    continue
                model = PATEClassifier(
                    way=way,
                    epsilon=epsilon,
                    delta=delta,
                    cells=None if way in {"rounds", "filter"} else cells_of(task.image_shape),
                )
                expected = forecast(model, worlds, unit=task.shape.unit, seed=0).accuracy
                ends = None if expected is None else (expected.low, expected.best, expected.high)
                self._accuracies.setdefault(way, {})[epsilon] = ends
        self.done = True

    def _stand_in(self, task: Task) -> tuple[Any, np.ndarray]:
        """Public rows and labels in the place of the private ones; made-up labels where there are none.

        Labels of rows that were held out are private ones, and are not looked at.
        """
        columns = replace(self._columns, person=None, rows_are_people=True)
        if self._public is not None:
            names = read(self._public, public=True, form=tasks.public_form(self._public, columns.form)).names
            columns = replace(columns, drop=[name for name in columns.drop if name in names])
            if columns.label in names:
                with contextlib.suppress(ValueError):  # too few labels, or other classes
                    known = tasks.tables(self._public, None, columns=columns, holdout=_HALF, seed=0)
                    labels = np.concatenate([known.y_private, known.y_test])
                    codes = np.unique(labels, return_inverse=True)[1]
                    if len(codes) >= _FEWEST and codes.max() + 1 == task.n_classes:
                        self._basis = _TRUE
                        return np.concatenate([known.X_private, known.X_test]), codes
        self._basis = _MADE_UP
        return task.X_public, made_up(task.X_public, task.n_classes, np.random.default_rng(0))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: for each way, low, expected and high accuracy at each price, or null."""
        return {
            "basis": self._basis,
            "done": self.done,
            "ways": {
                way: [[epsilon, known[epsilon]] for epsilon in EPSILONS if epsilon in known]
                for way, known in self._accuracies.copy().items()
            },
        }
