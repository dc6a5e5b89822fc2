"""What a request must look like: least and largest accepted values, and the words of each refusal."""

import json
import sys
from types import SimpleNamespace

import pytest

from ostraka.serve.requests import (
    ADVICE,
    WORDS,
    Refused,
    Rows,
    entry_at,
    idempotency_key,
    known_texts,
    left_header,
    require_json,
    strict,
    unavailable,
)

MIXED = Rows(("age", "word"), (True, False), most=2)


def refusal(act, *arguments):
    """Status, code and words of a refusal, and the headers beside them."""
    with pytest.raises(Refused) as refused:
        act(*arguments)
    reply = refused.value.reply
    body = json.loads(reply.body)
    return reply.status, body["code"], body["error"], *reply.more


@pytest.mark.parametrize(
    "rows", [Rows(("a", "b"), (True, True), most=2), Rows(("a", "b"), (True,) * 2, most=3)]
)
def test_a_body_has_one_row_or_some_up_to_the_most(rows):
    assert rows.read(b'{"row": [1, 2.5]}') == ([[1, 2.5]], True)
    for n in range(1, rows.most + 1):
        assert rows.read(json.dumps({"rows": [[n, -n]] * n}).encode()) == ([[n, -n]] * n, False)
    says = f"rows must be a list of 1 to {rows.most} rows"
    for content in ([], [[1, 2]] * (rows.most + 1), 3, {"a": 1}):
        assert refusal(rows.read, json.dumps({"rows": content}).encode()) == (400, "bad_schema", says)
    shape = (
        'the body must be an object with one member: "row", a list of cells, or "rows", a list of such lists'
    )
    for content in (
        {},
        [],
        {"row": [1, 2], "rows": [[1, 2]]},
        {"cells": [1, 2]},
        {"row": [1, 2], "x": 1},
        None,
    ):
        assert refusal(rows.read, json.dumps(content).encode()) == (400, "bad_schema", shape)
    assert refusal(rows.read, b'{"row": 3}') == (400, "bad_schema", "row must be a list of cells")
    assert refusal(rows.read, b'{"rows": [[1, 2], "x"]}') == (
        400, "bad_schema", "rows[1] must be a list of cells",
    )  # fmt: skip
    for cells in ([], [1], [1, 2, 3]):
        says = f"row must have 2 cells, got {len(cells)}"
        assert refusal(rows.read, json.dumps({"row": cells}).encode()) == (400, "bad_schema", says)


LARGEST = sys.float_info.max
NUMBERS = [0, -1, 2.5, LARGEST, -LARGEST, int(LARGEST), -int(LARGEST)]
NO_NUMBERS = [2 * int(LARGEST), -2 * int(LARGEST), "1", None, True, [1], {}]


@pytest.mark.parametrize(
    "others", [(), ("word",), (LARGEST,)], ids=["alone", "beside a text", "beside a large one"]
)
def test_a_number_is_finite_and_no_truth_value_and_nothing_that_only_adds_up(others):
    kinds = tuple(not isinstance(cell, str) for cell in others)
    rows = Rows(("a", *map(str, kinds)), (True, *kinds), most=1)
    says = (400, "bad_schema", "row[0] (a) must be a finite number")
    for cell in NUMBERS:
        assert rows.read(json.dumps({"row": [cell, *others]}).encode()) == ([[cell, *others]], True)
    for cell in NO_NUMBERS:
        assert refusal(rows.read, json.dumps({"row": [cell, *others]}).encode()) == says, cell


def test_a_text_has_a_thousand_characters_at_most_and_no_half_of_one():
    says = (400, "bad_schema", "rows[1][1] (word) must be text of at most 1000 characters")
    for cell, fits in (
        ("", True), ("x" * 1000, True), ("\ud7ff", True), ("\ue000", True), ("\U0001f600", True),
        ("x" * 1001, False), ("\ud800", False), ("\udfff", False), ("a\udabcb", False),
        (1, False), (None, False),
    ):  # fmt: skip
        body = json.dumps({"rows": [[1, "a"], [1, cell]]}).encode()
        if fits:
            assert MIXED.read(body)[0][1] == [1, cell]
        else:
            assert refusal(MIXED.read, body) == says, cell
    one_column = Rows(("word",), (False,), most=1, categories={"word": frozenset({"a", "b"})})
    assert one_column.read(b'{"row": ["b"]}') == ([["b"]], True)
    words = "row[0] (word) must be one of the 2 texts of the public rows"
    assert refusal(one_column.read, b'{"row": ["c"]}') == (400, "bad_schema", words)
    assert refusal(one_column.read, b'{"row": [["a"]]}')[2].endswith(
        "must be text of at most 1000 characters"
    )


