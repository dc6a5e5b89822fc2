"""``ostraka learn`` by counts from a folder of Parquet files: time and memory of up to 10^8 rows, 20 columns.

``OSTRAKA_BENCHMARK_ROWS`` sets how many. Half as many are learned from before, so that the slope is seen.
Rows are written part by part: 8 columns of kinds, and 12 of numbers in 32 bits. Two decide about the label.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

__all__ = ["main"]

ROWS = int(os.environ.get("OSTRAKA_BENCHMARK_ROWS", "1000000"))
QUICK = {"ROWS": 5_000}
PUBLIC, GROUP, FILE = 2_000, 1_000_000, 10_000_000  # rows: public ones, of a row group, of a file
KINDS, NUMBERS = 8, 12
LEARN = "from ostraka.cli import main; main()"


def rows(rng: np.random.Generator, n: int) -> pa.Table:
    """Rows with a label, private or public."""
    kinds = {
        f"k{j}": pa.DictionaryArray.from_arrays(rng.integers(0, 4, n, dtype=np.int8), ["a", "b", "c", "d"])
        for j in range(KINDS)
    }
    numbers = {f"x{j}": rng.standard_normal(n, dtype=np.float32) for j in range(NUMBERS)}
    odds = numbers["x0"] + (np.asarray(kinds["k0"].indices) == 1)
    sure = rng.random(n, dtype=np.float32) < 1 / (1 + np.exp(-2 * odds))
    label = pa.DictionaryArray.from_arrays(sure.astype(np.int8), ["no", "yes"])
    return pa.table({**kinds, **numbers, "label": label})


def write(folder: Path, n: int) -> None:
    """Files of at most ten million rows."""
    folder.mkdir()
    rng, done = np.random.default_rng(0), 0
    while done < n:
        many = min(FILE, n - done)
        with parquet.ParquetWriter(folder / f"{done:010}.parquet", rows(rng, 1).schema) as file:
            for first in range(0, many, GROUP):
                file.write_table(rows(rng, min(GROUP, many - first)))
        done += many


def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("OSTRAKA_BENCHMARK_FOLDER")) as name:
        place = Path(name)
        parquet.write_table(rows(np.random.default_rng(1), PUBLIC), place / "public.parquet")
        for n in (ROWS // 2, ROWS):
            begun = time.process_time()
            write(place / "private", n)
            size = sum(path.stat().st_size for path in (place / "private").iterdir()) / 2**20
            print(f"{n:,} rows, {size:,.0f} MiB, written in {time.process_time() - begun:.0f} s of processor")
            typed = f"learn private --public public.parquet --label label --way counts --out {n} --yes"
            spent, peak = learned(typed.split(), place)
            print(f"  learned from in {spent:.1f} s of processor, {peak:,.0f} MiB at most", flush=True)
            for path in (place / "private").iterdir():
                path.unlink()
            (place / "private").rmdir()


def learned(typed: list[str], place: Path) -> tuple[float, float]:
    """Seconds of the processor and the largest memory in MiB of one run, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEARN, *typed], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"ostraka {' '.join(typed)} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)


if __name__ == "__main__":
    main()
