"""Persons with rows in order: visits of patients (Diabetes 130), and pages that visitors of msnbc.com saw.

Columns of the visits are eleven that change from visit to visit, and two that do not. Distances are total
variations from the private rows: of the number of rows of a person, of pairs of columns of first rows, and of
each column of a row with the same column of the row before. Beside them *chance*: as many real persons, drawn
again; and *unlinked*: the copy with its later rows dealt out at random, as a table without order would have
them. Noise is seeded: a simulation. Seconds are of processor time, for fit and copy.
"""

from __future__ import annotations

import gzip
import time
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench import _data, diabetes130
from bench._data import folder
from ostraka.synth import Schema, SequenceGenerator

if TYPE_CHECKING:
    from collections.abc import Sequence

DELTA, EPSILONS, SEED = 1e-5, (0.1, 1.0), 0
CHANGING = (
    "age",
    "admission_type_id",
    "discharge_disposition_id",
    "time_in_hospital",
    "num_lab_procedures",
    "num_medications",
    "number_inpatient",
    "diag_1",
    "A1Cresult",
    "insulin",
    "readmitted",
)
CONSTANT = ("race", "gender")
LONGEST = {"diabetes": 8, "msnbc": 20}
N_VISITORS = 200_000
QUICK = {"EPSILONS": (1.0,), "N_VISITORS": 500}


class People(NamedTuple):
    """Codes of rows, the person of each, and its place; in order."""

    codes: np.ndarray
    who: np.ndarray
    place: np.ndarray

    def again(self, rng: np.random.Generator) -> People:
        """As many persons, drawn with replacement."""
        begins = np.flatnonzero(self.place == 0)
        lengths = np.diff([*begins, len(self.place)])
        chosen = rng.integers(len(begins), size=len(begins))
        who = np.repeat(np.arange(len(begins)), lengths[chosen])
        ends = np.cumsum(lengths[chosen])
        place = np.arange(who.size) - np.repeat(ends - lengths[chosen], lengths[chosen])
        return People(self.codes[begins[chosen][who] + place], who, place)

    def unlinked(self, rng: np.random.Generator) -> People:
        """The same rows, with all later rows dealt out at random."""
        codes, later = self.codes.copy(), np.flatnonzero(self.place)
        codes[later] = codes[rng.permutation(later)]
        return People(codes, self.who, self.place)


def apart(real: People, copy: People, sizes: Sequence[int], longest: int) -> tuple[float, float, float]:
    """Distances of lengths, of pairs of columns of first rows, and of each column with the one before."""
    tables = []
    for people in (real, copy):
        first, later = people.codes[people.place == 0], np.flatnonzero(people.place)
        lengths = np.bincount(np.bincount(people.who), minlength=longest + 1) / (people.who[-1] + 1)
        pairs = [
            _shares(first[:, [a, b]], (sizes[a], sizes[b])) for a, b in combinations(range(len(sizes)), 2)
        ]
        steps = [
            _shares(np.column_stack([people.codes[later - 1, j], people.codes[later, j]]), (size, size))
            for j, size in enumerate(sizes)
        ]
        tables.append(([lengths], pairs or [_shares(first, sizes)], steps))
    distances = [
        np.mean([np.abs(a - b).sum() / 2 for a, b in zip(*pair, strict=True)])
        for pair in zip(*tables, strict=True)
    ]
    return float(distances[0]), float(distances[1]), float(distances[2])


def _shares(codes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    cells = np.ravel_multi_index(tuple(codes.T), tuple(sizes))
    return np.bincount(cells, minlength=int(np.prod(sizes))) / max(1, len(codes))


def diabetes() -> tuple[Schema, dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Visits in the order of their numbers."""
    table, patients = diabetes130.read()
    columns = {name: np.array(table[name]) for name in (*CONSTANT, *CHANGING)}
    whole = diabetes130.schema_of(table)
    schema = Schema(tuple(column for column in whole.columns if column.name in columns))
    return schema, {name: columns[name] for name in schema.names}, patients, np.arange(len(patients))


def msnbc() -> tuple[Schema, dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Categories of the pages of each visitor."""
    n_visitors = N_VISITORS if _data.MOST_ROWS is None else _data.MOST_ROWS
    with gzip.open(folder() / "msnbc" / "msnbc990928.seq.gz", "rt") as file:
        lines = [line.split() for line in file.read().splitlines()[7:] if line.strip()]
    chosen = np.random.default_rng(SEED).permutation(len(lines))[:n_visitors]
    visits = [lines[k][: LONGEST["msnbc"]] for k in chosen]
    who = np.repeat(np.arange(len(visits)), [len(pages) for pages in visits])
    schema = Schema.from_dict({"page": {"categories": [str(k) for k in range(1, 18)]}})
    return schema, {"page": np.concatenate(visits)}, who, np.arange(who.size)


TABLES = {"diabetes": diabetes, "msnbc": msnbc}


def main() -> None:
    """Both tables, two prices."""
    for name, read in TABLES.items():
        schema, table, groups, order = read()
        longest = LONGEST[name]
        kinds, who = np.unique(groups, return_inverse=True)
        by_person = np.lexsort((order, who))
        place = np.arange(who.size) - np.searchsorted(who[by_person], who[by_person])
        inside = place < longest
        real = People(schema.encode(table)[by_person][inside], who[by_person][inside], place[inside])
        rng = np.random.default_rng(SEED)
        print(f"  {name}: {len(real.who):,} rows of {len(kinds):,} persons, {len(schema.columns)} columns")
        _print("chance", apart(real, real.again(rng), schema.sizes, longest))
        constant = tuple(column for column in CONSTANT if column in schema.names)
        for epsilon in EPSILONS:
            start = time.process_time()
            generator = SequenceGenerator(
                schema, longest=longest, constant=constant, epsilon=epsilon, delta=DELTA
            )
            generator.fit(table, groups=groups, order=order, rng=rng)
            copy = People(*generator.model_.people(len(kinds), rng=rng))
            seconds = time.process_time() - start
            _print(f"epsilon {epsilon:g}", apart(real, copy, schema.sizes, longest), f"; {seconds:.1f} s")
            _print("  unlinked", apart(real, copy.unlinked(rng), schema.sizes, longest))


def _print(what: str, distances: tuple[float, float, float], suffix: str = "") -> None:
    pattern = "numbers of rows {:.4f} apart, pairs of first rows {:.4f}, steps {:.4f}".format(*distances)
    print(f"    {what}: {pattern}{suffix}", flush=True)


if __name__ == "__main__":
    main()