def test_texts_of_the_public_rows_are_known_by_the_names_of_their_columns():
    kinds = SimpleNamespace(categories_=[["x", "y"], [1, 2, 1]])
    steps = [("numbers", object(), [0]), ("kinds", kinds, [2, 1])]
    encoder = SimpleNamespace(transformers_=steps)
    assert known_texts(SimpleNamespace(encoder=encoder, columns=("a", "b", "c"))) == {
        "c": frozenset("xy"),
        "b": frozenset("12"),
    }
    encoder.transformers_ = [("kinds", kinds, [1])]
    with pytest.raises(ValueError, match="zip"):  # of another table
        known_texts(SimpleNamespace(encoder=encoder, columns=("a", "b")))


def test_what_is_left_has_six_digits_and_is_never_rounded_up():
    for epsilon, text in (
        (1.9999999, b"1.999999"), (0.0, b"0.000000"), (1e-7, b"0.000000"), (123.4567891, b"123.456789"),
        (0.3, b"0.300000"), (1.0000019999, b"1.000001"),
    ):  # fmt: skip
        assert left_header(epsilon) == (b"ostraka-left", text)


def test_a_key_of_a_request_has_one_to_a_hundred_characters():
    for key in ("a", "k" * 100, "A-Z_0.9:x"):
        assert idempotency_key({b"idempotency-key": key.encode()}) == key
    words = (
        "type a new Idempotency-Key for each request, and the same for its retries: 1 to 100 letters, "
        "digits, '.', '_', ':' or '-'"
    )
    for headers in (
        {},
        *({b"idempotency-key": key} for key in (b"", b"k" * 101, b"a/0", b"a b", b"\xe9", b"a\n")),
    ):
        assert refusal(idempotency_key, headers) == (400, "bad_key", words)


def test_a_number_in_a_path_is_that_of_an_entry():
    entries = [SimpleNamespace(seq=seq) for seq in (1, 2, 3, 5, 10**18 - 1)]
    asked = []

    def rows(*, after, limit):
        asked.append(limit)
        return [entry for entry in entries if entry.seq > after][:limit]

    ledger = SimpleNamespace(entries=rows)
    for number in ("1", "2", "003", "5", "9" * 18):
        assert entry_at(ledger, number).seq == int(number)
    for number in ("4", "6", "1" + "0" * 18 + "0", "0" * 18 + "1", "0", "-1", "+1", "", "x", "1.0", "٣", "²"):
        assert entry_at(ledger, number) is None, number
    assert set(asked) == {1}


def test_a_body_is_plain_json():
    for kind in (b"application/json", b"Application/JSON ; charset=utf-8"):
        require_json({b"content-type": kind})
        require_json({b"content-type": kind, b"content-encoding": b"Identity"})
    kind = "Content-Type must be application/json"
    for headers in ({}, {b"content-type": b"text/plain"}, {b"content-type": b"application/json5"}):
        assert refusal(require_json, headers) == (415, "bad_content", kind)
    plain = "the body must not be compressed: leave Content-Encoding out"
    headers = {b"content-type": b"application/json", b"content-encoding": b"gzip"}
    assert refusal(require_json, headers) == (415, "bad_content", plain)


def test_json_is_read_strictly():
    assert strict(b' {"a": [1, null, {"b": "\\u00e9"}], "c": {"a": 1}} ') == {
        "a": [1, None, {"b": "é"}],
        "c": {"a": 1},
    }
    for body, words in (
        (b'{"a": 1, "b": 2, "a": 1}', "the body must not name a member twice"),
        (b'[{"a": 1, "a": 2}]', "the body must not name a member twice"),
        *((b"[%s]" % name, "the body must be strict JSON: NaN and Infinity are not numbers of it")
          for name in (b"NaN", b"Infinity", b"-Infinity")),
        (b"[" * 100_000, "the body must not be nested more than two deep"),
        (b"{", "the body must be JSON in UTF-8"),
        (b'"\xff"', "the body must be JSON in UTF-8"),
        (b"1 2", "the body must be JSON in UTF-8"),
    ):  # fmt: skip
        assert refusal(strict, body) == (400, "bad_json", words), body[:20]


def test_a_refusal_has_the_words_of_its_code_or_its_own_and_advice_is_about_codes_that_there_are():
    def refuse(*arguments, **more):
        raise Refused(*arguments, **more)

    for code, words in WORDS.items():
        assert refusal(refuse, 400, code) == (400, code, words)
    assert refusal(refuse, 418, "failed", "own words") == (418, "failed", "own words")
    wait = (503, "unavailable", WORDS["unavailable"], (b"retry-after", b"2"))

    def away():
        raise unavailable()

    assert refusal(away) == wait
    assert ADVICE.keys() < WORDS.keys()
