"""Figures 5.5, 5.6 and 5.8 of Melis 2018: counting queries on sets of items, from generated rows.

CDR and TRANSIT, the data of the thesis, were never public. MSNBC (categories that a visitor saw) and
groceries (goods in a basket) stand in for them.
"""

from __future__ import annotations

import gzip
import itertools
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench import _data
from bench._data import folder
from ostraka.synth import DPGM, PrivateKMeans, Schema, TableGenerator
from ostraka.synth.sgd import RBM, VAE

if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS, SANITY = 5, 0.001  # lengths of queries; share of the rows
MOST_COPIES = 200_000  # generated rows that answer the queries


class Effort(NamedTuple):
    """How long the generators work: items and rounds (those of the thesis) of multiplicative weights."""

    frequent: int = 17
    rounds: int = 50
    steps: int = 300  # of training a network


class Sets(NamedTuple):
    """Which items each row has, and the delta of the thesis: 1 over the number of rows."""

    name: str
    rows: np.ndarray  # float32, (n_rows, n_items), 0 or 1

    @property
    def delta(self) -> float:
        """1 over the number of rows."""
        return 1 / len(self.rows)


def msnbc() -> Sets:
    """Which of 17 categories each visitor saw."""
    with gzip.open(folder() / "msnbc" / "msnbc990928.seq.gz", "rt") as file:
        lines = (line.split() for line in file)
        visits = (line for line in lines if line and all(word.isdigit() for word in line))
        sequences = [[int(word) - 1 for word in line] for line in itertools.islice(visits, _data.MOST_ROWS)]
    return Sets("MSNBC", _table(sequences, 17))


def groceries() -> Sets:
    """Which of the goods each basket holds."""
    with gzip.open(folder() / "groceries" / "groceries.txt.gz", "rt") as file:
        baskets = [line.strip().split(",") for line in file if line.strip()]
    names = {name: k for k, name in enumerate(sorted({name for basket in baskets for name in basket}))}
    item_lists = [[names[name] for name in basket] for basket in baskets[: _data.MOST_ROWS]]
    return Sets("groceries", _table(item_lists, len(names)))


def _table(rows: list[list[int]], n_items: int) -> np.ndarray:
    table = np.zeros((len(rows), n_items), dtype=np.float32)
    for k, row in enumerate(rows):
        table[k, row] = 1.0
    return table


# --- queries ---


