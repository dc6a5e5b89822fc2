"""Imports point down only, packages on one floor stay apart, heavy libraries stay in their rooms."""

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ostraka
from ostraka.core.imports import uncollected

ROOT = Path(ostraka.__file__).parent

# An import points only to a room further up in this list. What a room reads of a lower one: see EXCEPTIONS.
ROOMS_IN_ORDER = (
    "_paths",
    "core",
    "console",
    "report",
    "data",
    "nets",
    "secure",
    "collect",
    "voters",
    "parties",
    "audit",
    "synth",
    "text",
    "learn",
    "serve",
    "cli",
)
# The public classifier stands before its room, which needs torch.
SAME_ROOM = {"networks": "nets"}
# Parties were voters once: their public names are still there, and their kind of saved folder is read there.
EXCEPTIONS = {("voters/__init__.py", "parties"), ("voters/saved.py", "parties")}

# Where a heavy library may be imported at module level. Elsewhere: inside the function that uses it.
HEAVY = {
    "click": {
        *("audit", "cli", "collect", "console", "data", "learn"),
        *("parties", "report", "serve", "synth", "text"),
    },
    "cryptography": {"collect", "secure", "serve"},
    "dask": set(),
    "distributed": set(),
    "fastapi": set(),
    "httpx": set(),
    "jinja2": set(),
    "joblib": {"voters"},
    "matplotlib": {"report"},
    "narwhals": set(),
    "numba": {"nets"},
    "pandas": set(),
    "psycopg": set(),
    "pyarrow": set(),
    "randomgen": set(),
    "ray": set(),
    "sklearn": {"data", "learn", "nets", "synth", "voters"},
    "skops": set(),
    "sqlalchemy": set(),
    "torch": {"audit", "learn", "nets"},
    "uvicorn": {"serve"},
}
HEAVY_AT_START = (
    "dask",
    "jinja2",
    "joblib",
    "matplotlib",
    "numba",
    "pandas",
    "pyarrow",
    "ray",
    "sklearn",
    "torch",
)


def room(name: str) -> str:
    """The room of a module or file directly under ostraka."""
    name = name.removesuffix(".py")
    return SAME_ROOM.get(name, name)


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    with uncollected():  # a tree holds no garbage
        return ast.parse(path.read_text())


def imported(node: ast.AST) -> list[str]:
    """Absolute dotted names that an import statement asks for; ``from a import b`` counts as a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement of a file, however deep; what is below one, as expressions are, imports nothing."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, block, ()):
            yield node
            yield from statements(node)


def rooms_used(tree: ast.AST) -> set[str]:
    """Rooms of ostraka imported anywhere in a file, lazily and for type checkers included."""
    parts = [name.split(".") for node in statements(tree) for name in imported(node)]
    return {room(part[1]) for part in parts if part[0] == "ostraka" and len(part) > 1} - {"__version__"}


def at_module_level(tree: ast.Module) -> list[str]:
    """Names imported when the file itself is imported: not in functions, not under TYPE_CHECKING."""
    imports: list[str] = []
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        imports += imported(node)
        waiting.extend(ast.iter_child_nodes(node))
    return imports


def may_use(user: str, target: str) -> bool:
    return ROOMS_IN_ORDER.index(target) <= ROOMS_IN_ORDER.index(user)


def test_every_file_has_a_room():
    assert {room(path.relative_to(ROOT).parts[0]) for path in FILES} == set(ROOMS_IN_ORDER)


def test_imports_point_to_rooms_further_up_only():
    wrong = {
        (name, used)
        for path in FILES
        for name in [path.relative_to(ROOT).as_posix()]
        for used in rooms_used(parsed(path))
        if not may_use(room(path.relative_to(ROOT).parts[0]), used)
    }
    assert wrong == EXCEPTIONS


def test_imports_are_absolute():
    relative = [
        str(path.relative_to(ROOT))
        for path in FILES
        if any(getattr(node, "level", 0) for node in statements(parsed(path)))
    ]
    assert relative == []


def test_heavy_libraries_are_imported_in_their_rooms_only():
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name in {name.split(".")[0] for name in at_module_level(parsed(path))} & HEAVY.keys()
        if room(path.relative_to(ROOT).parts[0]) not in HEAVY[name]
    }
    assert wrong == set()


def dotted(path: Path) -> str:
    """The module name of a file, without the package's own."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_files_do_not_import_each_other_in_a_circle_when_they_are_loaded():
    modules = {dotted(path): path for path in FILES}
    needs: dict[str, set[str]] = {}
    for name, path in modules.items():
        words = [word.removeprefix("ostraka.") for word in at_module_level(parsed(path))]
        targets = {next((m for m in (word, word.rpartition(".")[0]) if m in modules), "") for word in words}
        # a package's own __init__ re-exports its modules: asking it from inside is the circle to forbid
        needs[name] = targets - {"", name}
    ready: set[str] = set()
    while grown := {name for name in needs.keys() - ready if needs[name] <= ready}:
        ready |= grown
    assert needs.keys() - ready == set()


