"""Hostile neighbours: what one row adds must be a function of that row and of public values, bit for bit.

``python -m rigs rows --pairs 100000`` makes so many pairs of neighbouring tables, computes what is noised of
each **before any noise**, and prints every pair that moved more than is promised, raised or warned. Rows hold
1.7e308, -0.0, denormals, infinities, ties between public rows, and in files bytes that are no
UTF-8, quotes and delimiters; numbers of rows cross the sizes at which libraries choose other kernels, on one
thread and on several.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
from pyarrow import parquet
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import NearestCentroid
from sklearn.tree import DecisionTreeClassifier

from ostraka.collect.encodings import Grid, Histogram, Pairs, Tree
from ostraka.core.mechanisms import sums
from ostraka.core.mechanisms.particles import tallied
from ostraka.data import table as data_table
from ostraka.data.contribution import Contribution
from ostraka.data.nearest import nearest
from ostraka.data.parquet import ParquetRows
from ostraka.data.schema import Schema, encoded
from ostraka.synth import clusters as _clusters
from ostraka.synth import fitting
from ostraka.synth.clusters import NoisyLloyd
from ostraka.synth.dpgm import Spread
from ostraka.synth.sequences import SequenceGenerator, sequences
from ostraka.voters import NeighbourVoter
from ostraka.voters.cells import GraphCells, QuantileCells
from ostraka.voters.rows import FeatureCells, RowVoter
from ostraka.voters.spectrum import Spectrum
from ostraka.voters.voting import Shard, count_votes, train, vote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SUBJECTS", "Report", "main", "run"]

WIDTH, N_CLASSES = 7, 3
SIZES = [1, 2, 3, 31, 64, 65, 127, 128, 129, 299, 300, 301, 1023, 1024, 1025]
HOSTILE = [1.7e308, -1.7e308, 1e300, 1e160, 3e38, 1e15, -0.0, 5e-324, 1e-40, 1.0]
# what a file holds instead of these numbers
CELLS = dict(
    zip(
        HOSTILE[:-1],
        (b"nan(1)", b"\xff", b'"', b"1_000", b"x,y", b"1e999", b"-999.0", b"\xc3", b"caf\xe9\r"),
        strict=True,
    )
) | {np.inf: b"inf", -np.inf: b"\xef\xbb\xbf7"}
STRANGE = (b"\xff", b"\xc3", b"caf\xe9\r")  # no UTF-8
NO_NUMBERS = [np.nan, np.inf, -np.inf]
SPREAD = Spread(
    clusters=NoisyLloyd(n_features=WIDTH, n_clusters=2, n_iterations=1, sigma=4.0), sigma=4.0, sigma_norms=4.0
)


class Subject(NamedTuple):
    """What is noised of a table of rows and labels, what one row adds, and which changes there are."""

    aggregate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    contribution: Contribution
    relation: str = "add-or-remove"
    no_numbers: bool = False  # whether rows may hold NaN and infinities
    most: int = 1025  # rows
    each_query: bool = False  # whether each line of the aggregate moves by so much
    rounding: float = 0.0  # of a sum in another order, where sums are not of whole numbers


class Report(NamedTuple):
    """How many pairs were tried, and what moved too much."""

    pairs: int
    violations: list[str]


def _public() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, WIDTH))


def _cells(cells: Any, *, stored: bool = False) -> Subject:
    """Counts of rows in memory, or ``stored`` in a file that is read part by part."""
    voter = RowVoter(cells=cells.fit(_public()))

    def aggregate(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        if not stored:
            return np.asarray(voter.fit(rows, labels, classes=range(N_CLASSES)).vote().open())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            table = pa.table({f"x{place}": np.ascontiguousarray(rows[:, place]) for place in range(WIDTH)})
            parquet.write_table(table, path, row_group_size=100)
            stored_rows = ParquetRows.numbers(path, aside=())
            return np.asarray(voter.fit(stored_rows, labels, classes=range(N_CLASSES)).vote().open())

    rows, labels = np.zeros((2, WIDTH)), np.array([0, 1])
    sensitivity = voter.fit(rows, labels, classes=range(N_CLASSES)).adjacency_.l2
    return Subject(aggregate, Contribution(l2=sensitivity / 2), "replace-one", no_numbers=True, most=301)


def _gradient(*, grouped: bool) -> Subject:
    """Balanced residuals of rows, or of people with three rows each, whatever the model."""
    cells: Any = Spectrum(noise=0.01).fit(_public())
    voter = RowVoter(cells=cells, person="mean")
    coef = np.random.default_rng(1).normal(size=(cells.features_.shape[1], N_CLASSES)) * 5

    def aggregate(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        people = np.arange(len(rows)) // 3 if grouped else None
        fitted = voter.fit(rows, labels, people, classes=range(N_CLASSES))
        return np.asarray(fitted.gradient(coef, parts=9).open())

    return Subject(aggregate, Contribution(l2=9.0 * 64), "replace-one", no_numbers=True, most=301)


def _neighbours(metric: Any, transformer: Any = None) -> Subject:
    questions = _public()[:20]

    def aggregate(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        voter = NeighbourVoter(k=5, sampling_rate=1.0, metric=metric, transformer=transformer)
        voter.fit(rows, labels, classes=range(N_CLASSES))
        return np.asarray(voter.vote(questions, rng=np.random.default_rng(0)).open())

    return Subject(aggregate, Contribution(l1=2.0, linf=1.0), each_query=True)


def _teachers(estimator: Any) -> Subject:
    questions = np.abs(np.rint(_public()[:20] * 2)) / 2
    questions[::2] += questions[::2, ::-1]  # mirror images tie

    def aggregate(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        rows = np.abs(rows) if isinstance(estimator, MultinomialNB) else rows
        n_teachers = min(12, len(rows))
        seeds = np.random.SeedSequence(0).spawn(n_teachers)
        shards = [Shard(rows[k::n_teachers], labels[k::n_teachers], seeds[k], 0) for k in range(n_teachers)]
        ballots = [
            ballots_of_question.codes
            for ballots_of_question in vote(questions, N_CLASSES, train(estimator, shards))
        ]
        return count_votes(np.array(ballots), n_classes=N_CLASSES)

    contribution = Contribution(l0=1, l1=1.0, linf=0.5)
    return Subject(aggregate, contribution, "replace-one", most=129, each_query=True)


def _candidates(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
    table = fitting.bounded(rows.astype(np.float64)).astype(np.float32)
    places = nearest(table, [_public()[:9]])[:, 0]
    return np.bincount(places, minlength=9)


def _lloyd(kernel: str) -> Subject:
    centres = _public()[:5]

    def aggregate(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
        table = fitting.bounded(rows.astype(np.float64)).astype(np.float32)
        points = centres
        if kernel == "rbf":
            settings: dict[str, Any] = {"n_components": 20, "gamma": 0.5, "seed": 0}
            table = _clusters.random_features(table, **settings)
            points = _clusters.random_features(centres, **settings)
        summed = _clusters.Summed(table, np.ones(len(table)), sigma=4.0)
        member = nearest(summed.grid[:, :-1], [summed.scaled(points)])[:, 0]
        return np.asarray(
            (member == np.arange(5)[:, None]).astype(np.float64) @ summed.grid.astype(np.float64)
        )

    return Subject(aggregate, Contribution(l2=float(sums.longest(4.0))))


def _squares(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
    return SPREAD.products(fitting.bounded(rows.astype(np.float64)))


def _sums(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
    table = fitting.bounded(rows.astype(np.float64))
    return np.asarray(sums.on_grid(table, sigma=4.0).sum(axis=0))


def _clients(encoding: Any) -> Subject:
    def value(row: list[float]) -> Any:
        if isinstance(encoding, Pairs):
            return sorted({int(min(abs(number), 4.0)) for number in row})
        return row[:2] if isinstance(encoding, Grid) else row[0]

    def aggregate(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
        parts = [encoding.encode(value(row)) for row in rows.tolist()]
        return np.asarray(np.sum(parts, axis=0))

    contribution = Contribution(l1=encoding.l1 / 2, l2=encoding.l2 / 2, linf=float(encoding.largest))
    return Subject(aggregate, contribution, "replace-one", most=65)


def _gradients() -> Subject:
    import torch

    from ostraka.nets import private as private_steps

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 6), torch.nn.Softplus(), torch.nn.Linear(6, 1)
    ).double()

    def aggregate(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
        training = private_steps.PrivateTraining(
            modules=[module],
            losses=lambda net, table: net(table)[:, 0].square(),
            rows=torch.from_numpy(fitting.bounded(rows.astype(np.float64))),
            owners=np.zeros(len(rows), dtype=np.int64),
            sampling_rate=1.0,
            sigma=0.0,
            sigma_norms=None,
            clip=1.0,
            expected=np.ones(1),
            rng=np.random.default_rng(0),
        )
        training.step(np.arange(len(rows)))
        return np.concatenate(
            [part.grad.numpy().ravel() for part in module.parameters() if part.grad is not None]
        )

    return Subject(aggregate, Contribution(l2=1.0), rounding=1e-5)


def _text(number: float) -> bytes:
    """A number of the table as a cell of a file: hostile numbers are hostile text."""
    if number in CELLS or not np.isfinite(number):
        return CELLS.get(number, b"")
    return b"-999.0" if -2 < number < -1 else f"{number:.3g}".encode()  # what -999 declares missing


def _read(form: str) -> Subject:
    """Counts of what a reader makes of each cell: one for each column."""
    names = [f"c{place}" for place in range(WIDTH)]
    edges = np.linspace(-2, 2, 7)
    numeric = {name: {"edges": [-9, *edges.tolist(), 9], "missing": True} for name in names[:4]}
    kinds = {name: {"categories": ["0.5", "-0.5", "other"], "missing": True} for name in names[4:]}
    schema = Schema.from_dict(numeric | kinds)

    def texts(rows: np.ndarray) -> list[list[bytes]]:
        return [[_text(number) for number in row] for row in rows.astype(np.float64).tolist()]

    def codes(rows: np.ndarray) -> np.ndarray:
        lines = texts(rows)
        if form == "list":
            cells = [
                [cell if cell in STRANGE else cell.decode() for cell in column]
                for column in zip(*lines, strict=True)
            ]
            return schema.encode(dict(zip(names, cells, strict=True)))
        with tempfile.TemporaryDirectory() as folder:
            return from_file(lines, Path(folder) / f"rows.{form}")

    def from_file(lines: list[list[bytes]], path: Path) -> np.ndarray:
        if form == "parquet":
            binary = [pa.array(column, pa.binary()) for column in zip(*lines, strict=True)]
            columns = [pa.Array.from_buffers(pa.string(), len(array), array.buffers()) for array in binary]
            parquet.write_table(pa.table(columns, names), path, row_group_size=100)
            return encoded(schema, path, most=9)[:, :-1]
        content = b"\n".join([",".join(names).encode(), *(b",".join(line) for line in lines)]) + b"\n"
        path.write_bytes(gzip.compress(content, 1) if form == "csv.gz" else content)
        if form == "parts":
            how, missing = (
                data_table.text_form(path, data_table.UNDECLARED, like=None, public=False),
                ("-999",),
            )
            frames = [
                data_table.rows_of_span(path, span, *how, numbers=names[:4], missing=missing)
                for span in data_table.spans(path, size=1000)
            ]
            none = (*data_table.MISSING, *missing)
            parts = [data_table.Table(path, frame, np.arange(0), none) for frame in frames]
            return np.concatenate([in_numbers(part) for part in parts])
        return in_numbers(data_table.read(path, public=False, numbers=names[:4], missing=("-999",)))

    def in_numbers(table: data_table.Table) -> np.ndarray:
        values = [
            schema.columns[place].encode(table.numbers(name)[0]) for place, name in enumerate(names[:4])
        ]
        words = [schema.columns[4 + place].encode(table.text(name)) for place, name in enumerate(names[4:])]
        return np.stack([*values, *words], axis=1)

    def aggregate(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
        table = codes(rows)
        return np.array([np.bincount(column, minlength=12) for column in table.T.astype(np.int64)])

    contribution = Contribution(l0=WIDTH, l1=WIDTH, l2=float(np.sqrt(WIDTH)), linf=1.0)
    return Subject(aggregate, contribution, no_numbers=True, most=301)


def _counted() -> Subject:
    """Cells of pairs and triples of columns of a table that is coded by its schema."""
    names = [f"c{place}" for place in range(WIDTH)]
    schema = Schema.from_dict({name: {"edges": [-9, -1, 0, 1, 9], "missing": True} for name in names})
    tables = [columns for k in (2, 3) for columns in combinations(range(WIDTH), k)]

    def aggregate(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
        coded = encoded(schema, dict(zip(names, rows.T, strict=True)), most=1)
        coded[:, -1] = 1
        return np.concatenate(tallied(coded.T, schema.sizes, tables))

    contribution = Contribution(l0=len(tables), l1=len(tables), l2=float(np.sqrt(len(tables))), linf=1.0)
    return Subject(aggregate, contribution, no_numbers=True)


def _linked() -> Subject:
    """First rows and steps of persons, each with as many rows of one column as a line has numbers."""
    schema = Schema.from_dict({"c": {"edges": [-9, -1, 0, 1, 9], "missing": True}})
    mechanism = SequenceGenerator(schema, longest=WIDTH - 2, epsilon=8.0).mechanism()

    def aggregate(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
        people, places = np.repeat(np.arange(len(rows)), WIDTH), np.tile(np.arange(WIDTH), len(rows))
        lines = sequences(schema, {"c": rows.ravel()}, people, places, longest=WIDTH - 2).open()
        parts = ((mechanism.firsts(lines), mechanism.first), (mechanism.steps(lines), mechanism.following))
        return np.concatenate(
            [np.concatenate(tallied(part.T, of.sizes, [(0,), (0, 1)])) / of.grain for part, of in parts]
        )

    contribution = Contribution(l1=4.0, l2=2.0, linf=1.0)  # of four tables each
    return Subject(aggregate, contribution, no_numbers=True, most=301, rounding=1e-9)


def _planted(rows: np.ndarray, _labels: np.ndarray) -> np.ndarray:
    """A planted defect: rows are scaled by the largest of all."""
    table = fitting.bounded(rows.astype(np.float64))
    return np.asarray((table / max(float(np.abs(table).max()), 1.0)).sum(axis=0))


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "tables: cells of pairs and triples": _counted,
    "persons: first rows and steps": _linked,
    "cells: quantiles": lambda: _cells(QuantileCells()),
    "cells: quantiles, in a file": lambda: _cells(QuantileCells(), stored=True),
    "cells: features of rows, in a file": lambda: _cells(FeatureCells(n_features=6), stored=True),
    "cells: clusters of a graph": lambda: _cells(GraphCells(n_cells=8)),
    "cells: features of a graph": lambda: _cells(GraphCells(n_features=10)),
    "cells: features of rows": lambda: _cells(FeatureCells(n_features=6)),
    "gradient of rows": lambda: _gradient(grouped=False),
    "gradient of people": lambda: _gradient(grouped=True),
    "neighbours, Euclidean": lambda: _neighbours("euclidean"),
    "neighbours, cosine": lambda: _neighbours("cosine"),
    "neighbours, by components": lambda: _neighbours("euclidean", PCA(5).fit(_public())),
    **{
        f"teachers: {type(each).__name__}": lambda estimator=each: _teachers(estimator)
        for each in (
            GaussianNB(),
            MultinomialNB(),
            BernoulliNB(),
            NearestCentroid(),
            LogisticRegression(),
            RidgeClassifier(),
            DecisionTreeClassifier(max_depth=3),
        )
    },
    "candidates of Evolution": lambda: Subject(_candidates, Contribution(l0=1, l1=1.0, linf=1.0)),
    "clusters": lambda: _lloyd("plain"),
    "clusters of random features": lambda: _lloyd("rbf"),
    "products of columns": lambda: Subject(_squares, Contribution(l2=float(SPREAD._longest))),  # noqa: SLF001
    "sums of rows": lambda: Subject(_sums, Contribution(l2=float(sums.longest(4.0)))),
    "client: histogram": lambda: _clients(Histogram(-1.0, 1.0, 8)),
    "client: tree": lambda: _clients(Tree(-50, 50, 4)),
    "client: map": lambda: _clients(Grid(x=(-1.0, 1.0), y=(-1.0, 1.0), shape=(3, 3))),
    "client: pairs of items": lambda: _clients(Pairs(items=5, at_most=3)),
    "gradients": _gradients,
    "reader: CSV": lambda: _read("csv"),
    "reader: CSV in parts": lambda: _read("parts"),
    "reader: compressed CSV": lambda: _read("csv.gz"),
    "reader: Parquet": lambda: _read("parquet"),
    "reader: lists of text and bytes": lambda: _read("list"),
}
PLANTED = {"planted": lambda: Subject(_planted, Contribution(l2=3.0))}


def run(names: Sequence[str], *, pairs: int, seed: int) -> Report:
    """Try so many pairs, shared out among the named subjects."""
    violations: list[str] = []
    n_tried = 0
    for name in names:
        subject = {**SUBJECTS, **PLANTED}[name]()
        rng = np.random.default_rng([seed, len(name), *name.encode()])
        share = -(-pairs // len(names))
        while share > 0:
            size = min(share, 40)
            wrong = [f"{name}: {text}" for text in _neighbours_of_one(subject, size, rng)]
            n_tried, share, violations = n_tried + size, share - size, violations + wrong
    return Report(n_tried, violations)


def _neighbours_of_one(subject: Subject, pairs: int, rng: np.random.Generator) -> list[str]:
    """Change one table in so many ways; return what was wrong."""
    sizes = [size for size in SIZES if size <= subject.most]
    n_rows = max(int(rng.choice(sizes)), 1)
    dtype = rng.choice([np.float32, np.float64])
    public, wrong = _public(), []
    middles = (public[rng.integers(0, 9, n_rows)] + public[rng.integers(0, 9, n_rows)]) / 2  # ties
    rows = np.where(rng.random((n_rows, 1)) < 0.5, middles, rng.normal(size=(n_rows, WIDTH))).astype(dtype)
    rows[rng.random(n_rows) < 0.2] = rows[0]
    for place in np.flatnonzero(rng.random(n_rows) < 0.05):
        rows[place] = _hostile(rows[place], rng, no_numbers=subject.no_numbers)
    labels = rng.integers(0, N_CLASSES, n_rows)
    threads = int(rng.choice([1, 2, 4]))
    with warnings.catch_warnings(), threadpoolctl.threadpool_limits(limits=threads):
        warnings.simplefilter("error")
        try:
            before = subject.aggregate(rows, labels)
        except Exception as error:  # noqa: BLE001
            return [f"{n_rows} rows: {type(error).__name__}: {error}"]
        for _ in range(pairs):
            kind, neighbour, others = _neighbour(subject, rows, labels, rng)
            try:
                after = subject.aggregate(neighbour, others)
            except Exception as error:  # noqa: BLE001
                wrong.append(f"{kind} of {n_rows} rows, {rows.dtype}: {type(error).__name__}: {error}")
                continue
            relation = "replace-one" if kind == "replace" else subject.relation
            lines = zip(before, after, strict=True) if subject.each_query else [(before, after)]
            contribution = subject.contribution
            if subject.each_query and subject.relation == "add-or-remove":
                relation = subject.relation  # one ballot moves, whichever way
            good = (
                bool((np.abs(after - before) <= subject.rounding).all())
                if kind == "permute"
                else all(contribution.holds(a, b, relation=relation) for a, b in lines)
            )
            if not good:
                wrong.append(f"{kind} of {n_rows} rows, {rows.dtype}: moved more than is promised")
    return wrong


def _neighbour(
    subject: Subject, rows: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> tuple[str, np.ndarray, np.ndarray]:
    """Replace, add, remove, duplicate or permute."""
    place, n_rows = int(rng.integers(len(rows))), len(rows)
    kinds = ["replace"]
    if subject.relation == "add-or-remove":
        kinds += ["add", "duplicate", *(["remove"] if n_rows > 1 else [])]
        if not subject.each_query:
            kinds += ["permute"]
    kind = str(rng.choice(kinds))
    new = _hostile(rows[place], rng, no_numbers=subject.no_numbers)
    label = int(rng.integers(N_CLASSES))
    if kind == "replace":
        rows, labels = rows.copy(), labels.copy()
        rows[place], labels[place] = new, label
    elif kind == "add":
        rows, labels = np.insert(rows, place, new, axis=0), np.insert(labels, place, label)
    elif kind == "duplicate":
        rows, labels = np.insert(rows, place, rows[place], axis=0), np.insert(labels, place, labels[place])
    elif kind == "remove":
        rows, labels = np.delete(rows, place, axis=0), np.delete(labels, place)
    else:
        order = rng.permutation(n_rows)
        rows, labels = rows[order], labels[order]
    return kind, rows, labels


def _hostile(row: np.ndarray, rng: np.random.Generator, *, no_numbers: bool) -> np.ndarray:
    """The row with one, several or all numbers replaced by hostile ones of its type."""
    values = np.array(HOSTILE + (NO_NUMBERS if no_numbers else []))
    with np.errstate(over="ignore"):
        cells = rng.choice(values, size=len(row)).astype(row.dtype)
    if not no_numbers:
        cells = np.clip(cells, np.finfo(row.dtype).min, np.finfo(row.dtype).max)
    return np.where(rng.random(len(row)) < rng.choice([0.1, 0.5, 1.0]), cells, row)


def main(arguments: Sequence[str]) -> int:
    """Exit status 1 if anything moved too much."""
    parser = argparse.ArgumentParser(prog="python -m rigs rows", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    start, total, wrong = time.time(), 0, 0
    names = options.names or list(SUBJECTS)
    for name in names:
        report = run([name], pairs=-(-options.pairs // len(names)), seed=options.seed)
        total, wrong = total + report.pairs, wrong + len(report.violations)
        print(f"{name}: {report.pairs:,} pairs, {len(report.violations)} violations", flush=True)
        for text in report.violations[:10]:
            print(f"  {text}", flush=True)
    when = f"{datetime.now(UTC):%Y-%m-%d}, load {os.getloadavg()[0]:.1f}, {time.time() - start:.0f} s"
    print(f"{total:,} pairs, {wrong} violations; {when}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
