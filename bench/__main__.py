"""Run the benchmarks of this folder, all or the named ones: ``python -m bench [--quick] [NAME ...]``.

A benchmark is a module whose docstring says what it measures and whose ``main()`` prints figures. Speed is
printed as a ratio of two things measured in the same run, since the machine differs from day to day.
``--quick`` runs each in its smallest form, which shows that it works and whose figures mean nothing.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from bench._data import shrink

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """Modules of this folder, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


def cpu() -> str:
    """Name of the processor, as well as the system tells it."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def load() -> str:
    """How busy the machine is: figures taken at a load above the number of cores are pessimistic."""
    last_minute, five, _ = os.getloadavg() if hasattr(os, "getloadavg") else (float("nan"),) * 3
    return f"load {last_minute:.1f} now, {five:.1f} over five minutes"


def main(asked: list[str]) -> int:
    """Run the named benchmarks; 1 if one failed, 2 if a name is unknown."""
    if {"-h", "--help"} & set(asked):
        print(f"{(__doc__ or '').strip()}\n\nnames: {', '.join(names())}")
        return 0
    quick = "--quick" in asked
    asked = [name for name in asked if name != "--quick"]
    unknown = sorted(set(asked) - set(names()))
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {cpu()} · {os.cpu_count()} cores · {load()}")
    print(f"Python {platform.python_version()} · {platform.platform()}")
    failed = []
    for name in asked or names():
        module = importlib.import_module(f"bench.{name}")
        print(f"\n## {name}: {(module.__doc__ or '').strip().splitlines()[0]}\n{load()}", flush=True)
        start = time.perf_counter()
        try:
            if quick:
                shrink(module)
            module.main()
        except Exception as error:  # noqa: BLE001  (one benchmark must not hide the others)
            failed.append(name)
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"({time.perf_counter() - start:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
