"""General mutation testing: mutants at random places of a room, each against the tests that reach its line.

``python -m mutants.general audit core/laws`` needs the extra ``mutation`` (cosmic-ray, whose operators change
the code). A room is a folder of the package or a pattern of files, such as ``core/*.py``. All tests run once
with coverage, which says which test reaches which line; ``--reach FILE`` keeps this record, or takes one that
is there, without the tests that have gone since. Each mutant then runs in a fork of a process that has loaded
the libraries: at most ``--tests`` of the tests that reach its line, those first which reach the fewest lines
of the package. So a survivor may still be noticed by a test that was left out, and the share that is printed
errs low. A line that runs as its module is loaded is met by the tests of its file, and by those of the whole
surface, which read what is loaded and reach no line. A line that no test reaches may run in a thread of
another library, so it is met by the tests of its file, too. The tests that ran until one failed must pass on
the sound sources.

A place is a node of the syntax tree, drawn uniformly; then an operator that fits it. Files with compiled
kernels are left out: their machine code is cached by file. A test that starts a process of its own sees the
sound sources there. A mutant that does not end is noticed.

No mutant is what cannot change what the code computes:

- annotations, blocks under ``TYPE_CHECKING`` and functions under ``@overload``: only type checkers read them;
- ``@lru_cache`` and ``@cache``: whether and how many values are kept decides how long a call takes;
- ``slots`` of a data class, which decides how much memory its values take;
- the markers ``*`` and ``/`` of a signature, and ``kw_only`` of a data class: they decide which calls are
  refused, as type checkers do.

Every survivor is printed with the lines that it changes. ``--again FILE`` reads what was printed and tries
these again by their text, wherever the lines are now. ``--among`` names the tests, where a few are enough.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mutants._fork import COMPILED, PACKAGE, PASSED, REPOSITORY, Change, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_FIRST = 8  # so many tests are tried alone before the others
_OF_ALL_MODULES = (
    "tests/golden/test_golden.py::test_defaults_and_limits_are_those_that_users_rely_on",
    "tests/test_public.py::test_dataclasses_are_frozen_values_and_estimators_are_only_themselves",
    "tests/test_public.py::test_no_dataclass_prints_a_secret",
)


@dataclass(frozen=True)
class Mutation(Change):
    """A change, and where and by what it came about."""

    line: int
    operator: str

    def __str__(self) -> str:
        """Where it is, and the lines before and after, each after its sign."""
        sound = self.path.read_text("utf-8").splitlines()
        changed = [row for row in difflib.ndiff(sound, self.text.splitlines()) if row[:2] in ("- ", "+ ")]
        return "\n".join([f"{self.path.relative_to(PACKAGE)}:{self.line} {self.operator}", *changed])


def recorded(text: str) -> list[Mutation]:
    """The survivors that a run printed; each where its lines are now, or nearest to where they were."""
    drawn = []
    for block in re.split("^survived: ", text, flags=re.MULTILINE)[1:]:
        head, *rows = block.splitlines()
        place, operator, *_ = head.split()
        name, _, number = place.rpartition(":")
        before, after = ("".join(row[2:] + "\n" for row in rows if row[:2] == sign) for sign in ("- ", "+ "))
        path = PACKAGE / name
        sound = path.read_text("utf-8") if path.exists() else ""
        starts = [match.start() for match in re.finditer("^" + re.escape(before), sound, re.MULTILINE)]
        lines = {sound.count("\n", 0, start) + 1: start for start in starts}
        if not lines:
            print(f"no longer there: {block}", file=sys.stderr)
            continue
        line = min(lines, key=lambda row: abs(row - int(number)))
        changed = sound[: lines[line]] + after + sound[lines[line] + len(before) :]
        if _meaning(changed) in (None, _meaning(sound)):
            print(f"no mutant: {block}", file=sys.stderr)
        else:
            drawn.append(Mutation(path, changed, line, operator.rstrip(",")))
    return drawn


def mutations(files: Sequence[Path], size: int, rng: np.random.Generator) -> list[Mutation]:
    """So many changes, each at a place of its own, drawn uniformly from the places of all files."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    operators = {}
    for name in plugins.operator_names():
        operator = plugins.get_operator(name)
        if not operator.arguments():
            operators[name] = operator()
    places: dict[tuple[Path, tuple[int, int]], list[tuple[str, int]]] = defaultdict(list)
    for path in files:
        nodes = list(ast_nodes(get_ast(path.read_text("utf-8"))))
        for name, operator in operators.items():
            starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
            for occurrence, start in enumerate(starts):
                places[path, start].append((name, occurrence))
    drawn: list[Mutation] = []
    for number in rng.permutation(len(places)):
        (path, (line, _)), choices = list(places.items())[number]
        name, occurrence = choices[rng.integers(len(choices))]
        sound = path.read_text("utf-8")
        try:
            text = mutate_code(sound, operators[name], occurrence)
        except AttributeError:  # cosmic-ray replaces no exception of a module, such as errors.Late
            text = None
        if text is not None and _meaning(text) not in (None, _meaning(sound)):
            drawn.append(Mutation(path, text, line, name.removeprefix("core/")))
        if len(drawn) == size:
            break
    return drawn


