"""Private arrays do not leak: not by printing, converting, comparing or copying, nor in an error's text."""

import copy
import io
import json
import logging
import operator
import pickle
import pprint
import string
import traceback

import joblib
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka import Adjacency, Budget, Confident, GNMax, Ledger, LNMax, Private, Threshold, release
from ostraka.accounting import exact_curve, papernot2018_curve

SECRET = 7_654_321  # appears nowhere unless a value leaks
LEAKS = (str(SECRET), f"{SECRET:_}", f"{SECRET:,}", "7.654321", "7.65", "7654", hex(SECRET))
VOTES = [[SECRET, 1], [2, SECRET]]


def secret(values=VOTES):
    return Private(values, Adjacency.one_ballot(unit="person"))


def says_nothing(text):
    return not any(leak in text for leak in LEAKS)


WAYS_OUT = {
    "np.asarray": np.asarray,
    "np.array": np.array,
    "np.array in a list": lambda p: np.array([p, p]),
    "as objects": lambda p: np.asarray(p, dtype=object),
    "float array": lambda p: np.asarray(p, dtype=float),
    "np.sum": np.sum,
    "np.mean": np.mean,
    "np.add": lambda p: np.add(p, 1),
    "np.add, reversed": lambda p: np.ones(2) + p,
    "np.concatenate": lambda p: np.concatenate([p, p]),
    "np.save": lambda p: np.save(io.BytesIO(), p),
    "np.isnan": np.isnan,
    "np.array_equal": lambda p: np.testing.assert_array_equal(p, p),
    "as an index": lambda p: np.arange(9)[p],
    "as its own index": lambda p: p[p],
    "iteration": list,
    "unpacking": lambda p: [*p],
    "max": max,
    "sum": sum,
    "sorted": sorted,
    "in": lambda p: SECRET in p,
    "==": lambda p: p == p,  # noqa: PLR0124
    "== value": lambda p: p == SECRET,
    "!=": lambda p: p != VOTES,
    "<": lambda p: p < 3,
    "+": lambda p: p + 1,
    "*": lambda p: 2 * p,
    "-": operator.neg,
    "@": lambda p: p @ p,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "bytes": bytes,
    "memoryview": memoryview,
    "hash": hash,
    "set": lambda p: {p},
    "dict key": lambda p: {p: 1},
    "json": json.dumps,
    "pickle": pickle.dumps,
    "state": lambda p: p.__getstate__(),
    "pickle 0": lambda p: pickle.dumps(p, protocol=0),
    "joblib": lambda p: joblib.dump(p, io.BytesIO()),
    "joblib.hash": joblib.hash,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy in a dict": lambda p: copy.deepcopy({"votes": p}),
    "a format for numbers": lambda p: f"{p:.2f}",
    "%d": lambda p: "%d" % p,  # noqa: UP031
    "pyarrow": lambda p: pa.array([p]),
    "vars": vars,
    "a Private of it": lambda p: Private(p, p.adjacency),
}


@pytest.mark.parametrize("access", WAYS_OUT)
def test_every_implicit_way_out_is_refused_in_words_that_say_nothing(access):
    private = secret()
    with pytest.raises((TypeError, ValueError, pa.ArrowInvalid)) as refusal:
        WAYS_OUT[access](private)
    assert says_nothing("".join(traceback.format_exception(refusal.value)))


PRINTED = {
    "repr": repr,
    "str": str,
    "f-string": lambda p: f"{p} {p!r} {p!s} {p!a}",
    "format": lambda p: f"{p}",
    "%s": lambda p: "%s %r" % (p, p),  # noqa: UP031
    "a log": lambda p: logging.LogRecord("any", logging.DEBUG, "", 1, "votes: %s", (p,), None).getMessage(),
    "Template": lambda p: string.Template("$p").substitute(p=p),
    "pprint": pprint.pformat,
    "in a container": lambda p: str([{"votes": (p,)}]),
    "json with a default": lambda p: json.dumps(p, default=str),
}


@pytest.mark.parametrize("access", PRINTED)
def test_what_is_printed_is_the_shape_and_whom_it_protects(access):
    text = PRINTED[access](secret())
    assert says_nothing(text)
    assert "Private(shape=(2, 2), unit='person')" in text