@pytest.mark.parametrize(
    ("user", "target", "allowed"),
    [
        ("learn", "core", True),
        ("core", "learn", False),
        ("voters", "secure", True),
        ("secure", "voters", False),
        ("data", "voters", False),
        ("voters", "parties", False),
        ("audit", "learn", False),
        ("serve", "learn", True),
    ],
)
def test_the_rule_itself_says_no_where_the_design_says_no(user, target, allowed):
    assert may_use(user, target) is allowed


@pytest.mark.parametrize(
    ("source", "imports"),
    [
        ("import sklearn.base", ["sklearn.base"]),
        ("def f():\n    import sklearn", []),
        ("if TYPE_CHECKING:\n    import sklearn\nelse:\n    import numba", ["numba"]),
        ("try:\n    from torch import nn\nexcept ImportError:\n    pass", ["torch.nn"]),
        ("class A:\n    import ray", ["ray"]),
    ],
)
def test_the_search_for_module_level_imports_sees_what_runs_at_import(source, imports):
    assert at_module_level(ast.parse(source)) == imports


# What is imported one after the other in a process of its own: each lists what it and those before it loaded.
IMPORTED = """
import json, sys
before = set(sys.modules)
import ostraka
listed = [sorted(set(sys.modules) - before)]
import ostraka.cli.verbs
ostraka.cli.verbs.command()
listed.append(sorted(sys.modules))
import ostraka.students, ostraka.voters, ostraka.learn.cli, ostraka.serve
listed.append(sorted(sys.modules))
print(json.dumps(listed))
"""


def test_importing_loads_little_and_torch_only_by_what_needs_it():
    run = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    package, verbs, rooms = json.loads(run.stdout)
    # a count, not a clock: what makes an import slow is how much it pulls in; old paths load no module
    assert {name for name in package if name.startswith("ostraka.")} <= {
        "ostraka.core",
        "ostraka.core.imports",
        "ostraka._paths",
    }
    assert not {"importlib.abc", "importlib.util", "tempfile"} & set(package)
    assert "ostraka" in package
    assert len(package) < 100
    assert not {name.partition(".")[0] for name in package + verbs} & set(HEAVY_AT_START)
    assert {"ostraka.learn.cli", "ostraka.serve"} <= set(rooms)
    assert "torch" not in rooms


# Private names of other packages change without notice. These are documented, in Python and scikit-learn.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace", "_safe_indexing"}
# What has no public name: types that saved voters may hold, a version counter, what a fit would set, features
# of a processor. Servers, clients and stores use none.
KNOWN = {
    ("core/compiled.py", "_core"),
    ("core/compiled.py", "_multiarray_umath"),
    ("core/imports.py", "_trusted_types"),
    ("core/imports.py", "_utils"),
    ("data/fits.py", "_counts_student"),
    ("learn/handover.py", "_label_binarizer"),
    ("nets/private.py", "_version"),
    ("parties/models.py", "_multilayer_perceptron"),
    ("voters/kinds.py", "_nearest_centroid"),
    ("voters/kinds.py", "_stochastic_gradient"),
    ("voters/saved.py", "_ball_tree"),
    ("voters/saved.py", "_dist_metrics"),
    ("voters/saved.py", "_kd_tree"),
    ("voters/saved.py", "_tree"),
}
USED = re.compile(r"\.(_[a-zA-Z]\w*)|^\s*from (?!ostraka)\S+ import (_[a-zA-Z]\w*)$", re.MULTILINE)
OWN = re.compile(r"(?:\b(?:def|class) |\bself\.|\bcls\.|^\s*)(_[a-zA-Z]\w*)", re.MULTILINE)


def test_no_other_private_name_of_another_package_is_used():
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
    documented = DOCUMENTED.union(*map(OWN.findall, texts.values()))
    uses = {(place, "".join(name)) for place, text in texts.items() for name in USED.findall(text)}
    assert {(place, name) for place, name in uses if name not in documented} == KNOWN
    assert not {place for place, _ in KNOWN if place.split("/")[0] in {"serve", "secure", "collect"}}
