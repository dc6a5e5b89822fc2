"""Files and functions stay small enough to be read at one sitting."""

import ast
import statistics
from pathlib import Path

import ostraka

ROOT = Path(ostraka.__file__).parent
MOST_LINES_OF_A_FILE = 350
MEDIAN_OF_FILES = 150
MOST_LINES_OF_A_FUNCTION = 60  # without its docstring
FILES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


def lines_of(function) -> int:
    """From ``def`` to the last line, the signature included and the docstring not."""
    whole = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return whole
    docstring = function.body[0]
    return whole - (docstring.end_lineno - docstring.lineno + 1)


def functions(source: str):
    return [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_are_short():
    lengths = {name: source.count("\n") for name, source in FILES.items()}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FILE} == {}
    assert statistics.median(lengths.values()) <= MEDIAN_OF_FILES


def test_functions_are_short():
    lengths = {f"{name}:{f.name}": lines_of(f) for name, source in FILES.items() for f in functions(source)}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FUNCTION} == {}


def test_the_measure_counts_what_it_says():
    (function,) = functions('def f(\n    a,\n):\n    """One.\n\n    Two.\n    """\n    return a\n')
    assert lines_of(function) == 4