def _meaning(text: str) -> str | None:
    """The syntax tree without what changes nothing that is computed; None if it is no program."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # an annotation with an operator that fits values only
        return None
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if hasattr(node, field) and not isinstance(node, ast.AnnAssign):
                setattr(node, field, None)
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)
        if isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("not ") == "TYPE_CHECKING":
            node.test, node.body = ast.Constant(value=False), [ast.Pass()]
        if isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args]
            plain: list[ast.expr | None] = [None] * (len(named) - len(node.defaults))
            node.kwonlyargs, node.kw_defaults = (
                named + node.kwonlyargs,
                plain + node.defaults + node.kw_defaults,
            )
            node.posonlyargs, node.args, node.defaults = [], [], []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
            kept = [name.rpartition(".")[2] not in {"cache", "lru_cache"} for name in names]
            node.decorator_list = list(compress(node.decorator_list, kept))
            if "overload" in names:
                node.args.defaults, node.args.kw_defaults, node.body = [], [], [ast.Pass()]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "dataclass":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in {"slots", "kw_only"}]
    return ast.dump(tree)


def observe(record: Path, tests: Sequence[str]) -> None:
    """Run tests with coverage; the record says which of them reach which line."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    command += ["--cov=ostraka", "--cov-context=test", "--cov-report=", *tests]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | {"COVERAGE_FILE": str(record)}, check=False
    )
    if done.returncode != PASSED:
        raise RuntimeError("the tests fail on sound sources: first mend that")


def reach(record: Path, tests: set[str]) -> tuple[dict[Path, dict[int, set[str]]], Counter[str]]:
    """Which of these tests reach which line of each file, and how many lines each reaches."""
    from coverage import CoverageData

    data = CoverageData(str(record))
    data.read()
    known, breadth = tests | {""}, Counter[str]()
    files: dict[Path, dict[int, set[str]]] = {}
    for name in sorted(data.measured_files()):
        lines = files[Path(name)] = {}
        for line, contexts in data.contexts_by_lineno(name).items():
            lines[line] = {sys.intern(context.rsplit("|", 1)[0]) for context in contexts} & known
            breadth.update(lines[line])
    return files, breadth


