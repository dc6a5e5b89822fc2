"""Rows that vote with features of their own, for the benchmarks: by counts or in rounds, under two promises.

Features come as they are, from public rows alone. Noise is seeded, so that a figure can be repeated: a
simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from sklearn.preprocessing import FunctionTransformer

from bench.utility import RELATIONS, posterior
from ostraka.learn.ways.plan import Facts
from ostraka.learn.ways.rounds import Rounds
from ostraka.voters import RowVoter
from ostraka.voters.rows import FeatureCells

if TYPE_CHECKING:
    from collections.abc import Iterator

_RESOLUTION = {"counts": 1024, "rounds": 64}


class Voting(NamedTuple):
    """Private rows that vote in one way; ``fresh`` are lines of rows to score on, of length 1."""

    name: str
    voter: RowVoter
    fresh: np.ndarray

    def right(self, epsilon: float, seed: int, truth: np.ndarray) -> np.ndarray:
        """Which rows get their true class after one run at this budget; delta 1e-5."""
        learned = posterior if self.name.startswith("counts") else rounds
        coef = learned(self.voter, epsilon=epsilon, seed=seed).coef_
        return np.asarray((self.fresh @ coef).argmax(axis=1) == truth)


def each_way(
    public_features: np.ndarray,
    private: np.ndarray,
    y: np.ndarray,
    fresh: np.ndarray,
    *,
    n_features: int | None = None,
    relations: tuple[Literal["replace-one", "zero-out"], ...] = RELATIONS,
) -> Iterator[Voting]:
    """By counts and in rounds, each under these neighbouring relations; all arrays hold features."""
    for method, resolution in _RESOLUTION.items():
        cells = FeatureCells(FunctionTransformer(), n_features=n_features, resolution=resolution).fit(
            public_features
        )
        lines = cells.lines(fresh) / resolution
        for relation in relations:
            voter = RowVoter(cells=cells, relation=relation).fit(private, y, classes=range(int(y.max()) + 1))
            yield Voting(f"{method}, {relation}", voter, lines)


def as_lines(public_features: np.ndarray, rows: np.ndarray, *, n_features: int | None = None) -> np.ndarray:
    """The lines of rows, of length 1, for rivals."""
    cells = FeatureCells(FunctionTransformer(), n_features=n_features).fit(public_features)
    return np.asarray(cells.lines(rows) / cells.resolution)


def rounds(voter: RowVoter, *, epsilon: float, seed: int) -> Any:
    """The model after all rounds; delta 1e-5."""
    facts = Facts(
        n_units=voter.n_units_,
        n_classes=len(voter.classes_),
        grouped=False,
        epsilon=epsilon,
        delta=1e-5,
        relation=voter.relation,
    )
    rounds_plan, noise = Rounds.of_cells(voter.cells, facts), np.random.default_rng(seed)

    def noisy(coef: np.ndarray, _: int) -> np.ndarray:
        return np.asarray(rounds_plan.plan.mechanism.release(rounds_plan.table(voter, coef), rng=noise))

    return rounds_plan.learned(len(voter.classes_), noisy)
