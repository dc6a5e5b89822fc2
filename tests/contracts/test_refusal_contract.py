"""Whoever is given what cannot be says so in a sentence of this library, and nothing is charged."""

import importlib
import inspect
import pkgutil
import traceback

import numpy as np
import pandas as pd
import pytest

import ostraka
from ostraka import Budget, Ledger, PATEClassifier
from ostraka.report import page
from ostraka.synth import DPGM, Evolution, PrivateKMeans, Schema, SequenceGenerator, TableGenerator

READERS = ("from_dict", "from_json", "from_toml", "load")
NOTHING = (
    *(
        None,
        {},
        [],
        (),
        7,
        1.5,
        float("nan"),
        True,
        object(),
        {1: 2},
        {"a": 1},
        {"version": 1},
        [1],
        b"",
        b"x",
    ),
    *("", "{}", "[]", "null", "7", '{"version": 1}', "[" * 100_000, "\0"),
)
ROWS = np.random.default_rng(0).random((60, 3))
SCHEMA = Schema.from_dict({"a": {"edges": [0, 0.5, 1]}, "b": {"edges": [0, 0.5, 1]}})
TABLE = {"a": ROWS[:, 0], "b": ROWS[:, 1]}


def alike(winners, rng):
    return winners


GENERATORS = {
    "clusters": (lambda **size: PrivateKMeans(**{"n_clusters": 3} | size), (ROWS,), {}),
    "features": (
        lambda **size: PrivateKMeans(**{"n_clusters": 3, "kernel": "rbf", "n_components": 4} | size),
        (ROWS,),
        {},
    ),
    "gaussians": (
        lambda **size: DPGM(**{"n_clusters": 2, "generator": "gaussian"} | size),
        (ROWS,),
        {},
    ),
    "candidates": (lambda **size: Evolution(ROWS[:9], vary=alike, **size), (ROWS,), {}),
    "tables": (lambda **size: TableGenerator(SCHEMA, **size), (TABLE,), {}),
    "sequences": (lambda **size: SequenceGenerator(SCHEMA, **size), (TABLE,), {"groups": np.arange(60) // 2}),
}
SIZES = [
    (name, parameter)
    for name, (made, *_) in GENERATORS.items()
    for parameter, value in made().get_params(deep=False).items()
    if isinstance(value, int) and not isinstance(value, bool)
]


def readers():
    """Every public function of a class that reads what was written; some need more than the text."""
    for module in pkgutil.walk_packages(ostraka.__path__, "ostraka."):
        if module.name.rpartition(".")[2].startswith("_"):
            continue
        try:
            members = vars(importlib.import_module(module.name))
        except ImportError:  # of an extra
            continue
        for kind in list(members.values()):
            if inspect.isclass(kind) and kind.__module__ == module.name and not kind.__name__.startswith("_"):
                for name in READERS:
                    if isinstance(inspect.getattr_static(kind, name, None), classmethod):
                        yield getattr(kind, name)


def is_a_sentence(error):
    """Whether this library raised the error, or a file could not be opened, which the error names."""
    if isinstance(error, OSError) and error.filename is not None:
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "ostraka" in last.filename and str(last.line).startswith("raise ") and len(str(error)) > 20


def refused(read, *given, **more):
    """What was raised, if it is a sentence."""
    try:
        read(*given, **more)
    except Exception as error:  # noqa: BLE001  (that is the question)
        raw = None if is_a_sentence(error) else f"{type(error).__name__}: {error}"
        return error, raw
    return None, None


ALL = {read.__qualname__: read for read in readers()}


@pytest.mark.parametrize("name", ALL)
def test_what_was_never_written_is_refused_in_a_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = {}
    for given in NOTHING:
        error, words = refused(ALL[name], given)
        assert error is not None, given
        if words:
            raw[repr(given)[:30]] = words
    assert raw == {}


def test_every_reader_is_asked():
    assert {
        "Curve.from_dict",
        "Schema.from_dict",
        "Result.from_json",
        "TableGenerator.from_json",
    } <= ALL.keys()
    assert {"SavedTeachers.load", "SavedDocuments.load", "Manifest.from_json", "Task.from_json"} <= ALL.keys()


@pytest.mark.parametrize("size", [10**12, 10**30, -1, 1.5, "x", float("nan")])
@pytest.mark.parametrize(("name", "parameter"), SIZES)
def test_a_size_that_cannot_be_is_refused_before_the_charge(name, parameter, size):
    if parameter in {"n_iterations", "n_rounds", "steps"} and size == 10**12:
        pytest.skip("as many rounds as that are a matter of time")
    made, given, more = GENERATORS[name]
    with Ledger(":memory:", budget=Budget(epsilon=1.1, delta=1e-5, adaptive=False)) as ledger:
        error, raw = refused(lambda: made(**{parameter: size}).fit(*given, ledger=ledger, **more))
        assert raw is None
        assert error is None or ledger.count() == 0


@pytest.mark.parametrize("parameter", ["ledger", "manifest", "progress", "engine", "n_jobs"])
@pytest.mark.parametrize("way", ["argmax", "counts", "filter"])
def test_what_a_fit_runs_with_is_refused_before_anything_is_charged(way, parameter):
    labels = (ROWS[:, 0] > 0.5).astype(int)
    for value in (object(), 1.5, float("nan"), b"x", [], (1, 2)):
        model = PATEClassifier(way=way, epsilon=4.0, n_teachers=5).set_params(**{parameter: value})
        error, raw = refused(model.fit, ROWS, labels, ROWS[:9] * 0.99)
        assert raw is None
        if way == "argmax" or parameter not in {"engine", "n_jobs"}:  # other ways have no teachers
            assert f"{parameter} must be" in str(error)
            assert not hasattr(model, "ledger_")


@pytest.mark.parametrize("budget", ["x", 2.0, (2.0, 1e-5), {"epsilon": 2.0}])
def test_a_budget_that_is_none_is_refused(budget, tmp_path):
    with pytest.raises(TypeError, match=r"budget must be a Budget, such as Budget\(epsilon=2.0"):
        Ledger(tmp_path / "ledger.sqlite", budget=budget)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", [None, 7, b"x", []])
def test_a_place_that_is_none_is_refused(where):
    with pytest.raises(TypeError, match="where must be the path of a file"):
        Ledger(where, budget=Budget(epsilon=2.0, delta=1e-5))


def test_names_of_several_levels_are_refused_where_columns_are_named():
    y = (ROWS[:, 0] > 0.5).astype(int)
    made = PATEClassifier(epsilon=4.0, n_teachers=5).fit(ROWS, y, ROWS[:20] * 0.99)
    levels = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y"), ("b", "z")])
    with pytest.raises(ValueError, match=r"got tuple: of a data frame with several levels of names, \['/'"):
        made.to_sklearn(columns=levels)
    with pytest.raises(ValueError, match="must name each of 3 features, got 2"):
        made.to_sklearn(columns=["a", "b"])


@pytest.mark.parametrize("epsilon", [1e15, 1e26, 1.2345678e26, 1e300])
def test_an_epsilon_of_many_digits_has_a_sentence_that_errs_up(epsilon):
    assert "no protection to speak of" in page.sentence(epsilon=epsilon, delta=1e-5, unit="row")
    assert float(page.at_most(epsilon)) >= epsilon
    assert len(page.at_most(epsilon)) < 12
