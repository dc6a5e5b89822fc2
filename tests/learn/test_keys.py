"""Keys of fits say what was asked: other content, another key; where a class lives is no content."""

import enum
import functools
import importlib
import importlib.util
import threading
from dataclasses import dataclass

import joblib
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ostraka import Budget, GNMax, Ledger
from ostraka.data import fits as _keys
from ostraka.data.labels import Coded
from ostraka.data.units import People
from ostraka.learn.session import Seeds
from ostraka.students import Distilled

ROWS = np.arange(12.0).reshape(3, 4)
TREE = DecisionTreeClassifier(max_depth=2)
SECRET = b"s" * 32


class Shade(enum.Enum):
    LIGHT = 1
    DARK = 2


@dataclass(frozen=True)
class Point:
    x: float


def lines(seed):
    X = np.random.default_rng(seed).normal(size=(20, 2))
    return FrozenEstimator(LogisticRegression().fit(X, X[:, 0] > 0))


DIFFERENT = [
    None, True, 1, 1.0, "1", b"1", "1.0", [1], (1,), {1}, frozenset({1}), {1: 1}, {"1": 1}, [[1]], [1, 1],
    -1.0, 0.0, -0.0, float("nan"), float("inf"), np.float64(1), np.float32(1), np.array([1.0]),
    np.array([[1.0]]), np.array([1]), np.array(["1"]), np.array(["1"], dtype=object),
    np.array([1], dtype=object), np.array(["2026-01-01"], dtype="M8[D]"),
    np.array(["2026-01-01"], dtype="M8[s]"), np.empty((0, 3)), np.empty((3, 0)), ROWS,
    ROWS.T, ROWS[::-1], np.array([(1, 2)], dtype="i4,i4"),
    np.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")]), np.ma.MaskedArray([1.0], mask=[True]),
    GNMax(sigma=1.0), GNMax(sigma=2.0), "GNMax(sigma=1.0)", Seeds(1, 2, 3, 4), (1, 2, 3, 4), Point(1.0),
    Shade.LIGHT, Shade.DARK, "spreading", Distilled("spreading"), Distilled("spreading", random_state=1),
    TREE, DecisionTreeClassifier(max_depth=3), make_pipeline(StandardScaler(), TREE),
    make_pipeline(StandardScaler(with_mean=False), TREE), lines(0), lines(1), csr_matrix(ROWS),
    csr_matrix(ROWS + 1),
    functools.partial(min, 1), functools.partial(max, 1), min, np.tanh, np.sinh, lines, range(3), range(4),
    np.random.RandomState(0), np.random.RandomState(1), {"a": [1], "b": 2}, {"a": 1, "b": [2]},
    DecisionTreeClassifier,
]  # fmt: skip


def test_different_content_has_different_digests_and_the_same_has_the_same():
    digests = [_keys.digest(value) for value in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)
    assert digests == [_keys.digest(value) for value in DIFFERENT]
    assert _keys.digest(1, 2) != _keys.digest((1, 2))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ROWS, np.asfortranarray(ROWS)),
        (ROWS, np.repeat(ROWS, 2, axis=0)[::2]),
        (ROWS, ROWS.view(type("Shared", (np.ndarray,), {}))),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a", "b", "c"}, {"c", "b", "a"}),
        (DecisionTreeClassifier(max_depth=2), TREE),
    ],
)
def test_where_content_lies_and_in_which_order_is_no_content(first, second):
    assert _keys.digest(first) == _keys.digest(second)


def test_large_arrays_are_read_in_parts(monkeypatch):
    digest = _keys.digest(ROWS.T)
    monkeypatch.setattr(_keys, "_BLOCK", 40)
    assert _keys.digest(ROWS.T) == digest


def test_codes_of_labels_have_the_digest_of_the_labels(monkeypatch):
    codes = np.random.default_rng(0).integers(0, 3, 1000).astype(np.uint8)
    classes = np.array(["no", "yes", "maybe"])
    labels = np.sort(classes)[codes]
    monkeypatch.setattr(_keys, "_BLOCK", 100)
    assert _keys.digest(Coded(np.sort(classes), codes)) == _keys.digest(labels)


