"""Audits of private prediction as Chadha et al. 2024 (arXiv:2402.09403) report them: figures 3, 4 and 5.

``python -m reproduce.chadha2024 [3] [4] [5] [--data NAME ...] [--trainings N] [--trials N] [--out FOLDER]``
prints the tables, and writes each as JSON where a folder is given. Figures 2 and 6: ``python -m bench
audit``. CIFAR-10 and AG News are the parts at hand: 5,000 and 10,001 rows.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import _data
from bench._data import folder
from bench.neighbours import sentences as phrases
from ostraka import GNMax
from ostraka.accounting import exact_curve, papernot2018_curve
from ostraka.audit.adversaries import AdversarialQueries, adversarial_queries, mean_leak, measure_leak
from ostraka.audits import NeighbourWorlds, TeacherWorlds
from ostraka.core.curve import Curve
from ostraka.mechanisms import Subsampled
from reproduce._random_features import RandomFeatures

if TYPE_CHECKING:
    from ostraka.audit.adversaries import Leak
    from ostraka.audit.worlds import Worlds

DELTA, TRIALS = 1e-6, 10**8
DRAWS = {True: 10_000, False: 3_000}  # pairs of votes of the repeated question, of each natural one
ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
SHOWN = (2.0, 8.0, 32.0)
ADVERSARIES = ("Nat-AdvQ", "Pois-AdvQ", "Pois-NatQ", "Pois-PairQ")
SETS = ("mnist", "fashion_mnist", "cifar10", "sst2", "ag_news")
OF_TEACHERS = {"mnist": (250, 40.0), "fashion_mnist": (250, 40.0), "cifar10": (200, 25.0)}  # and their noise
OF_NEIGHBOURS = {"fashion_mnist": 30.0, "cifar10": 30.0, "sst2": 20.0, "ag_news": 20.0}  # noise
N_TEACHERS, N_QUERIES = 250, 1000
QUICK = {"TRIALS": 1000, "DRAWS": {True: 20, False: 20}, "N_TEACHERS": 10, "N_QUERIES": 20}
QUICK_ARGUMENTS = ["3", "--trainings=1", "--data=mnist"]


def images(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and labels to learn from, and a thousand questions with theirs."""
    if name == "cifar10":
        with np.load(folder() / "cifar10" / "cifar10_5000_2000.npz") as saved:
            rows = [
                (saved[part].reshape(-1, 3072) / 255).astype(np.float32) for part in ("x_train", "x_test")
            ]
            private_labels, new = (saved[part].astype(np.int64) for part in ("y_train", "y_test"))
        mixed = np.random.default_rng(0).permutation(len(new))[:N_QUERIES]  # the file is by classes
        return rows[0][: _data.MOST_ROWS], private_labels[: _data.MOST_ROWS], rows[1][mixed], new[mixed]
    parts = []
    for part in ("train", "t10k"):
        for kind, offset in (("images-idx3", 16), ("labels-idx1", 8)):
            with gzip.open(folder() / name / f"{part}-{kind}-ubyte.gz") as file:
                parts.append(np.frombuffer(file.read(), dtype=np.uint8, offset=offset))
    X, y, queries, labels = parts
    limit = _data.MOST_ROWS
    pixels = X.reshape(-1, 784)[:limit], queries.reshape(-1, 784)[:N_QUERIES]
    rows = [(images_of_part / 255).astype(np.float32) for images_of_part in pixels]
    return rows[0], y[:limit].astype(np.int64), rows[1], labels[:N_QUERIES].astype(np.int64)


