"""Result: plain, strict JSON both ways, and an owner's part that stays with the owner."""

import dataclasses
import json
import math

import numpy as np
import pytest

from ostraka import Adjacency, Private
from ostraka.core.result import Result


def example() -> Result:
    return Result(
        kind="learn",
        settings={"n_rows": np.int64(7), "mechanism": "GNMax(sigma=18.0)", "screen": None},
        upper={"epsilon": math.inf, "delta": 1e-5, "simulation": False},
        lower={"epsilon": 0.5, "confidence": 0.95},
        utility={"student": np.float32(0.5)},
        series={"epsilon": np.array([0.5, 1.0]), "answered": np.array([True, False])},
        owner={"epsilon_these_votes": 0.25, "consensus": np.array([[3, 4]])},
        notes=("a", "b"),
    )


def test_a_record_equals_itself_after_json() -> None:
    assert Result.from_json(example().to_json()) == example()
    assert Result.from_json(example().to_json(indent=None)) == example()


def test_json_is_strict_and_of_plain_types() -> None:
    record = json.loads(example().to_json(), parse_constant=pytest.fail)
    assert record["upper"]["epsilon"] == "inf"
    assert record["series"] == {"epsilon": [0.5, 1.0], "answered": [True, False]}
    assert record["settings"]["n_rows"] == 7
    assert Result(kind="learn", utility={"log": -math.inf}).utility == {"log": "-inf"}
    with pytest.raises(TypeError, match="got longdouble"):
        Result(kind="learn", series={"epsilon": np.ones(2, dtype=np.longdouble)})


def test_public_drops_the_owner_part_and_nothing_else() -> None:
    public = example().public()
    assert "consensus" not in public.to_json()
    assert public == dataclasses.replace(example(), owner={})


def test_the_owner_part_does_not_print() -> None:
    assert "0.25" not in repr(example())
    assert "consensus" not in repr(example())
    assert repr(example()) == "Result(kind='learn', epsilon='inf', delta=1e-05, lower=0.5, accuracy=0.5)"
    assert "<th>lower</th><td>0.5</td>" in example()._repr_html_()


def test_changing_what_was_put_in_does_not_change_the_record() -> None:
    settings = {"columns": ["a"]}
    result = Result(kind="learn", settings=settings)
    settings["columns"].append("b")
    assert result.settings == {"columns": ["a"]}


@pytest.mark.parametrize("bad", [math.nan, np.array([1.0, np.nan]), [{"deep": math.nan}]])
def test_nan_is_refused_by_place(bad: object) -> None:
    with pytest.raises(ValueError, match=r"utility\.student"):
        Result(kind="learn", utility={"student": bad})


def test_private_and_foreign_objects_are_refused_without_showing_them() -> None:
    votes = Private(np.array([[90, 10]]), Adjacency.one_ballot())
    with pytest.raises(TypeError, match=r"owner.votes holds a Private"):
        Result(kind="learn", owner={"votes": votes})
    with pytest.raises(TypeError, match="got set"):
        Result(kind="learn", owner={"x": {"secret"}})


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not JSON"),
        ('{"version": 1, "kind": "learn", "notes": null}', "notes is not"),
        ("[1]", "version None"),
        ('{"kind": "learn"}', "version None"),
        ('{"version": 99, "kind": "learn"}', "version 99"),
        ('{"version": 1}', "must have a kind"),
        ('{"version": 1, "kind": "learn", "secret": 1}', r"unknown \['secret'\]"),
    ],
)
def test_foreign_text_is_refused_in_one_sentence(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Result.from_json(text)
