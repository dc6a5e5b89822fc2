"""Twenty-four columns of labels: whoever takes labels takes the same ones, and gives them the same codes."""

import datetime as dt
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning
from sklearn.neighbors import KNeighborsClassifier

from ostraka.data import labels as codec
from ostraka.data.labels import Coded, Labels
from ostraka.learn.session import Data, labels_of
from ostraka.learn.students.distil import coded
from ostraka.networks import TorchClassifier
from ostraka.synth.fitting import labelled
from ostraka.voters import NeighbourVoter, QuantileCells, RowVoter, TeacherEnsemble

NA = type("NAType", (), {"__hash__": None, "__ne__": lambda *_: pytest.fail("compared")})()
COLUMNS = {  # None: refused; else the classes, and the codes of the four rows
    "text in a list": (["b", "a", "b", "a"], ["a", "b"], [1, 0, 1, 0]),
    "text in an array": (np.array(["b", "a", "b", "a"]), ["a", "b"], [1, 0, 1, 0]),
    "text among objects": (np.array(["b", "a", "b", "a"], dtype=object), ["a", "b"], [1, 0, 1, 0]),
    "digits as text": (["10", "9", "10", "9"], ["10", "9"], [0, 1, 0, 1]),
    "whole numbers": ([3, 1, 3, 7], [1, 3, 7], [1, 0, 1, 2]),
    "numbers of one byte": (np.array([3, 1, 3, 1], dtype=np.int8), [1, 3], [1, 0, 1, 0]),
    "large numbers": (np.array([2**64 - 1, 1, 1, 1], dtype=np.uint64), [1, 2**64 - 1], [1, 0, 0, 0]),
    "whole floats": ([1.0, 0.0, 1.0, 0.0], [0.0, 1.0], [1, 0, 1, 0]),
    "short floats": (np.array([1, 0, 1, 0], dtype=np.float16), [0.0, 1.0], [1, 0, 1, 0]),
    "whole numbers of two types": ([1, 0.0, 1.0, 0], [0.0, 1.0], [1, 0, 1, 0]),
    "truth values in a list": ([True, False, True, False], [False, True], [1, 0, 1, 0]),
    "truth values in an array": (np.array([True, False, True, False]), [False, True], [1, 0, 1, 0]),
    "a column": (np.array([[1], [0], [1], [0]]), [0, 1], [1, 0, 1, 0]),
    "text and numbers": (["a", 1, "a", 1], None, None),
    "text and numbers as objects": (np.array(["a", 1, "a", 1], dtype=object), None, None),
    "truth values and numbers": ([True, 2, True, 2], None, None),
    "text and nothing": (["a", None, "b", "a"], None, None),
    "numbers and nothing": ([1.0, np.nan, 0.0, 1.0], None, None),
    "numbers and a missing value": (np.array([1, NA, 0, 1], dtype=object), None, None),
    "infinity": ([1.0, np.inf, 0.0, 1.0], None, None),
    "quantities": ([0.5, 1.5, 0.5, 1.5], None, None),
    "times": (np.array(["2020-01-01", "2020-01-02"] * 2, dtype="datetime64[D]"), None, None),
    "dates": ([dt.date(2020, 1, 1), dt.date(2020, 1, 2)] * 2, None, None),
    "one-hot rows": (np.eye(4), None, None),
    "codes": (Coded(np.array(["a", "b"]), np.array([1, 0, 1, 0], dtype=np.uint8)), ["a", "b"], [1, 0, 1, 0]),
    "codes of values": (
        Coded.joined(np.array([7, 3, 9, 3]), np.array([0, 1, 0, 3], dtype=np.uint8)),
        [3, 7],
        [1, 0, 1, 0],
    ),
}
X = np.arange(8.0).reshape(4, 2)


def by_codec(y):
    labels = Labels.of(y, least=2)
    return labels.classes, labels.encode(y)


def by_teachers(y):
    ensemble = TeacherEnsemble(KNeighborsClassifier(1), n_teachers=1).fit(X, y)
    return ensemble.classes_, ensemble.vote(X).open().argmax(axis=1)


def by_neighbours(y):
    voter = NeighbourVoter(k=1).fit(X, y)
    return voter.classes_, voter._crowd.codes


def by_rows(y):
    voter = RowVoter(cells=QuantileCells(n_bins=2).fit(X + 1)).fit(X, y)
    return voter.classes_, voter._labels


def by_classifier(y):
    values = labels_of(y, n_rows=4)
    return Data(X, values, None, X, None).classes(None), Labels.of(values).encode(values)


def by_network(y):
    torch = pytest.importorskip("torch")
    network = TorchClassifier(torch.nn.Linear, epochs=1)
    losses = []
    network.minimise = lambda X, loss, *, name: losses.append((network.classes_, loss))
    network.fit(X, y)
    ((classes, loss),) = losses
    logits = torch.eye(len(classes))
    rows = [[float(loss(logits[[code]], [row])) for code in range(len(classes))] for row in range(4)]
    return classes, np.argmin(rows, axis=1)


def by_generator(y):
    classes = Labels.of(y, least=2).classes
    return classes, labelled(X, y, classes)[1]


def by_student(y):
    return coded(y, None, n_rows=4)


CALLERS = (by_codec, by_teachers, by_neighbours, by_rows, by_classifier, by_student, by_network, by_generator)
CASES = [  # to a student, None is a question without an answer
    pytest.param(name, caller, id=f"{name}-{caller.__name__}")
    for name in COLUMNS
    for caller in CALLERS
    if (name, caller) != ("text and nothing", by_student)
]