def sentences(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Words and pairs of words hashed to 1,024 features: nothing is learnt, nothing downloaded."""
    from sklearn.feature_extraction.text import HashingVectorizer

    parts = []
    for texts, labels in read_sst2() if name == "sst2" else read_ag_news():
        vectors = HashingVectorizer(n_features=1024, ngram_range=(1, 2)).transform(texts)
        parts += [vectors.toarray().astype(np.float32), labels]
    return parts[0], parts[1], parts[2][:N_QUERIES], parts[3][:N_QUERIES]


def read_sst2() -> list[tuple[list[str], np.ndarray]]:
    """Phrases, and the development set's sentences."""
    return [phrases("train"), phrases("dev")]


def read_ag_news() -> list[tuple[list[str], np.ndarray]]:
    """News of four kinds; those asked about are mixed, since the file is by classes."""
    parts = []
    for name in ("train", "test"):
        with gzip.open(folder() / "ag_news" / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        mixed = np.random.default_rng(0).permutation(len(rows))[: _data.MOST_ROWS]
        kinds = sorted({row["label"] for row in rows})
        parts.append(
            ([rows[at]["text"] for at in mixed], np.array([kinds.index(rows[at]["label"]) for at in mixed]))
        )
    return parts


def promised(mechanism: GNMax, votes: np.ndarray, price: Curve, n_answers: int) -> dict[str, Curve]:
    """Upper bounds for all answers: whatever the votes, and given them by the bound of 2018 and exactly."""
    times = n_answers // len(votes)
    counts = np.round(votes)
    return {
        "promise": n_answers * price,
        "2018 bound": times * papernot2018_curve(mechanism, counts),
        "exact, votes": times * exact_curve(mechanism, counts),
    }


def row(
    system: Worlds,
    adversarial: AdversarialQueries,
    mechanism: GNMax,
    price: Curve,
    *,
    trials: int,
    data_dependent: bool,
) -> dict:
    """One bar of the figures, with its numbers."""
    rng = np.random.default_rng(2)
    models = system.models(adversarial.queries, adversarial.rows, adversarial.labels)
    sampled = not any(len(model.parties) for model in models)
    trials = trials if sampled else DRAWS[adversarial.repeated]
    leak = measure_leak(system, adversarial, mechanism, trials=trials, orders=ORDERS, rng=rng)
    votes = system.expected(adversarial.queries)[list(leak.queries)]
    upper = promised(mechanism, votes, price, leak.n_answers)
    if not data_dependent:
        upper = {"promise": upper["promise"]}
    record: dict[str, Any] = {
        "method": leak.anew.method,
        "trials": trials,
        "query": leak.queries[0] if adversarial.repeated else None,
        "answers": leak.n_answers,
        # over all questions, at order 2, between the answers to the mean votes: rough, and the same for all
        "average": float(np.mean([mean_leak(model, mechanism) for model in models])) * leak.n_answers,
        "epsilon": {
            # every column by one conversion: that of Rényi bounds
            **{name: Curve(curve.orders, curve.rdp).epsilon(DELTA) for name, curve in upper.items()},
            **illustrated(leak),
        },
        "rdp": {
            str(order): {
                **{name: curve.rdp[curve.orders.index(order)] for name, curve in upper.items()},
                "model": None if leak.anew_exact is None else float(leak.anew_exact[ORDERS.index(order)]),
                "seen": leak.anew.rdp[ORDERS.index(order)],
                "once": leak.bound.rdp[ORDERS.index(order)],
                "cap": None if leak.cap is None else float(leak.cap[ORDERS.index(order)]),
            }
            for order in SHOWN
        },
    }
    return record


def illustrated(leak: Leak) -> dict[str, float | None]:
    """Epsilon by the paper's conversion, to compare with its figures; it is no bound."""
    exact = None if leak.anew_exact is None else Curve(ORDERS, tuple(leak.anew_exact.tolist())).epsilon(DELTA)
    return {"model": exact, "seen": leak.anew.illustrated_epsilon(delta=DELTA)}


def show(name: str, record: dict[str, Any]) -> None:
    def cell(value: float | None) -> str:
        return "       -" if value is None else f"{value:8.4f}"

    columns = ("promise", "2018 bound", "exact, votes", "model", "seen")
    numbers = " ".join(cell(record["epsilon"].get(column)) for column in columns)
    rdp = " ".join(cell(record["rdp"][str(order)][column]) for column in ("seen", "once") for order in SHOWN)
    rdp += " cap " + cell(record["rdp"]["2.0"]["cap"])
    print(
        f"{name:36s} {numbers}  | {rdp} {record['average']:8.4f}  {record['method']}, {record['trials']:.0e}",
        flush=True,
    )


def heading() -> None:
    print(f"{'':36s} {'promise':>8s} {'2018':>8s} {'exact':>8s} {'model':>8s} {'seen':>8s}", end="")
    print(
        "  | " + " ".join(f"{f'{w} a={order:g}':>8s}" for w in ("", "once") for order in SHOWN) + "  average"
    )


def teachers(n_trainings: int, wanted: tuple[str, ...], sets: tuple[str, ...], trials: int) -> dict[str, Any]:
    """Figures 3 and 4: PATE and CaPC, a thousand answers."""
    records = {}
    for data in [each for each in OF_TEACHERS if each in sets]:
        n_teachers, sigma = OF_TEACHERS[data]
        n_teachers, mechanism = min(n_teachers, N_TEACHERS), GNMax(sigma=sigma)
        price = mechanism.curve()
        X, y, queries, labels = images(data)
        systems: dict[str, TeacherWorlds] = {}
        for name, fixed, many in (("PATE", False, 1), ("CaPC", True, 4)):
            training = RandomFeatures(X, y, n_teachers=n_teachers, n_classes=10, fixed=fixed)
            systems[name] = TeacherWorlds(training, n_trainings=many * n_trainings)
        votes = systems["PATE"].expected(queries)
        right = votes[np.arange(len(labels)), labels].mean() / n_teachers
        together = (votes.argmax(axis=1) == labels).mean()
        print(f"\n{data}: a teacher is right {right:.3f}, their plurality {together:.3f}")
        heading()
        scout = TeacherWorlds(
            RandomFeatures(X, y, n_teachers=n_teachers, n_classes=10, fixed=False), n_trainings=2
        )
        for adversary in wanted:
            poison = None
            for name, system in systems.items():
                rng, start = np.random.default_rng(1), time.perf_counter()
                if adversary == "Pois-NatQ":
                    poison = poison or adversarial_queries(
                        adversary, scout, queries, labels, mechanism=mechanism, n_candidates=10, rng=rng
                    )
                    adversarial = poison
                else:
                    adversarial = adversarial_queries(
                        adversary, system, queries, labels, mechanism=mechanism, rng=rng
                    )
                record = row(system, adversarial, mechanism, price, trials=trials, data_dependent=True)
                records[f"{data} {name} {adversary}"] = record
                show(f"{name} {adversary} ({time.perf_counter() - start:.0f} s)", record)
    return records


def neighbours(sets: tuple[str, ...], trials: int) -> dict[str, Any]:
    """Figure 5: Private-kNN, 200 neighbours, sampling rate 0.2, a thousand answers (SST-2: 872)."""
    records = {}
    for data in [each for each in OF_NEIGHBOURS if each in sets]:
        sigma = OF_NEIGHBOURS[data]
        X, y, queries, labels = images(data) if data in OF_TEACHERS else sentences(data)
        mechanism = GNMax(sigma=sigma)
        system = NeighbourWorlds(X, y, n_classes=int(y.max()) + 1, n_neighbours=200, sampling_rate=0.2)
        votes = system.expected(queries)
        print(f"\n{data}, {len(queries)} questions: plurality right {(votes.argmax(1) == labels).mean():.3f}")
        heading()
        price = Subsampled(mechanism=mechanism, sampling_rate=0.2).curve()
        rng = np.random.default_rng(1)
        plots = {
            name: adversarial_queries(name, system, queries, labels, mechanism=mechanism, rng=rng)
            for name in ADVERSARIES[:2]
        }
        sample = X[rng.choice(len(X), size=500, replace=False)]
        for where, pool, rounds in (("test", queries, 1), ("train", sample, 1), ("blends", sample, 3)):
            plots[f"Pois-NatQ, {where}"] = adversarial_queries(
                "Pois-NatQ",
                system,
                queries,
                labels,
                mechanism=mechanism,
                pool=pool,
                n_candidates=60,
                n_rounds=rounds,
                rng=rng,
            )
        for name, adversarial in plots.items():
            records[f"{data} Private-kNN {name}"] = record = row(
                system, adversarial, mechanism, price, trials=trials, data_dependent=False
            )
            show(f"Private-kNN {name}", record)
    return records


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", default=["3", "4", "5"])
    parser.add_argument("--trainings", type=int, default=12)
    parser.add_argument("--data", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--trials", type=int, help="of each bar whose votes are fixed")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments or [])
    trials = options.trials or TRIALS
    print(
        f"epsilon at delta {DELTA:g}: an illustration where it says seen or model, as if trained anew for "
        "each answer; right: Rényi, certified, the same and trained once"
    )
    records: dict[str, Any] = {}
    wanted = ADVERSARIES[:2] * ("3" in options.figures) + ADVERSARIES[2:] * ("4" in options.figures)
    if wanted:
        records |= teachers(options.trainings, wanted, options.data, trials)
    if "5" in options.figures:
        records |= neighbours(options.data, trials)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "audits_002.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