def queries(rows: np.ndarray, n_queries: int, *, frequent: bool) -> list[list[np.ndarray]]:
    """Sets of items in five groups of lengths; a query counts the rows which have all of them.

    As in the thesis, lengths of group i are even in [1, i longest / 5] and items are drawn evenly.
    ``frequent``: lengths of group i are i, and items are drawn by how often they occur.
    """
    rng, shares = np.random.default_rng(0), rows.mean(axis=0)
    longest = int(rows.sum(axis=1).max())
    groups = []
    for group in range(1, GROUPS + 1):
        lengths = rng.integers(1, max(2, group * longest // GROUPS + 1), size=n_queries // GROUPS)
        p = None if not frequent else shares / shares.sum()
        groups.append(
            [
                rng.choice(rows.shape[1], size=group if frequent else int(n), replace=False, p=p)
                for n in lengths
            ]
        )
    return groups


def answers(rows: np.ndarray, asked: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Share of the rows which have all items of each query."""
    packed = [np.packbits(rows[:, j] > 0) for j in range(rows.shape[1])]
    ones = np.array([k.bit_count() for k in range(256)])
    results = []
    for group in asked:
        conjunctions = (np.bitwise_and.reduce([packed[j] for j in items]) for items in group)
        results.append(np.array([ones[bits].sum() for bits in conjunctions]) / len(rows))
    return results


def errors(true: list[np.ndarray], estimates: list[np.ndarray]) -> str:
    """Mean relative error of each group, with the sanity bound."""
    relative_errors = (
        float(np.mean(np.abs(a - b) / np.maximum(a, SANITY))) for a, b in zip(true, estimates, strict=True)
    )
    return " ".join(f"{error:.4f}" for error in relative_errors)


# --- generators of sets ---


def centres(
    data: Sets, epsilon: float, rng: np.random.Generator, _effort: Effort, *, k: int = 50
) -> np.ndarray:
    """Rows drawn from k noisy centres; of one centre, items are independent."""
    model = PrivateKMeans(k, n_iterations=4 if k > 1 else 1, binary=True, epsilon=epsilon, delta=data.delta)
    return np.asarray(model.fit(data.rows, rng=rng).sample(_size(data), random_state=0)[0])


def tree(data: Sets, epsilon: float, rng: np.random.Generator, _effort: Effort) -> np.ndarray:
    """Rows of a forest of noisy pairs of items."""
    codes = data.rows.astype(np.int64)
    names = [f"{j:03}" for j in range(codes.shape[1])]
    schema = Schema.from_dict({name: {"categories": ["0", "1"]} for name in names})
    frame = {name: np.array(["0", "1"])[codes[:, j]] for j, name in enumerate(names)}
    model = TableGenerator(schema, epsilon=epsilon, delta=data.delta).fit(frame, rng=rng)
    return model.sample_codes(_size(data), rng=rng)


def networks(kind: str) -> Callable[[Sets, float, np.random.Generator, Effort], np.ndarray]:
    """Rows of networks on one cluster, as the thesis has for CDR."""

    def made(data: Sets, epsilon: float, rng: np.random.Generator, effort: Effort) -> np.ndarray:
        n = data.rows.shape[1]
        network = {
            "vae": VAE(n_features=n, hidden=(50,)),
            "two layers": VAE(n_features=n, hidden=(50, 50)),
            "rbm": RBM(n_features=n),
        }[kind]
        rate = min(0.2, 2_000 / len(data.rows))
        model = DPGM(
            1,
            generator=network,
            binary=True,
            steps=effort.steps,
            sampling_rate=rate,
            learning_rate=3e-3,
            epsilon=epsilon,
            delta=data.delta,
        )
        return np.asarray(model.fit(data.rows, rng=rng).sample(_size(data), random_state=0)[0])

    return made


def multiplicative_weights(
    data: Sets, epsilon: float, rng: np.random.Generator, effort: Effort
) -> np.ndarray:
    """The rival, MWEM (Hardt, Ligett and McSherry 2012), on the histogram of the most frequent items.

    Each round chooses the pair of items whose count is furthest off by the exponential mechanism, asks
    for it with Laplace noise, and multiplies the weights of the histogram. 2 to the number of items is too
    many weights for all of them: the other items are independent of these, with noisy shares. Which items are
    most frequent is not charged, in favour of the rival.
    """
    rows = data.rows
    frequent = np.argsort(-rows.mean(axis=0))[: effort.frequent]
    half = epsilon / 2 if rows.shape[1] > len(frequent) else epsilon
    n_rows, cells = len(rows), 2 ** len(frequent)
    bits = (np.arange(cells)[:, None] >> np.arange(len(frequent))) & 1
    hist = np.bincount(
        (rows[:, frequent] @ (1 << np.arange(len(frequent)))).astype(np.int64), minlength=cells
    )
    query_bits = np.array(
        [bits[:, i] & bits[:, j] for i in range(len(frequent)) for j in range(i + 1)], dtype=np.float32
    )
    true, weights, averages = query_bits @ hist, np.full(cells, n_rows / cells), []
    for _ in range(effort.rounds):
        score = (
            np.abs(true - query_bits @ weights) * (half / 2 / effort.rounds) / 2
        )  # a row moves a count by 1
        q = int((score + rng.gumbel(size=len(score))).argmax())
        averages.append((q, true[q] + rng.laplace(0, effort.rounds / (half / 2))))
        for query, answer in averages:
            weights *= np.exp(query_bits[query] * (answer - query_bits[query] @ weights) / (2 * n_rows))
            weights *= n_rows / weights.sum()
    sample = bits[rng.choice(cells, size=_size(data), p=weights / weights.sum())]
    noisy = rows.sum(axis=0) + rng.laplace(0, rows.sum(axis=1).max() / half, rows.shape[1])
    shares = np.clip(noisy / n_rows, 0, 1)
    out = (rng.random((_size(data), rows.shape[1])) < shares).astype(np.float32)
    out[:, frequent] = sample
    return out


def _size(data: Sets) -> int:
    return min(len(data.rows), MOST_COPIES)


KINDS: dict[str, Callable[[Sets, float, np.random.Generator, Effort], np.ndarray]] = {
    "items independent (one centre)": partial(centres, k=1),
    "50 centres": centres,
    "forest of noisy pairs (TableGenerator)": tree,
    "multiplicative weights (MWEM)": multiplicative_weights,
    "DPGM, one cluster, VAE": networks("vae"),
    "DPGM, one cluster, VAE of two layers": networks("two layers"),
    "DPGM, one cluster, RBM": networks("rbm"),
}


def compare(n_queries: int, epsilons: tuple[float, ...], effort: Effort) -> None:
    """Errors of every generator, for the thesis's queries and for sets of frequent items."""
    for read in (msnbc, groceries):
        data = read()
        query_bits = {
            name: queries(data.rows, n_queries, frequent=frequent)
            for name, frequent in (("thesis's queries", False), ("frequent items", True))
        }
        true = {name: answers(data.rows, query_groups) for name, query_groups in query_bits.items()}
        print(f"  {data.name}, {len(data.rows):,} rows of {data.rows.shape[1]} items:")
        for name, values in true.items():
            counted = np.concatenate(values) >= SANITY
            nothing = errors(values, [np.zeros_like(group) for group in values])
            print(
                f"    {name}: {counted.mean():.1%} count 0.1 % of the rows or more; always 0 errs {nothing}"
            )
        for kind, make in KINDS.items():
            for epsilon in epsilons:
                copy = make(data, epsilon, np.random.default_rng(0), effort)
                sentences = (
                    f"{name} {errors(true[name], answers(copy, query_bits[name]))}" for name in query_bits
                )
                print(f"    {kind}, epsilon {epsilon:g}: " + "; ".join(sentences), flush=True)