def test_codes_of_texts_have_the_digest_of_an_array_of_objects(monkeypatch):
    codes, names = np.array([2, 0, 1, 0, 2, 1, 1], dtype=np.uint8), np.array(['"a"', "b", "ü"], dtype=object)
    monkeypatch.setattr(_keys, "_ROWS", 3)
    assert _keys.digest(1, People(names, codes), "x") == _keys.digest(1, names[codes], "x")
    assert _keys.digest(People(names, codes), People(names, codes)) == _keys.digest(*[names[codes]] * 2)
    assert _keys.digest(People(names, codes[::-1])) != _keys.digest(People(names, codes))


def test_a_digest_of_today_is_that_of_later():
    parts = (repr(GNMax(sigma=1.5)), Seeds(1, 2, 3, 4), "random", Distilled("spreading"), ROWS, None)
    assert _keys.digest(*parts) == "0e2042400a8bc9e973727b4ded4b95850cd439c52f95a27f4787be0b4930c4e3"


@pytest.mark.parametrize(("name", "home"), _keys.HOMES_OF_VERSION_1.items())
def test_what_version_1_names_is_found_where_it_was(name, home):
    if importlib.util.find_spec("torch") is None:  # the one library that may be missing
        pytest.skip("some of these classes need torch")
    module = importlib.import_module(home)
    assert getattr(module, name).__qualname__ == name


def hash_of_before(monkeypatch, *values):
    """What joblib made of the values when their classes were where version 1 knew them."""
    with monkeypatch.context() as patch:
        for kind in (GNMax, Seeds, Distilled):
            patch.setattr(kind, "__module__", _keys.HOMES_OF_VERSION_1[kind.__name__])
        return joblib.hash(values, hash_name="sha1")


@pytest.mark.parametrize("kind", [GNMax, Seeds, Distilled])
def test_a_class_that_moves_keeps_its_digests_of_both_versions(monkeypatch, kind):
    value = {GNMax: GNMax(sigma=1.0), Seeds: Seeds(1, 2, 3, 4), Distilled: Distilled("spreading")}[kind]
    parts = [value, ROWS, value]
    before, then = _keys.digest(parts), hash_of_before(monkeypatch, parts)
    monkeypatch.setattr(kind, "__module__", "ostraka.elsewhere")
    assert _keys.digest(parts) == before
    assert _keys._digest_of_version_1(parts) == then


def test_version_1_is_the_hash_of_before(monkeypatch):
    values = [value for value in DIFFERENT if not isinstance(value, np.ma.MaskedArray)]
    for value in values:
        assert _keys._digest_of_version_1(value, TREE) == hash_of_before(monkeypatch, value, TREE)


@pytest.mark.parametrize("value", [lambda: 0, threading.Lock(), (loop := []).append(loop) or loop])
def test_what_cannot_be_described_is_another_question_each_time(value):
    assert _keys.digest(value) != _keys.digest(value)


def test_the_key_of_before_is_taken_if_the_ledger_has_it(tmp_path, monkeypatch):
    parts = ("plan", Seeds(1, 2, 3, 4), ROWS)
    content = hash_of_before(monkeypatch, *parts)
    old = _keys._keyed(content, SECRET, version=1)
    with Ledger(tmp_path / "ledger", budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
        new = _keys.key_of(*parts, secret=SECRET, ledger=ledger)
        assert new != old
        ledger.charge(GNMax(sigma=9.0), uses=1, unit="row", simulation=False, key=f"{old}/answers/0")
        assert _keys.key_of(*parts, secret=SECRET, ledger=ledger) == old
        assert _keys.key_of(*parts, secret=b"t" * 32, ledger=ledger) not in {old, new}
        key = _keys.key_of(*parts, 0, secret=SECRET, ledger=ledger)
        assert key not in {old, new}
        ledger.charge(GNMax(sigma=9.0), uses=1, unit="row", simulation=False, key=key)
        assert _keys.key_of(*parts, 0, secret=SECRET, ledger=ledger) == key
