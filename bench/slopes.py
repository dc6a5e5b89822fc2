"""How time and memory grow from ten thousand on: the slope of each verb on logarithmic axes.

``OSTRAKA_BENCHMARK_ENTRIES=10000000 OSTRAKA_BENCHMARK_FIGURE=slopes.svg python -m bench slopes`` goes up to
ten million, and plots them. A slope of 1 is as much more as there is more of it. Each size of each verb runs
in a process of its own, after a small one of 200, so that nothing is compiled or loaded while it is measured.
Slopes are those of the sizes that take a twentieth of a second of processor time or 16 MiB, at least. A size
that would take more than a minute or 8 GiB, with all that is made for it, is left out.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from bench._apart import Spent, apart

__all__ = ["main"]

MOST = int(os.environ.get("OSTRAKA_BENCHMARK_ENTRIES", "1000000"))
SIZES = [size for size in (10**4, 10**5, 10**6, 10**7) if size <= MOST]
NAMES: tuple[str, ...] = ()  # of verbs; none: all
QUICK = {"SIZES": [500], "NAMES": ("count ballots of 50 teachers",)}
LEAST_SECONDS, LEAST_MIB = 0.05, 16.0
LONGEST, LARGEST = 60.0, 8192.0  # seconds by the clock and MiB, of ten times as much as the size before

SETUP = """
import sys
import numpy as np
folder, rng = sys.argv[2], np.random.default_rng(0)
for n in (200, int(sys.argv[1])):
    exec({setup!r})
    if n == 200:
        exec({work!r})
"""
LEDGER = """
from ostraka import Budget, GNMax, Ledger
from ostraka.ledger import ChargeRequest
price = GNMax(sigma=1e5)
ledger = Ledger(f"{folder}/{n}.sqlite", budget=Budget(epsilon=50.0, delta=1e-6))
ledger.grant("ann", budget_epsilon=50.0)
def fill():
    for first in range(0, n, 4000):
        ledger.charge_each([
            ChargeRequest(account="ann", key=f"k{k}", digest=f"{k:08x}", cost=price, reserve=price, answer=0)
            for k in range(first, min(n, first + 4000))
        ])
