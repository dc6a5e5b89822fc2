"""``ostraka learn`` from one Parquet file whose rows stay there: time and memory of up to 10^8 rows.

By one table of counts, and by 250 logistic teachers. ``OSTRAKA_BENCHMARK_ROWS`` sets how many rows
(100000000: about 1.5 GB of disk in ``OSTRAKA_BENCHMARK_FOLDER``, and half an hour or more); half as many are
learned from before, so that the slope is seen. Rows are written part by part: 20 columns, 8 of kinds and 12
of numbers in 32 bits, rounded to sixteenths. Two columns decide about the label. ``OSTRAKA_BENCHMARK_PEOPLE``
sets how many rows a person has: a column of texts then says whose each row is, and people are protected.
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
PEOPLE = int(os.environ.get("OSTRAKA_BENCHMARK_PEOPLE", "0"))  # rows of one; 0: each row is a unit
PUBLIC, GROUP = 2_000, 1_000_000  # rows: public ones, of a row group
KINDS, NUMBERS = 8, 12
LEARN = "from ostraka.cli import main; main()"
WAYS = {
    "one table of counts": "--way counts",
    "250 logistic teachers": "--way argmax --teachers 250 --teacher logistic --sigma 40 --jobs 1",
}
QUICK = {"ROWS": 5_000, "WAYS": {"one table of counts": "--way counts"}}  # 250 teachers need more rows


def rows(rng: np.random.Generator, n: int) -> pa.Table:
    """Rows with a label, private or public."""
    kinds = {
        f"k{j}": pa.DictionaryArray.from_arrays(rng.integers(0, 4, n, dtype=np.int8), ["a", "b", "c", "d"])
        for j in range(KINDS)
    }
    numbers = {f"x{j}": np.round(16 * rng.standard_normal(n, dtype=np.float32)) / 16 for j in range(NUMBERS)}
    odds = numbers["x0"] + (np.asarray(kinds["k0"].indices) == 1)
    sure = rng.random(n, dtype=np.float32) < 1 / (1 + np.exp(-2 * odds))
    label = pa.DictionaryArray.from_arrays(sure.astype(np.int8), ["no", "yes"])
    return pa.table({**kinds, **numbers, "label": label})


def write(path: Path, n: int) -> None:
    """Rows in row groups of a million."""
    rng = np.random.default_rng(0)

    def part(size: int) -> pa.Table:
        table = rows(rng, size)
        if not PEOPLE:
            return table
        who = np.char.add("person ", rng.integers(0, max(1, n // PEOPLE), size).astype(str))
        return table.append_column("who", pa.array(who))

    with parquet.ParquetWriter(path, part(1).schema) as file:
        for first in range(0, n, GROUP):
            file.write_table(part(min(GROUP, n - first)))


def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("OSTRAKA_BENCHMARK_FOLDER")) as name:
        place = Path(name)
        parquet.write_table(rows(np.random.default_rng(1), PUBLIC), place / "public.parquet")
        for n in (ROWS // 2, ROWS):
            start, path = time.process_time(), place / f"{n}.parquet"
            write(path, n)
            size, spent = path.stat().st_size / 2**20, time.process_time() - start
            print(f"{n:,} rows, {size:,.0f} MiB, written in {spent:.0f} s of processor")
            for number, (method, options) in enumerate(WAYS.items()):
                whose = "--person who" if PEOPLE else ""
                typed = f"learn {path.name} --public public.parquet --label label {whose} {options} --yes"
                spent, peak = learned([*typed.split(), "--out", f"{n}-{number}"], place)
                print(f"  {method}: {spent:.1f} s of processor, {peak:,.0f} MiB at most", flush=True)
            path.unlink()


def learned(typed: list[str], place: Path) -> tuple[float, float]:
    """Seconds of the processor and the largest memory in MiB of one run, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEARN, *typed], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, resources = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"ostraka {' '.join(typed)} failed")
    return resources.ru_utime + resources.ru_stime, resources.ru_maxrss / (
        1024 if sys.platform != "darwin" else 2**20
    )


if __name__ == "__main__":
    main()
