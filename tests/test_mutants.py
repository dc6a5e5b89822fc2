"""The planted defects stay plantable, and a sample of them is planted and noticed in every run of the suite.

The whole list takes minutes: ``python -m mutants``, whose outcome is docs/record/mutants.md.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType

import pytest

import ostraka

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = Path(ostraka.__file__).parent

# Defect: the arguments under which its test is called here.
SAMPLE = {
    "delta ignored": {},
    "base-10 for natural log": {"sigma": 40.0, "delta": 1e-5},
    "rounding down": {},
    "sigma for sigma squared": {},
    "Gaussian composition forgets its count": {"sigma": 40.0, "delta": 1e-5},
    "Gaussian delta forgets e^epsilon": {},
    "slack ignored": {"slack": 1e-9},
    "NaN passes for a cost": {"wrong": {"rdp": (float("nan"), 1.0)}},
    "NaN passes for within the goal": {},
    "private arrays print": {"access": "repr"},
    "noise cut to whole votes": {"mechanism": ostraka.GNMax(sigma=0.2)},
    "one noise for all classes": {"mechanism": ostraka.GNMax(sigma=3.0)},
    "sensitivity without the root of two": {},
    "half a vote for the screen's sensitivity": {"mechanism": ostraka.Threshold(at=4.5, sigma=2.0)},
    "margin inward": {"kind": "gaussian", "shift": 0.025, "order": 2},
    "two classes pass for the worst case": {"kind": "gaussian", "shift": 0.025, "order": 16},
    "what is not understood is free": {"stranger": "GNMax"},
}


@pytest.fixture(scope="module")
def mutants():
    return {mutant.name: mutant for mutant in importlib.import_module("mutants.__main__").MUTANTS}


def test_a_survivor_is_read_back_from_what_was_printed():
    general = importlib.import_module("mutants.general")
    path = SOURCE / "core" / "curve.py"
    sound = path.read_text(encoding="utf-8")
    line = sound[: sound.index("if self.slack == 0 ")].count("\n") + 1
    changed = sound.replace("if self.slack == 0 ", "if self.slack != 0 ")
    mutation = general.Mutation(path, changed, line, "ReplaceComparisonOperator_Eq_NotEq")
    where, *rows = str(mutation).splitlines()
    printed = "\n".join([f"survived: {where}, 3 tests", *rows, ""])
    assert general.recorded(printed) == [mutation]
    moved = printed.replace(f":{line} ", f":{line + 40} ")  # lines were added since
    assert general.recorded(moved) == [mutation]


@pytest.mark.parametrize("name", ["ostraka.audit.one_run", "ostraka.text.evolution"])
def test_a_changed_module_is_loaded_whichever_finder_leads_to_it(name, monkeypatch):
    """The finder of old names is asked first, and finds some present modules, such as the first of these."""
    fork = importlib.import_module("mutants._fork")
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)  # put back after this test
    path = SOURCE.joinpath(*name.split(".")[1:]).with_suffix(".py")
    fork.load_changed(fork.Change(path, "CHANGED = True"))
    places = importlib.import_module(name.rpartition(".")[0]).__path__
    spec = next(spec for finder in sys.meta_path if (spec := finder.find_spec(name, places)))
    assert "CHANGED" in spec.loader.get_code(name).co_names


def test_a_doctest_runs_on_the_changed_text_of_its_file():
    """Pytest would rewrite the file that it is asked for, from the text on disk."""
    code = """
from mutants import _fork
_fork._LIBRARIES = ()
path = _fork.PACKAGE / "core" / "curve.py"
changes = None, _fork.Change(path, "import a_package_that_nobody_has\\n")
print(*(_fork.attempt(["src/ostraka/core/curve.py"], change)[0] for change in changes))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=REPOSITORY, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]


def functions(module):
    """Every plain function of a module by its qualified name, methods and cached ones included."""
    by_name = {}
    for owner in (module, *(value for value in vars(module).values() if inspect.isclass(value))):
        for value in vars(owner).values():
            value = getattr(value, "__func__", value)  # noqa: PLW2901  (of a classmethod)
            plain = inspect.unwrap(value) if callable(value) else value
            if isinstance(plain, FunctionType) and plain.__code__.co_filename == module.__file__:
                by_name[plain.__qualname__] = plain
    return by_name


def codes(code):
    """Every code object below one, by its qualified name."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner.co_qualname, inner
            yield from codes(inner)


def forget():
    """Empty every cache of the core: what one module computes another may keep."""
    for name, module in list(sys.modules.items()):
        if name.startswith("ostraka.core."):
            for value in vars(module).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def plant(mutant, monkeypatch):
    """Give the functions that the defect changes their changed code."""
    module = importlib.import_module("ostraka." + mutant.file.removesuffix(".py").replace("/", "."))
    path = SOURCE / mutant.file
    changed = path.read_text(encoding="utf-8").replace(mutant.before, mutant.after)
    planted = 0
    new = dict(codes(compile(changed, path, "exec", dont_inherit=True)))
    for name, function in functions(module).items():
        old = function.__code__
        if any(
            getattr(new[name], part) != getattr(old, part) for part in ("co_code", "co_consts", "co_names")
        ):
            monkeypatch.setattr(function, "__code__", new[name])
            planted += 1
    assert planted > 0


def killer(mutant):
    """The test that must notice, as a plain function."""
    file, _, name = mutant.killer.partition("::")
    spec = importlib.util.spec_from_file_location(f"killer_{Path(file).stem}", REPOSITORY / "tests" / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_defect_is_noticed(name, mutants, monkeypatch):
    check = killer(mutants[name])
    check(**SAMPLE[name])
    plant(mutants[name], monkeypatch)
    forget()
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(**SAMPLE[name])
    finally:
        forget()


def test_every_defect_can_be_planted_and_its_test_exists(mutants):
    assert len(mutants) >= 60
    text = functools.cache(lambda path: path.read_text(encoding="utf-8"))
    parsed = functools.cache(lambda path: ast.parse(text(path)).body)
    for mutant in mutants.values():
        assert text(SOURCE / mutant.file).count(mutant.before) == 1, mutant.name
        file, *names = mutant.killer.split("::")
        body = parsed(REPOSITORY / "tests" / file)
        for name in names:
            plain = name.partition("[")[0]  # one of several parameters
            [definition] = [node for node in body if getattr(node, "name", None) == plain]
            body = definition.body


def test_the_page_names_every_defect_and_no_survivor(mutants):
    page = (REPOSITORY / "docs" / "record" / "mutants.md").read_text(encoding="utf-8")
    assert re.search(rf"\*\*{len(mutants)} defects(; {len(mutants)} are noticed)?\.\*\*", page)
    assert "**nobody**" not in page
    for mutant in mutants.values():
        assert f"| {mutant.name} | `{mutant.file}` | `{mutant.killer}` |" in page
