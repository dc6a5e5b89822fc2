"""Synthetic tables of ten million rows: marginals counted in parts from a Parquet file; seconds and memory.

Twenty columns of generated data, ten of text and ten of numbers. The fit has a process of its own, whose
largest memory is measured; pyarrow and scikit-learn are in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, PART = 10_000_000, 500_000
QUICK = {"ROWS": 20_000, "PART": 10_000}
WORDS, EDGES = [f"kind {k}" for k in range(12)], list(range(0, 110, 10))
FIT = """
import json, resource, sys, time
from ostraka.synth import Schema, TableGenerator

schema = Schema.from_dict(json.loads(sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, cpu = time.perf_counter(), time.process_time()
made = TableGenerator(schema, target="t00", epsilon=1.0, delta=1e-5).fit(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([time.perf_counter() - start, time.process_time() - cpu, before, peak, made.n_rows_]))
"""


def schema() -> dict[str, dict[str, object]]:
    """Twenty columns."""
    texts: dict[str, dict[str, object]] = {f"t{k:02}": {"categories": WORDS} for k in range(10)}
    return texts | {f"n{k:02}": {"edges": EDGES, "whole": True} for k in range(10)}


def write(path: Path) -> None:
    """The file, part by part. Every column follows the one before it in half of the rows."""
    rng, writer = np.random.default_rng(0), None
    for begin in range(0, ROWS, PART):
        n, columns, before = min(PART, ROWS - begin), {}, np.zeros(0)
        for name, kind in schema().items():
            column = rng.integers(0, 10, n)
            if before.size:
                column = np.where(rng.random(n) < 0.5, before, column)
            before = column
            if "edges" in kind:
                columns[name] = pa.array(column * 10 + rng.integers(0, 10, n))
            else:
                columns[name] = pa.DictionaryArray.from_arrays(pa.array(column.astype(np.int8)), WORDS)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def main() -> None:
    """Write the file, fit in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path)
        size = path.stat().st_size
        done = subprocess.run(
            [sys.executable, "-c", FIT, str(path), json.dumps(schema())],
            capture_output=True,
            text=True,
            check=True,
        )
    wall, cpu, before, peak, n_rows = json.loads(done.stdout)
    print(
        f"  {ROWS:,} rows × 20 columns, {size / 2**20:.0f} MiB of Parquet: fit {wall:.1f} s on the wall, "
        f"{cpu:.1f} s of processor time, at most {peak / 2**10:.0f} MiB "
        f"({before / 2**10:.0f} MiB before it); rows by noise {n_rows:,}"
    )


if __name__ == "__main__":
    main()
