"""General mutation testing: mutants at random places of a room, each against the tests that reach its line.

``python -m mutants.general audit --sample 100`` needs the extra ``mutation`` (cosmic-ray, whose operators
change the code). The tests of the room run once with coverage, which says which test reaches which line. Each
mutant then runs in a fork of a process that has loaded the libraries: at most ``--tests`` of the tests that
reach its line, those first which reach the fewest lines. So a survivor may still be noticed by a test that
was left out, and the share that is printed errs low.

A place is a node of the syntax tree, drawn uniformly; then an operator that fits it. What changes annotations
only is no mutant. Files with compiled kernels are left out: their machine code is cached by file.
A test that starts a process of its own sees the sound sources there. A mutant that does not end is noticed.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mutants._fork import COMPILED, PACKAGE, PASSED, REPOSITORY, Change, fails

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOMS = {
    "core": ("accounting", "composition", "contracts", "ledger", "mechanisms", "oracles", "durability"),
    "report": ("test_report.py", "test_plots.py"),
    "data": ("cli/test_check.py", "test_dictionary.py", "contracts"),
    "nets": ("_torch", "test_networks.py", "students"),
    "secure": ("secure",),
    "collect": ("collect",),
    "voters": ("voters", "contracts"),
    "parties": ("voters", "secure/test_rounds.py", "cli/test_parties.py"),
    "audit": ("audits", "attacks"),
    "synth": ("synth",),
    "learn": ("pate", "students"),
    "text": ("text",),
    "serve": ("service",),
    "cli": ("cli",),
}


@dataclass(frozen=True)
class Mutation(Change):
    """A change, and where and by what it came about."""

    line: int
    operator: str


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
        text = mutate_code(sound, operators[name], occurrence)
        if text is not None and _meaning(text) not in (None, _meaning(sound)):
            drawn.append(Mutation(path, text, line, name.removeprefix("core/")))
        if len(drawn) == size:
            break
    return drawn


def _meaning(text: str) -> str | None:
    """The syntax tree without annotations and what only type checkers read; None if it is no program."""
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
    return ast.dump(tree)


def reach(room: str) -> tuple[dict[Path, dict[int, set[str]]], Counter[str]]:
    """Which tests reach which line of the room, and how many lines each reaches."""
    from coverage import CoverageData

    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "coverage"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
        command += [f"--cov=ostraka.{room}", "--cov-context=test", "--cov-report="]
        command += [f"src/ostraka/{room}", *(f"tests/{name}" for name in ROOMS[room])]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=os.environ | {"COVERAGE_FILE": str(record)}, check=False
        )
        if done.returncode != PASSED:
            raise RuntimeError("the tests fail on sound sources: first mend that")
        data = CoverageData(str(record))
        data.read()
        lines = {
            Path(name): {
                line: {context.rsplit("|", 1)[0] for context in contexts if context}
                for line, contexts in data.contexts_by_lineno(name).items()
            }
            for name in data.measured_files()
        }
    breadth = Counter(test for of_file in lines.values() for tests in of_file.values() for test in tests)
    return lines, breadth


def reaching(path: Path, line: int, lines: dict[int, set[str]]) -> set[str]:
    """The tests that reach the statement of a line; all of the file where it runs as the module is loaded."""
    statements = [
        (node.lineno, node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    first, last = max(statements, default=(line, line))
    rows = [lines[row] for row in range(min(first, line), max(last, line) + 1) if row in lines]
    tests = set().union(*rows)
    return tests if tests or not rows else set().union(*lines.values())


def main(arguments: list[str]) -> int:
    """Print every survivor, and a row for the page of the room."""
    from scipy.stats import binomtest

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("--sample", type=int, default=100, help="mutants (default: 100)")
    parser.add_argument("--tests", type=int, default=60, help="tests for each at most (default: 60)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    lines, breadth = reach(options.room)
    files = sorted(path for path in lines if not COMPILED.search(path.read_text("utf-8")))
    drawn = mutations(files, options.sample, np.random.default_rng(options.seed))
    dead, unreached, sound = 0, 0, set()
    for mutation in drawn:
        tests = reaching(mutation.path, mutation.line, lines[mutation.path])
        first = sorted(tests, key=lambda test: (breadth[test], test))[: options.tests]
        unreached += not first
        if first and mutation.path not in sound and fails(first):
            raise RuntimeError(f"tests of {mutation.path} fail in a fork on sound sources: {first}")
        sound.add(mutation.path)
        alive = not (first and fails(first, mutation))
        dead += not alive
        if alive:
            place = mutation.path.relative_to(PACKAGE)
            print(
                f"survived: {place}:{mutation.line} {mutation.operator}, {len(first)} tests", file=sys.stderr
            )
    interval = binomtest(dead, len(drawn)).proportion_ci(0.95)
    print(
        f"| {options.room} | {len(drawn)} | {dead} | {dead / len(drawn):.0%} "
        f"({interval.low:.0%} to {interval.high:.0%}) | {unreached} | {datetime.now(UTC).date()} |"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
