"""``ostraka learn`` as a process: scikit-learn's digits, and a table of a million rows as CSV and Parquet.

Each run is a fresh process. Its processor time, its time on the clock and its peak memory are the
operating system's. The first two runs begin with an empty cache of compiled code, the others find it filled:
once with the machine code that a wheel brings, and once without it, as numba compiles. Python's bytecode
of the sources is there beforehand, as pip leaves it.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

import ostraka
from bench.service import cpu
from ostraka.core.compiled import machine_code

ROWS, COLUMNS, TEACHERS = 1_000_000, 20, 250
RUNS, DIGITS, KINDS = 3, True, ("csv", "parquet")
CODES = ("auto", "off")  # machine code where there is some; without it
COMPILED_HERE = True  # a cache of compiled code that begins empty
_OSTRAKA = "from ostraka.cli import main; main()"
QUICK = {
    "ROWS": 2500,
    "COLUMNS": 4,
    "TEACHERS": 25,
    "RUNS": 1,
    "DIGITS": False,
    "KINDS": ("csv",),
    "COMPILED_HERE": False,
}


def tables(folder: Path) -> None:
    """Write private and public rows, whose label is a noisy linear function, in both formats."""
    rng = np.random.default_rng(0)
    for name, n_rows in (("private", ROWS), ("public", 2000)):
        X = np.round(rng.normal(size=(n_rows, COLUMNS)), 4)
        columns = {f"x{place}": X[:, place] for place in range(COLUMNS)}
        if name == "private":
            label = X @ np.linspace(-1, 1, COLUMNS) + 2 * rng.normal(size=n_rows) > 0
            columns["y"] = np.where(label, "yes", "no")
        table = pa.table(columns)
        csv.write_csv(table, folder / f"{name}.csv")
        parquet.write_table(table, folder / f"{name}.parquet")


def run(folder: Path, *options: str, machine: str = "auto") -> tuple[float, float, float]:
    """Return processor seconds, seconds and peak memory in GiB of one ``ostraka learn``."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    command = [sys.executable, "-c", _OSTRAKA, "learn", *options, "--yes", "--out", str(out)]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "OSTRAKA_MACHINE_CODE": machine}
    if COMPILED_HERE:
        settings["NUMBA_CACHE_DIR"] = str(folder / f"compiled-{machine}")
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 4}:  # 4: nothing learned, as happens in the smallest form
        raise RuntimeError(f"ostraka learn {' '.join(options)} ended with {process.returncode}")
    peak = usage.ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start, peak


def show(name: str, folder: Path, *options: str, runs: int, machine: str = "auto") -> None:
    """Print the median of some runs, and their range."""
    figures = np.array([run(folder, *options, machine=machine) for _ in range(runs)])
    middle, least, largest = np.median(figures, axis=0), figures.min(axis=0), figures.max(axis=0)
    print(
        f"  {name}: {middle[0]:.1f} ({least[0]:.1f} to {largest[0]:.1f}) processor seconds, {middle[1]:.1f} "
        f"({least[1]:.1f} to {largest[1]:.1f}) s on the clock, {middle[2]:.2f} GiB",
        flush=True,
    )


def first_line(folder: Path) -> tuple[float, float]:
    """Return processor seconds and seconds until ``ostraka learn`` prints its first line."""
    command = [sys.executable, "-c", _OSTRAKA, "learn", "--out", str(folder / "first")]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        seconds, processor = time.perf_counter() - start, cpu(process.pid)
        process.kill()
    return processor, seconds


def imported() -> float:
    """Return processor seconds of a process that does nothing but ``from ostraka import PATEClassifier``."""
    code = "import time; from ostraka import PATEClassifier; print(time.process_time())"
    return float(subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    """Digits by counts and by teachers, nothing compiled and compiled; then both tables."""
    compileall.compile_dir(str(Path(ostraka.__file__).parent), quiet=1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = np.median([first_line(folder) for _ in range(RUNS)], axis=0)
        print(f"  first line of learn: {lines[0]:.2f} processor seconds, {lines[1]:.2f} s on the clock")
        seconds = np.median([imported() for _ in range(RUNS)])
        print(f"  from ostraka import PATEClassifier: {seconds:.2f} processor seconds", flush=True)
        for code in CODES if DIGITS else ():
            if code == "auto" and machine_code() is None:
                print("  left out: machine code of a wheel (python hatch_build.py makes it in a checkout)")
                continue
            name = "machine code of a wheel" if code == "auto" else "no machine code"
            for before, runs in (("nothing compiled before", 1), ("compiled before", RUNS)):
                for method, options in (("counts", ()), ("100 teachers", ("--teachers", "100"))):
                    show(f"digits by {method}, {name}, {before}", folder, *options, runs=runs, machine=code)
        tables(folder)
        for kind in KINDS:
            files = (str(folder / f"private.{kind}"), "--public", str(folder / f"public.{kind}"))
            name = f"{ROWS:,} rows, {COLUMNS} columns, {TEACHERS} teachers, {kind}"
            show(name, folder, *files, "--label", "y", "--teachers", str(TEACHERS), runs=RUNS)


if __name__ == "__main__":
    main()