@pytest.mark.parametrize(("name", "caller"), CASES)
def test_all_who_take_labels_agree(name, caller):
    y, classes, codes = COLUMNS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataConversionWarning)
        if classes is None:
            with pytest.raises(ValueError, match=r"y must|y should|Unknown label type|Input y") as caught:
                caller(y)
            assert caught.value.__cause__ is None
            return
        names, places = caller(y)
    assert np.asarray(names).tolist() == classes
    assert np.asarray(places).tolist() == codes


@pytest.mark.parametrize(
    ("y", "declared"), [(["a", "c"], "ab"), ([0, 7], [0, 1]), ([0, 1], ["0", "1"]), (["0", "1"], [0, 1])]
)
def test_a_label_that_is_not_declared_is_refused_and_has_no_code(y, declared):
    labels = Labels.of(y, list(declared))
    with pytest.raises(ValueError, match="the 2 declared classes only"):
        labels.encode(y)
    assert (labels.places(y) < 0).any()
    assert (Labels(np.array([])).places(y) < 0).all(), "of no classes"


def test_declared_classes_keep_their_order_if_they_are_not_sorted():
    labels = Labels(np.array(["no", "yes", "maybe"]))
    assert labels.encode(["maybe", "no", "yes"]).tolist() == [2, 0, 1]
    assert labels.decode(labels.encode(["maybe", "no"])).tolist() == ["maybe", "no"]


def test_each_label_has_the_code_that_it_has_alone():
    labels, y = Labels.of([], [3, 1, 2]), [2.0, 1, 3, 2]
    assert labels.encode(y).tolist() == [int(labels.encode([label])[0]) for label in y]


def test_a_coded_column_is_its_labels_wherever_they_are_taken(monkeypatch):
    monkeypatch.setattr(codec, "_AT_ONCE", 3)
    rng = np.random.default_rng(0)
    for n_values, kind in ((2, np.uint8), (256, np.uint8), (257, np.uint16)):
        values = rng.permutation(n_values * 2)[:n_values]
        codes = np.r_[np.arange(n_values), rng.integers(0, n_values, 20)].astype(np.uint16)
        coded = Coded.joined(np.r_[values, values[0], -1], codes)  # one again, and one that no row has
        assert coded.values.tolist() == sorted(values.tolist())
        assert coded.codes.dtype == kind
        np.testing.assert_array_equal(np.asarray(coded), values[codes])
        np.testing.assert_array_equal(coded[[3, 0]], values[codes][[3, 0]])
        assert (coded.shape, coded.ndim, coded.dtype) == ((len(codes),), 1, values.dtype)
        assert len(coded) == len(codes)
        assert repr(coded) == f"Coded(shape=({len(codes)},))"
        assert np.array(coded, dtype=np.float64).dtype == np.float64
        labels = Labels.of(coded)
        assert labels.encode(coded) is coded.codes
        turned = Labels(labels.classes[::-1])
        assert turned.encode(coded).dtype == kind
        np.testing.assert_array_equal(turned.encode(coded), n_values - 1 - coded.codes.astype(int))
        np.testing.assert_array_equal(turned.places(coded), turned.encode(coded))
        with pytest.raises(ValueError, match=f"each of {len(codes) - 1} rows, got {len(codes)}"):
            Labels.of(coded, n_rows=len(codes) - 1)
        Labels.of(coded, n_rows=len(codes))


KINDS = st.one_of(
    st.lists(st.sampled_from("abcd"), min_size=1),
    st.lists(st.integers(-5, 5), min_size=1),
    st.lists(st.booleans(), min_size=1),
)


@given(y=KINDS, declared=st.one_of(st.none(), KINDS))
def test_codes_are_those_of_a_dictionary(y, declared):
    labels = Labels.of(y, declared)
    classes = sorted(set(y if declared is None else declared))
    assert labels.classes.tolist() == classes
    text = isinstance(classes[0], str) == isinstance(y[0], str)  # text never equals a number
    places = {label: code for code, label in enumerate(classes)} if text else {}
    want = [places.get(label, -1) for label in y]
    assert labels.places(y).tolist() == want
    if -1 in want:
        with pytest.raises(ValueError, match=f"the {len(classes)} declared classes only"):
            labels.encode(y)
    else:
        assert labels.encode(y).tolist() == want
        assert labels.decode(want).tolist() == y


def test_there_are_as_many_labels_and_classes_as_there_must_be():
    assert Labels.of(["a", "b"], n_rows=2, least=2).classes.tolist() == ["a", "b"]
    for y, declared, how, words in (
        (["a", "a"], None, {"least": 2}, "two classes or more, got 1 class: is it"),
        (["a", "b"], ["a"], {"least": 2}, "two classes or more, got 1 class"),
        (["a", "b"], None, {"n_rows": 3}, "one label for each of 3 rows, got 2"),
        (None, None, {}, "the target y is None"),
        (np.zeros((2, 2)), None, {}, r"got shape \(2, 2\): no soft labels"),
        (np.zeros(()), None, {}, r"got shape \(\)"),
        ([0.5], None, {}, "PATERegressor learns numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            Labels.of(y, declared, **how)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        assert Labels.of(np.array([[1], [0]])).classes.tolist() == [0, 1]