def test_refusals_say_which_door_is_open():
    with pytest.raises(TypeError, match=r"opens only in a mechanism: ostraka\.release\(mechanism, private"):
        np.asarray(secret())


def test_what_looks_like_iteration_backwards_yields_private_parts_only():
    assert all(isinstance(part, Private) for part in reversed(secret()))


@pytest.mark.parametrize(
    "bad",
    [
        [[f"{SECRET}x", "1"], ["2", "3"]],
        [[f"{SECRET}", None], ["2", "3"]],
        [[{"votes": SECRET}, 1]],
        [[SECRET, np.nan], [1, 2]],
        [[SECRET + 0.5, np.inf], [1, 2]],
        [[SECRET], [3]],
        [SECRET, 3],
        [[[SECRET, 1]]],
        [[SECRET + 2j, 1]],
    ],
    ids=["text", "mixed", "objects", "nan", "inf", "one class", "flat", "deep", "complex"],
)
@pytest.mark.parametrize(
    "mechanism",
    [GNMax(sigma=2.0), LNMax(scale=2.0), Threshold(at=3, sigma=1.0)],
    ids=lambda m: type(m).__name__,
)
def test_votes_that_are_no_votes_are_refused_without_being_quoted(mechanism, bad):
    private = secret(np.array(bad, dtype=object) if bad[0] != SECRET else bad)
    with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
        for use in (
            lambda: release(mechanism, private, ledger=ledger),
            lambda: mechanism.log_outcomes(bad),
            lambda: exact_curve(mechanism, bad),
            lambda: papernot2018_curve(
                Confident(screen=Threshold(at=3, sigma=1.0), argmax=GNMax(sigma=1.0)), bad
            ),
        ):
            with pytest.raises(ValueError, match="counts") as refusal:
                use()
            assert says_nothing("".join(traceback.format_exception(refusal.value)))


def test_ragged_votes_are_refused_without_being_quoted():
    with pytest.raises(ValueError, match="shape") as refusal:
        secret([[SECRET, 1], [2]])
    assert says_nothing("".join(traceback.format_exception(refusal.value)))


def test_a_private_array_is_a_copy_that_cannot_be_written():
    mine = np.array(VOTES)
    private = Private(mine, Adjacency.one_ballot())
    mine[0, 0] = 0
    assert private.open()[0, 0] == SECRET
    with pytest.raises(ValueError, match="read-only"):
        private.open()[0, 0] = 1


@given(
    rows=st.one_of(
        st.integers(-4, 3),
        st.slices(4),
        st.lists(st.integers(-4, 3), max_size=6),
        st.lists(st.booleans(), min_size=4, max_size=4).map(lambda x: np.array(x, dtype=bool)),
    )
)
def test_selecting_entries_keeps_the_adjacency_and_the_dimension(rows):
    values = np.arange(8).reshape(4, 2)
    part = Private(values, Adjacency.one_ballot(unit="person"))[rows]
    wanted = values[[rows]] if isinstance(rows, int) else values[rows]
    assert isinstance(part, Private)
    assert part.adjacency.unit == "person"
    np.testing.assert_array_equal(part.open(), wanted)
    assert len(part) == len(wanted)
    assert part.shape == wanted.shape


@pytest.mark.parametrize("row", [2, -3, 10, np.int64(2)])
def test_an_entry_that_is_not_there_is_an_error_not_an_empty_answer(row):
    with pytest.raises(IndexError, match="2 entries"):
        secret()[row]


@pytest.mark.parametrize("index", [(slice(None), 0), (0, 1), (..., 0)])
def test_an_index_selects_entries_only(index):
    with pytest.raises(IndexError, match="takes one index, which selects entries"):
        Private(VOTES, Adjacency.one_ballot())[index]


def test_a_private_scalar_does_not_exist():
    with pytest.raises(ValueError, match="at least one axis") as refusal:
        secret(SECRET)
    assert says_nothing(str(refusal.value))


def test_another_adjacency_is_another_object():
    private = secret()
    changed = private.with_adjacency(at_most=3.0)
    assert (private.adjacency.at_most, changed.adjacency.at_most) == (1.0, 3.0)
    assert changed.adjacency.unit == "person"


