"""Planted defects of the core: how many the tests notice, each by the one test named for it.

``python -m mutants`` plants every one in a copy of the sources and runs its test there;
``--write docs/record/mutants.md`` keeps the outcome, ``--only WORD`` takes the defects with that word in
their name or file. Under ``python -m bench`` those without compiled code run, which is quick.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mutants import (
    _attacks,
    _audits,
    _collect,
    _composition,
    _counts,
    _data,
    _drawn,
    _durable,
    _exact,
    _generators,
    _plain,
    _rows,
    _secret,
    _text,
)
from mutants._fork import COMPILED, FAILED, PACKAGE, PASSED, REPOSITORY, Change, attempt

if TYPE_CHECKING:
    from mutants._mutant import Mutant

MUTANTS: list[Mutant] = [
    *_plain.MUTANTS,
    *_drawn.MUTANTS,
    *_exact.MUTANTS,
    *_audits.MUTANTS,
    *_collect.MUTANTS,
    *_counts.MUTANTS,
    *_data.MUTANTS,
    *_generators.MUTANTS,
    *_composition.MUTANTS,
    *_secret.MUTANTS,
    *_attacks.MUTANTS,
    *_rows.MUTANTS,
    *_durable.MUTANTS,
    *_text.MUTANTS,
]

PAGE = """# Planted defects

A test that cannot fail proves nothing. So defects are planted in a copy of the sources, one at a time: most
are mistakes found in published privacy code. Each must be noticed by the one test that is named for it.
`python -m mutants --write docs/record/mutants.md` makes this page.

**{total} defects; {killed} are noticed.**

| defect | planted in | noticed by |
|---|---|---|
{rows}
"""


class Workshop:
    """A copy of the sources to plant defects in, with a cache of its own for compiled kernels."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "src"
        self._caches = folder / "caches"
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "src", self._source, ignore=unwanted)

    def failure(self, tests: list[str], *, fresh: bool) -> str:
        """What pytest says of a test that fails on the copy, if any; ``fresh``: kernels are compiled anew."""
        cache = self._caches / ("fresh" if fresh else "kept")
        if fresh:
            shutil.rmtree(cache, ignore_errors=True)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]  # a defect is noticed by make test
        command = [sys.executable, "-m", "pytest", *options, *tests]
        environment = os.environ | {
            "PYTHONPATH": str(self._source),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(cache),
        }
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode not in (PASSED, FAILED):
            raise RuntimeError(f"pytest gave no verdict on {tests}:\n{done.stdout}{done.stderr}")
        return "" if done.returncode == PASSED else done.stdout

    def kills(self, mutant: Mutant) -> bool:
        """Run its test on the changed text in a fork, and what passes there in a new process, too."""
        path = self._source / "ostraka" / mutant.file
        sound, times = path.read_text(encoding="utf-8"), path.stat()
        if sound.count(mutant.before) != 1:
            raise RuntimeError(f"{mutant.name}: its text occurs {sound.count(mutant.before)} times")
        changed, killer = sound.replace(mutant.before, mutant.after), f"tests/{mutant.killer}"
        if is_quick(mutant) and attempt([killer], Change(PACKAGE / mutant.file, changed))[0]:
            return True
        path.write_text(changed, encoding="utf-8")
        try:
            return bool(self.failure([killer], fresh=mutant.compiled))
        finally:
            path.write_text(sound, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def is_quick(mutant: Mutant) -> bool:
    """Whether its text is Python that is not compiled."""
    path = PACKAGE / mutant.file
    return path.suffix == ".py" and not COMPILED.search(path.read_text(encoding="utf-8"))


def run(mutants: list[Mutant]) -> list[bool]:
    """Which are killed; first all their tests must pass on sound sources, in a fork and in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        killers = sorted({f"tests/{mutant.killer}" for mutant in mutants})
        in_forks = sorted({f"tests/{mutant.killer}" for mutant in mutants if is_quick(mutant)})
        if failure := workshop.failure(killers, fresh=False):
            raise RuntimeError(f"a test fails on sound sources, first mend that:\n{failure}")
        if in_forks and attempt(in_forks, deadline=3600.0)[0]:
            raise RuntimeError(
                "a test fails on sound sources in a fork only: try the defects one by one (--only)"
            )
        killed = []
        for mutant in mutants:
            start = time.perf_counter()
            killed.append(workshop.kills(mutant))
            verdict = "noticed" if killed[-1] else "SURVIVED"
            print(f"{verdict}: {mutant.name} ({time.perf_counter() - start:.0f} s)", flush=True)
    print(f"noticed: {sum(killed)} of {len(killed)}")
    return killed


def page(mutants: list[Mutant], killed: list[bool]) -> str:
    """The outcome as a page of the documentation."""
    rows = [
        f"| {mutant.name} | `{mutant.file}` | {f'`{mutant.killer}`' if dead else '**nobody**'} |"
        for mutant, dead in zip(mutants, killed, strict=True)
    ]
    return PAGE.format(killed=sum(killed), total=len(killed), rows="\n".join(rows))


def main() -> None:
    """The quick ones."""
    run([mutant for mutant in MUTANTS if not mutant.compiled])


def command(arguments: list[str]) -> int:
    """Exit status 1 if any survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="keep the outcome as a page")
    parser.add_argument("--only", default="", help="a word in the name or the file")
    options = parser.parse_args(arguments)
    mutants = [mutant for mutant in MUTANTS if options.only in f"{mutant.name} {mutant.file}"]
    if not mutants:
        parser.error(f"no defect has {options.only!r} in its name or file; docs/record/mutants.md lists all")
    killed = run(mutants)
    if options.write:
        options.write.write_text(page(mutants, killed), encoding="utf-8")
    return 0 if all(killed) else 1


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