"""
LONG = """
from pathlib import Path
from bench.long_ledger import fill
from ostraka import Ledger
fill(Path(f"{folder}/{n}.sqlite"), n)
"""
SHOW = """
from contextlib import redirect_stdout
from io import StringIO
from ostraka.cli.ledger import show
show = show.callback
"""
COUNTS = """
from ostraka import Adjacency, Budget, GNMax, Ledger, Private, count_votes, release
from ostraka.accounting import exact_curve
kinds = rng.multinomial(250, np.full(10, 0.1), size=1000)
counts = kinds[rng.integers(0, 1000, n)]
"""
ROWS = """
from ostraka.voters import QuantileCells, RowVoter
X, y = rng.normal(size=(n, 10)), rng.integers(0, 2, n)
voter = RowVoter(cells=QuantileCells().fit(rng.normal(size=(2000, 10))))
"""
FILE = """
from pathlib import Path
import pyarrow as pa
from pyarrow import csv
from ostraka.data.table import read
path = Path(folder) / f"{n}.csv"
columns = {f"x{k}": rng.normal(size=n).round(3) for k in range(9)}
csv.write_csv(pa.table({**columns, "kind": rng.choice(["a", "b", "c"], n)}), path)
"""
PARQUET = """
from pathlib import Path
import pyarrow as pa
from pyarrow import parquet
from ostraka.data.parquet import ParquetRows
from ostraka.voters import QuantileCells, RowVoter
path = Path(folder) / f"{n}.parquet"
columns = {f"x{k}": rng.normal(size=n).astype(np.float32) for k in range(9)}
parquet.write_table(pa.table(columns), path, row_group_size=50_000)
y, voter = rng.integers(0, 2, n), RowVoter(cells=QuantileCells().fit(rng.normal(size=(2000, 9))))
"""
GUESSES = """
from ostraka.audit.one_run import Guesses, _lower_ends
guesses = Guesses.fixed_in_advance([n * 74 // 100], [n], n_canaries=n)
"""
FILTER = """
from ostraka.voters import RowVoter
from ostraka.voters.spectrum import Spectrum
X, y, public = rng.normal(size=(n, 10)), rng.integers(0, 2, n), rng.normal(size=(2000, 10))
voter = RowVoter(cells=Spectrum(n_features=20, noise=0.01).fit(public))
"""
TEACHERS = """
from sklearn.linear_model import LogisticRegression
from ostraka import TeacherEnsemble
X, y = rng.normal(size=(n, 10)), rng.integers(0, 2, n)
"""
DIGESTS = """
from ostraka.data import guards
X, public = rng.normal(size=(n, 10)), rng.normal(size=(500, 10))
"""
SYNTH = """
from ostraka.synth import Schema, TableGenerator
kinds = np.array(["a", "b", "c", "d"])
schema = Schema.from_dict({name: {"categories": kinds.tolist()} for name in "uvwxyz"})
def rows(n):
    codes = rng.integers(0, 4, (6, n), dtype=np.int8)
    codes[1] = np.where(rng.random(n) < 0.7, codes[0], codes[1])
    return {name: kinds[column] for name, column in zip("uvwxyz", codes, strict=True)}
"""
COLLECT = """
from bench.collect import kept_task
from ostraka.collect import Client, Histogram
from ostraka.collect.messages import Report
"""
TEXT = """
from ostraka.text import WordModel
from ostraka.text.evolution import evolution, features
words = [f"word{k}" for k in range(50)]
documents = [" ".join(words[k] for k in some) for some in rng.integers(0, 50, (n, 6))]
made = evolution(WordModel(words), n_texts=8, n_rounds=2, n_tokens=3, epsilon=8.0)
"""
MASKS = "from bench.collect import all_pairs"
VERBS = {
    "count ballots of 50 teachers": (
        COUNTS + "ballots = rng.integers(0, 10, size=(50, n), dtype=np.uint8)",
        "count_votes(ballots, n_classes=10)",
    ),
    "release argmaxes": (
        COUNTS + "votes = Private(counts, Adjacency.one_ballot())\n"
        "ledger = Ledger(':memory:', budget=Budget(epsilon=1e6, delta=1e-5, adaptive=False))",
        "release(GNMax(sigma=4e3), votes, ledger=ledger)",
    ),
    "exact cost of votes, a thousand distinct": (COUNTS, "exact_curve(GNMax(sigma=40.0), counts)"),
    "charge questions": (LEDGER, "fill()"),
    "verify a ledger": (
        LONG + "ledger = Ledger(f'{folder}/{n}.sqlite', read_only=True, verify=False)",
        "ledger.verify()",
    ),
    "show a ledger": (
        LONG + SHOW,
        "with redirect_stdout(StringIO()): show(f'{folder}/{n}.sqlite', last=100, secret=None, as_json=True)",
    ),
    "count rows of a Parquet file": (
        PARQUET,
        "voter.fit(ParquetRows.numbers(path, aside=()), y).vote()",
    ),
    "bound of one run, by guesses": (GUESSES, "_lower_ends(guesses, 'steinke', delta=1e-3, error=0.05)"),
    "masks of a client, by values": (MASKS, "all_pairs(7, n)"),
    "count rows in a table": (ROWS, "voter.fit(X, y).vote()"),
    "a round of the filter": (
        FILTER,
        "voter.fit(X, y); voter.gradient(np.zeros((len(voter.cells.variances_) + 1, 1)), parts=8)",
    ),
    "deal rows to 50 teachers": (
        "from ostraka.voters import partition",
        "partition(n, n_teachers=50).rows()",
    ),
    "train 50 logistic teachers": (
        TEACHERS,
        "TeacherEnsemble(LogisticRegression(), n_teachers=50, n_jobs=1).fit(X, y)",
    ),
    "hold public rows apart from private ones": (
        DIGESTS,
        "guards.require_apart(guards.row_digests(X), guards.row_digests(public), what='rows', way_out='')",
    ),
    "learn a synthetic table of 6 columns": (
        SYNTH + "private = rows(n)",
        "TableGenerator(schema, epsilon=2.0, delta=1e-5).fit(private)",
    ),
    "draw synthetic rows": (
        SYNTH + "made = TableGenerator(schema, epsilon=2.0, delta=1e-5).fit(rows(2000))",
        "made.sample(n, random_state=0)",
    ),
    "report of a client of a collection, by cells": (
        COLLECT + "task, *_ = kept_task(Histogram(0, 1, cells=n), 2)",
        "Client(task).report(0.5)",
    ),
    "sum reports of 100 cells": (
        COLLECT + "task, *_ = kept_task(Histogram(0, 1, cells=100), 2)\n"
        "sent, total = Client(task).report(0.5), np.zeros(100, dtype=np.uint32)",
        "for _ in range(n): total += Report.read(sent, task, 0).vector",
    ),
    "private documents vote for texts": (
        TEXT,
        "made.fit(features(documents), rng=np.random.default_rng(0))",
    ),
    "read a CSV file": (FILE, "read(path, public=False)"),
}


def slope(sizes: list[int], values: list[float], least: float) -> float | None:
    """The slope on logarithmic axes, of the values that are large enough; None for fewer than two."""
    points = [(size, value) for size, value in zip(sizes, values, strict=True) if value >= least]
    if len(points) < 2:
        return None
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    measured: dict[str, list[Spent]] = {}
    for verb in NAMES or VERBS:
        setup, work = VERBS[verb]
        warm = SETUP.format(setup=setup, work=work)
        spent, clock = list[Spent](), list[float]()
        for size in SIZES:
            # the least one took hardly longer than its process takes to begin
            if clock and (10 * (clock[-1] - clock[0]) > LONGEST or 10 * spent[-1].grown > LARGEST):
                break
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:  # of its own: several verbs name their files alike
                spent.append(apart(warm, work, size, folder))
            clock.append(time.perf_counter() - start)
        measured[verb], sizes = spent, SIZES[: len(spent)]
        in_time = slope(sizes, [usage.processor for usage in spent], LEAST_SECONDS)
        in_room = slope(sizes, [usage.grown for usage in spent], LEAST_MIB)
        processor, room = ("unknown" if value is None else f"{value:.2f}" for value in (in_time, in_room))
        print(f"{verb}: slope of processor time {processor}, of memory {room}")
        for size, one in zip(sizes, spent, strict=True):
            print(f"  {size:,}: {one.processor:.3f} s of processor, {one.grown:.0f} MiB more", flush=True)
    if figure := os.environ.get("OSTRAKA_BENCHMARK_FIGURE"):
        draw(measured, Path(figure))


def draw(measured: dict[str, list[Spent]], path: Path) -> None:
    """Both pictures on logarithmic axes, with a line of slope 1."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for place, (name, least) in enumerate((("seconds of processor", 1e-3), ("MiB more", 0.1))):
        for number, (verb, spent) in enumerate(measured.items()):
            values = np.array([(size.processor, size.grown)[place] for size in spent])
            style = "-" if number < 10 else "--"  # there are ten colours
            axes[place].loglog(SIZES[: len(spent)], values.clip(least), style, marker="o", label=verb)
        axes[place].loglog(SIZES, np.array(SIZES) * 1e-5, "k:", label="slope 1")
        axes[place].set(xlabel="how many", ylabel=name, ylim=(least, None))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    figure.savefig(path)


if __name__ == "__main__":
    main()