def present() -> set[str]:
    """The tests that there are now; pytest runs none of those that it is asked for where one is missing."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
    shown = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return set(shown.stdout.splitlines())


def reaching(path: Path, line: int, lines: dict[int, set[str]]) -> tuple[set[str], bool]:
    """The tests that reach the statement of a line, and whether it runs as the module is loaded.

    Such a line is seen to run in one test at most, the first that loads the module: all tests of the file are
    its own.
    """
    rows = path.read_text("utf-8").splitlines()
    while line < len(rows) and not rows[line - 1].strip():  # where a decorator has gone
        line += 1
    tree = ast.parse("\n".join(rows))
    if not any(
        node.body[0].lineno <= line <= (node.end_lineno or line)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ):
        return set().union(*lines.values()) - {""}, True
    statements = [
        (start, node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        for start in [
            min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        ]
        if start <= line <= (node.end_lineno or node.lineno)
    ]
    first, last = max(statements, default=(line, line))
    reached = [lines[row] for row in range(min(first, line), max(last, line) + 1) if row in lines]
    return set().union(*reached) - {""}, False


def survivors(drawn: Sequence[Mutation], tests_of: Callable[[Mutation], list[str]]) -> Iterator[Mutation]:
    """Those that none of their tests notices; they are printed."""
    sound = set[tuple[str, ...]]()
    for mutation in drawn:
        tests = tests_of(mutation)
        noticed = False
        for some in (tests[:_FIRST], tests[_FIRST:]):  # files of tests that are not needed are not loaded
            failure, names = attempt(some, mutation) if some and not noticed else (False, [])
            same = tuple(names or some)
            if failure and same not in sound and attempt(same)[0]:  # it has to be the change that fails them
                print(f"fail on sound sources, too: {same}", file=sys.stderr)
            elif failure:
                sound.add(same)
                noticed = True
        if not noticed:
            where, *changed = str(mutation).splitlines()
            print(f"survived: {where}, {len(tests)} tests", *changed, sep="\n", file=sys.stderr, flush=True)
            yield mutation


def main(arguments: list[str]) -> int:
    """Print every survivor, and for each room a row for the page."""
    from scipy.stats import binomtest

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rooms", nargs="+", metavar="ROOM", help='a folder, or a pattern such as "core/*.py"')
    parser.add_argument("--sample", type=int, default=100, help="mutants of each room (default: 100)")
    parser.add_argument("--tests", type=int, default=200, help="tests for each at most (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reach", type=Path, metavar="FILE", help="the record of coverage, kept or taken")
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="the survivors that a run printed, no others"
    )
    parser.add_argument("--among", nargs="+", metavar="TEST", default=[], help="tests (default: all)")
    options = parser.parse_args(arguments)
    rooms = {
        room: set(PACKAGE.glob(room if room.endswith(".py") else f"{room}/**/*.py")) for room in options.rooms
    }
    if missing := [room for room, files in rooms.items() if not files]:
        parser.error(f"the package has no {', '.join(missing)}: type a folder of src/ostraka, or core/*.py")
    with tempfile.TemporaryDirectory() as folder:
        record = options.reach or Path(folder) / "reach"
        if not record.exists():
            observe(record, options.among or ["-n", "3", "--dist", "worksteal"])
        lines, breadth = reach(record, present())

    def tests_of(mutation: Mutation) -> list[str]:
        of_file = lines.get(mutation.path, {})
        tests, loading = reaching(mutation.path, mutation.line, of_file)
        tests = tests or set().union(*of_file.values()) - {""}
        earlier = Counter[str]()  # of one test with many parameters a few come first
        ranked = []
        for test in sorted(tests, key=lambda test: (breadth[test], test)):
            name = test.partition("[")[0]
            ranked.append((earlier[name] // _FIRST, test))
            earlier[name] += 1
        some = [test for _, test in sorted(ranked, key=lambda pair: pair[0])][: options.tests]
        return [*some, *(test for test in _OF_ALL_MODULES if loading and test not in some)]

    for room, files in rooms.items():
        if options.again:
            drawn = [change for change in recorded(options.again.read_text("utf-8")) if change.path in files]
        else:
            sound = sorted(
                path for path in files & set(lines) if not COMPILED.search(path.read_text("utf-8"))
            )
            drawn = mutations(sound, options.sample, np.random.default_rng(options.seed))
        if not drawn:
            print(f"{room}: no mutant, as all of it is compiled or no survivor is here", file=sys.stderr)
            continue
        dead = len(drawn) - sum(1 for _ in survivors(drawn, tests_of))
        interval = binomtest(dead, len(drawn)).proportion_ci(0.95)
        unreached = sum(
            not any(reaching(mutation.path, mutation.line, lines.get(mutation.path, {})))
            for mutation in drawn
        )
        print(
            f"| {room} | {len(drawn)} | {dead} | {dead / len(drawn):.0%} "
            f"({interval.low:.0%} to {interval.high:.0%}) | {unreached} | {datetime.now(UTC).date()} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
