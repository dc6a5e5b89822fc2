"""Public bins and a model of their counts, as a scikit-learn pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder

if TYPE_CHECKING:
    from ostraka.students import MomentLogistic
    from ostraka.voters import QuantileCells

__all__ = ["binned"]


def binned(cells: QuantileCells, model: MomentLogistic) -> Pipeline:
    """Convert a binned classifier to a pipeline: bins of numbers, categorical columns, one weight for each.

    Raises
    ------
    ValueError
        The bins are of a data frame; only those of plain arrays of numbers can be written so.
    """
    blocks = cells._one_hot  # noqa: SLF001  (its fitted parts are the model)
    if blocks is None:
        raise ValueError("bins of a data frame are no scikit-learn model: keep the student as it is")
    ends = np.cumsum([book.shape[1] for book in cells.codebooks_])[:-1]
    weights = np.split(model.coef_, ends)
    edges: list[np.ndarray] = []
    alone: list[int] = []
    together: list[int] = []
    numbers: list[np.ndarray] = []
    kinds: list[np.ndarray] = []
    intercept = model.intercept_.copy()
    for block, (_, known), weight in zip(blocks, cells._bins, weights, strict=True):  # noqa: SLF001
        if len(block) == 1:
            alone += block
            edges.append(np.nextafter(known, np.inf))  # a bin holds its upper end here, and its lower there
            numbers.append(weight[:-1])
        else:
            names = known.tolist()  # of columns with a bin of their own
            own = [names.index(str(k)) if str(k) in names else len(names) for k in range(len(block))]
            together += block
            kinds.append(weight[own] - weight[-1])
            intercept += weight[-1]
    coefficients = np.concatenate([np.empty((0, len(intercept))), *numbers, *kinds])
    steps = [("bins", _discretiser(edges), alone)] if alone else []
    steps += [("kinds", "passthrough", together)] if together else []
    return Pipeline(
        [
            ("bins", _applied(steps, n_columns=len(alone) + len(together))),
            ("weights", _linear(coefficients, intercept, model.classes_)),
        ]
    )


def _discretiser(edges: list[np.ndarray]) -> KBinsDiscretizer:
    """Return a fitted discretiser with these inner edges."""
    sizes = np.array([len(inner) + 1 for inner in edges])
    made = KBinsDiscretizer(encode="onehot-dense", strategy="uniform", subsample=None)
    made.bin_edges_ = np.empty(len(edges), dtype=object)
    made.bin_edges_[:] = [np.concatenate([[-np.inf], inner, [np.inf]]) for inner in edges]
    made.n_bins_, made.n_features_in_ = sizes, len(edges)
    spread = OneHotEncoder(categories=[np.arange(size) for size in sizes], sparse_output=False)
    made._encoder = spread.fit(np.zeros((1, len(edges))))  # noqa: SLF001  (as its own fit does)
    return made


def _applied(steps: list[tuple[str, Any, list[int]]], *, n_columns: int) -> ColumnTransformer:
    made = ColumnTransformer([(name, "passthrough", places) for name, _, places in steps], sparse_threshold=0)
    made.fit(np.zeros((1, n_columns)))
    made.transformers = steps
    fitted = {name: step for name, step, _ in steps if step != "passthrough"}
    made.transformers_ = [(name, fitted.get(name, step), at) for name, step, at in made.transformers_]
    return made


def _linear(coefficients: np.ndarray, intercept: np.ndarray, classes: np.ndarray) -> LogisticRegression:
    made = LogisticRegression()
    if len(classes) == 2:
        coefficients, intercept = (each[..., 1:] - each[..., :1] for each in (coefficients, intercept))
    made.coef_, made.intercept_, made.classes_ = coefficients.T.copy(), intercept, classes
    made.n_features_in_, made.n_iter_ = len(coefficients), np.array([1], dtype=np.int32)
    return made