@pytest.mark.parametrize(
    "adjacency",
    [
        Adjacency.one_label(),
        Adjacency.one_row(),
        Adjacency.vector(l2=1.0),
        Adjacency(relation="add-or-remove", sampling_rate=0.5),
    ],
    ids=lambda adjacency: adjacency.moves,
)
def test_an_entry_that_a_unit_owns_or_that_was_sampled_is_taken_once(adjacency):
    private = Private(np.arange(6).reshape(3, 2), adjacency)
    for rows in (slice(1, 3), [2, 0], np.array([True, False, True]), slice(None, None, -2)):
        assert private[rows].shape == (2, 2)
    with pytest.raises(ValueError, match="must not repeat"):
        private[[0, 0]]


class TestAdjacency:
    def test_within_compares_what_moves_and_how_far(self):
        promise = Adjacency.one_ballot()
        assert Adjacency(unit="person").within(promise)
        assert Adjacency(at_most=0.5).within(promise)
        assert Adjacency(sampling_rate=0.1).within(promise)
        assert not Adjacency(at_most=1.0000001).within(promise)
        assert not Adjacency(moves="label").within(promise)
        assert not Adjacency(relation="add-or-remove").within(promise)
        assert not Adjacency().within(Adjacency(sampling_rate=0.1))

    def test_a_unit_left_out_is_a_promise_of_its_own(self):
        relations = ("replace-one", "zero-out", "add-or-remove")
        tables = {relation: Adjacency.vector(l2=1.0, relation=relation) for relation in relations}
        for first in relations:
            for second in relations:
                assert tables[first].within(tables[second]) == (first == second)

    def test_within_compares_every_norm_and_the_noise_that_numbers_carry(self):
        sums = Adjacency.vector(unit="client", l0=1, l1=3.0, l2=2.0, relation="add-or-remove")
        assert sums.within(Adjacency.vector(l2=2.0, relation="add-or-remove"))
        assert sums.within(Adjacency.vector(l0=1, l1=4.0, relation="add-or-remove"))
        for smaller in ({"l0": 0.5}, {"l1": 2.999}, {"l2": 1.999}):
            assert not sums.within(Adjacency.vector(**smaller, relation="add-or-remove"))
        assert not sums.within(Adjacency.vector(l2=2.0))
        assert not Adjacency.vector(l1=3.0).within(Adjacency.vector(l2=2.0))
        assert not Adjacency.one_row().within(Adjacency.one_ballot())
        noisy = Adjacency(noise_sigma=5.0)
        assert noisy.within(noisy)
        assert not noisy.within(Adjacency(noise_sigma=5.1))
        assert not noisy.within(Adjacency.one_ballot())
        assert not Adjacency.one_ballot().within(noisy)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"moves": "household"},
            {"relation": "swap"},
            *({"relation": "zero-out", "moves": moves} for moves in ("ballot", "label", "row")),
            {"unit": ""},
            {"l2": 1.0},
            *({"l1": l1, "moves": "vector"} for l1 in (np.nan, 0.0)),
            *({"noise_sigma": sigma} for sigma in (-1.0, np.nan)),
            *({"at_most": at_most} for at_most in (0.0, -1.0, np.nan, np.inf)),
            *({"sampling_rate": rate} for rate in (0.0, 1.5, np.nan)),
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Adjacency(**wrong)


def test_what_is_not_wrapped_is_refused_with_what_to_write():
    with (
        Ledger(":memory:", budget=Budget(epsilon=1.0, delta=1e-5)) as ledger,
        pytest.raises(
            TypeError, match=r"must be a Private, got list: wrap it .*Private\(votes, Adjacency"
        ) as caught,
    ):
        release(GNMax(sigma=10.0), [[95, 5]], ledger=ledger)
    assert "95" not in str(caught.value)


def test_notebooks_show_shapes_and_prices_only():
    votes = Private(np.array([[9731, 5]]), Adjacency.one_ballot(unit="person"))
    assert votes._repr_html_() == "<code>Private(shape=(1, 2), unit=&#x27;person&#x27;)</code>"
    curve = GNMax(sigma=40.0).curve()
    assert repr(100 * curve) == "Curve(moves='ballot', epsilon=1.162 at delta=1e-05, publishable=True)"
    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        assert "<th>left</th><td>2</td>" in ledger._repr_html_()
