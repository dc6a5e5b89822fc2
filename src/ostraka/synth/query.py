"""Questions to a generator: counts with intervals, from its noisy tables or from its model. All is public."""

from __future__ import annotations

import math
import re
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from ostraka.core.mechanisms.particles import Particles
from ostraka.synth.models import Pool

if TYPE_CHECKING:
    from ostraka.data.schema import Column, Schema
    from ostraka.synth.sequences import SequenceGenerator
    from ostraka.synth.tables import TableGenerator

_CONDITION = re.compile(r"(.+?)\s*(>=|<=|!=|==|=|>|<)\s*(.+)")
_MOST_GROUPS = 1_000
_MOST_ERRORS = 24  # groups of a model whose error is computed
_FEW = 10  # particles of a group; of fewer nothing is known of its error
_ROWS = 100_000  # that are drawn where a model has no weighted rows


class Answer(NamedTuple):
    """The count of one group."""

    group: tuple[str, ...]
    estimate: float
    low: float  # NaN, as high: no interval is known
    high: float


class Answers(NamedTuple):
    """Counts of all groups, and where they come from: ``"counts"`` or ``"model"``."""

    columns: tuple[str, ...]
    rows: list[Answer]
    source: str
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; an interval that is not known is null."""
        return {
            "columns": list(self.columns),
            "source": self.source,
            "confidence": self.confidence,
            "rows": [
                {
                    "group": list(row.group),
                    "count": row.estimate,
                    "low": None if math.isnan(row.low) else row.low,
                    "high": None if math.isnan(row.high) else row.high,
                }
                for row in self.rows
            ],
        }


class Question(NamedTuple):
    """Columns to group by, and for each column of a condition how much of each code satisfies it."""

    groups: tuple[int, ...]
    shares: dict[int, np.ndarray]

    @property
    def columns(self) -> set[int]:
        """All columns that are asked for."""
        return {*self.groups, *self.shares}


def asked(schema: Schema, text: str) -> Question:
    """Read a question such as ``"age>=65, sex"``."""
    groups: list[int] = []
    shares: dict[int, np.ndarray] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _CONDITION.fullmatch(part)
        place = schema.place((match[1] if match else part).strip())
        if match is None:
            if place not in groups:
                groups.append(place)
            continue
        share = _share(schema.columns[place], match[2], match[3].strip().strip("'\""))
        shares[place] = shares.get(place, 1.0) * share
    if not groups and not shares:
        raise ValueError("a question must name a column or a condition, such as 'age>=65, sex'")
    if math.prod(schema.sizes[j] for j in groups) > _MOST_GROUPS:
        raise ValueError(f"a question must have at most {_MOST_GROUPS:,} groups: group by fewer columns")
    return Question(tuple(groups), shares)


def _share(column: Column, operator: str, text: str) -> np.ndarray:
    """How much of each code satisfies a condition, from 0 to 1; 0 of a missing value."""
    share = np.zeros(column.size)
    equal = operator in {"=", "=="}
    if column.categories:
        if not equal and operator != "!=":
            raise ValueError(f"column {column.name!r} has categories: ask for {column.name}=... or !=...")
        if text not in column.categories:
            raise ValueError(
                f"column {column.name!r} has no category {text!r}; it has {', '.join(column.categories)}"
            )
        share[: column.n_values] = np.array([(name == text) == equal for name in column.categories])
        return share
    value, edges = column.number(text), np.asarray(column.edges)
    if not math.isfinite(value):
        raise ValueError(f"column {column.name!r} has numbers or dates, got {text!r}")
    if column.whole or column.date:  # whole numbers of each bin
        low, high = np.ceil(edges[:-1]), np.ceil(edges[1:])
        first, after = (
            float(math.ceil(value)),
            math.floor(value) + 1.0,
        )  # the first number >= value, and > value
    else:
        low, high, first, after = edges[:-1], edges[1:], value, value
    wide = np.maximum(high - low, 1e-300)
    below, up_to = (np.clip((end - low) / wide, 0, 1) for end in (first, after))
    kinds = {"<": below, "<=": up_to, ">=": 1 - below, ">": 1 - up_to}
    share[: column.n_values] = kinds[operator] if operator in kinds else up_to - below
    if operator == "!=":
        share[: column.n_values] = 1 - (up_to - below)
    return share


def answered(
    generator: TableGenerator | SequenceGenerator, text: str, *, confidence: float = 0.95
) -> Answers:
    """Answer a question from the noisy tables that have all of its columns, else from the model."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence!r}")
    question, schema = asked(generator.coded_, text), generator.coded_
    covering = [columns for columns in generator.tables_ if question.columns <= set(columns)]
    counts: Any
    errors: Any
    if covering:  # the mean of all tables that have the columns, weighted by their noise
        sums: Any = 0.0
        precision: Any = 0.0
        for columns in covering:
            cells, error = generator.marginal(*(schema.names[j] for j in columns))
            squares = np.ones(cells.shape)
            for axis, j in enumerate(columns):
                if j in question.shares:
                    shape = [-1 if k == axis else 1 for k in range(len(columns))]
                    cells = cells * question.shares[j].reshape(shape)
                    squares = squares * np.square(question.shares[j]).reshape(shape)
            others = tuple(axis for axis, j in enumerate(columns) if j not in question.groups)
            grouped = [j for j in columns if j in question.groups]
            order = [grouped.index(j) for j in question.groups]
            count, variance = (
                np.transpose(table.sum(axis=others), order).ravel() for table in (cells, error**2 * squares)
            )
            sums = sums + count / np.maximum(variance, 1e-300)
            precision = precision + 1 / np.maximum(variance, 1e-300)
        counts, errors = sums / precision, precision**-0.5
    else:  # of particles with standard errors from the noise of what was counted
        model, sizes = generator.model_, schema.sizes
        if isinstance(model, Particles | Pool):
            codes, weights = model.codes.astype(np.int64), model.weights
        else:
            codes = model.draw(_ROWS, rng=np.random.default_rng(0))
            weights = np.full(len(codes), 1 / len(codes))
        shares = np.ones(len(codes))
        for j, share in question.shares.items():
            shares = shares * share[codes[:, j]]
        shape = [sizes[j] for j in question.groups]
        place = np.zeros(len(codes), dtype=np.int64)
        if shape:
            place = np.ravel_multi_index(tuple(codes[:, j] for j in question.groups), shape)
        n_groups = math.prod(shape)
        counts = model.n_rows * np.bincount(place, weights=weights * shares, minlength=n_groups)
        errors = [math.nan] * n_groups
        if isinstance(model, Particles) and n_groups <= _MOST_ERRORS:
            mechanism: Any = generator.mechanism_
            inside = np.bincount(place, weights=shares > 0, minlength=n_groups)
            errors = [
                mechanism.model_error(model, shares * (place == k)) if inside[k] >= _FEW else math.nan
                for k in range(n_groups)
            ]
    width = float(ndtri((1 + confidence) / 2))
    names = [schema.columns[j].values() for j in question.groups]
    rows = [
        Answer(group, count, count - width * error, count + width * error)
        for group, count, error in zip(
            product(*names), counts.tolist(), np.asarray(errors).tolist(), strict=True
        )
    ]
    source = "counts" if covering else "model"
    return Answers(tuple(schema.names[j] for j in question.groups), rows, source, confidence)
