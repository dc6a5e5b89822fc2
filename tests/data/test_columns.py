"""What public rows say of columns: types, notes, refusals, and labels as they are declared."""

import numpy as np
import pytest

from ostraka.data import columns as encoding
from ostraka.data.columns import Features, labels, understood
from ostraka.data.table import of_frame


def table(**columns):
    n = max(map(len, columns.values()))
    return of_frame(
        {name: (cells * n)[:n] for name, cells in columns.items()}, name="public.csv", public=True
    )


def seen(cells, *, n=None, fill=False, as_text=(), missing=()):
    public = of_frame({"x": cells}, name="public.csv", public=True, missing=missing)
    return understood(public, ("x",), as_text=as_text, fill=fill)


SENTENCE = [f"a word and word{k}" for k in range(201)]
CODES = [f"C{k:04d}" for k in range(201)]


@pytest.mark.parametrize(
    ("cells", "settings", "features", "notes"),
    [
        (["1", "2"], {}, Features(("x",), (True,), False), []),
        (["1", "2"], {"as_text": ("x",)}, Features(("x",), (False,), False), []),
        (
            ["1", "NA", "?", "n"],
            {"fill": True, "missing": ("n",)},
            Features(("x",), (True,), True),
            ["column 'x': '?', 'NA', 'n' is read as no number"],
        ),
        (
            ["1", "-999", "9999"],
            {},
            Features(("x",), (True,), False),
            [
                "column 'x' holds -999: if that means no number, type --missing=-999",
                "column 'x' holds 9999: if that means no number, type --missing=9999",
            ],
        ),
        (
            ["01.02.2020", "02.02.2020"],
            {},
            Features(("x",), (True,), False, dates=(("x", "%d.%m.%Y"),)),
            ["column 'x' holds dates: it counts days since 1970-01-01"],
        ),
        (
            ["13/02/2020"],
            {},
            Features(("x",), (True,), False, dates=(("x", "%d/%m/%Y"),)),
            ["column 'x' holds dates, the day first: it counts days since 1970-01-01"],
        ),
        ([str(k) for k in range(199)], {}, Features(("x",), (True,), False), []),
        (
            [str(k) for k in range(200)],
            {},
            Features(("x",), (True,), False),
            [
                (
                    "column 'x' holds another whole number in every row: if it only numbers the rows, it "
                    "teaches nothing and adds noise: type --drop x"
                )
            ],
        ),
        (CODES[:200], {}, Features(("x",), (False,), False), []),
        (
            CODES + CODES[:11],
            {},
            Features(("x",), (False,), False, codes=("x",)),
            [
                (
                    "column 'x' holds 201 different texts: they are read as codes, by their first "
                    "characters, and whole where they are frequent in the public rows"
                )
            ],
        ),
        (SENTENCE[:200] * 2, {}, Features(("x",), (False,), False), []),
        (
            SENTENCE,
            {},
            Features(("x",), (False,), False, texts=("x",)),
            [
                (
                    "column 'x' holds sentences: hashed words and pairs of words, in the directions that "
                    "vary most among public rows (a language model reads more: docs/prompts.md)"
                )
            ],
        ),
    ],
)
def test_the_type_of_a_column_is_said_by_public_rows(cells, settings, features, notes):
    assert seen(cells, **settings) == (features, notes)
    assert features.kinds == (("x",) if not features.numeric[0] and not features.texts else ())
    assert features.numbers == (("x",) if features.numeric[0] else ())


NAMES = "holds more than 200 different texts, so it looks like names rather than kinds: type --drop x"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (CODES + CODES[:10], NAMES),  # 201 of 211 rows are more than 95 %
        ([f"{code} of it" for code in CODES] + ["q"] * 203, None),
        ([f"{code} of it" for code in CODES] + ["q"] * 202, NAMES),  # 202 of 403 rows, and they are no codes
        ([f"{code}{code}{code}" for code in CODES] + ["q"] * 200, NAMES),  # longer than twelve
        ([f"{code:0>12}" for code in CODES] + ["q"] * 200, None),
        (["", "NA"], "column 'x' is empty: type --drop x"),
        (
            ["1", "", "2"],
            "column 'x' has no number in data row 2: type --fill to put the public median there",
        ),
    ],
)
def test_columns_that_teach_nothing_are_refused(cells, words):
    if words is None:
        assert seen(cells)[0].codes == ("x",)
        return
    with pytest.raises(ValueError, match=r"public\.csv") as refused:
        seen(cells)
    assert words in str(refused.value)


def test_a_public_table_has_the_columns_of_the_private_one():
    with pytest.raises(
        ValueError, match="lacks the column 'y' of the private table: add it, or type --drop y"
    ):
        understood(table(x=["1"]), ("x", "y"), as_text=(), fill=False)


def test_features_are_those_of_the_fitted_encoder_in_any_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    public = table(
        **{f"n{k}": rng.normal(k, 3, 50).tolist() for k in range(6)},
        day=[f"2020-01-{k:02d}" for k in range(1, 20)],
        kind=list("abca"),
    )
    names = tuple(public.names)
    features = Features(names, (*(True,) * 7, False), fill=False, dates=(("day", None),))
    fitted = encoding.encoder(public, features)
    private = table(
        **{f"n{k}": [1.0, float("nan"), 1e300, -1e300, float("inf")] for k in range(6)},
        day=["x", "2020-01-02"],
        kind=["a", "z"],
    )
    monkeypatch.setattr(encoding, "_COLUMNS_AT_ONCE", 2)
    monkeypatch.setattr(encoding, "_ROWS_AT_ONCE", 3)
    unread = {}
    got = encoding.matrix(private, features, fitted, unread=unread)
    assert unread == {f"n{k}": 1 for k in range(6)} | {"day": 3}
    for k in range(6):
        cells = np.array(public.numbers(f"n{k}")[0])
        scaled = (1.0 - cells.mean()) / cells.std()
        np.testing.assert_allclose(got[:, k], [scaled, 0, 1e15, -1e15, 0])
    days = np.array(public.days("day", None)[0])
    np.testing.assert_allclose(got[:, 6], [0, (18263 - days.mean()) / days.std()] * 2 + [0])
    assert got[:, 7:10].tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert got.shape[1] == 10


@pytest.mark.parametrize(
    ("values", "declared", "how", "want", "strange"),
    [
        (["b", "a"], [], {}, ["b", "a"], [False, False]),
        (["b", "a", ""], [], {}, ["b", "a", "a"], [False, False, True]),
        (["7", "07", "x", ""], ["7", "8"], {}, [7, 7, 7, 7], [False, False, True, True]),
        (["7", "x"], ["7", "x"], {}, ["7", "x"], [False, False]),
        (["-7", "3"], [], {}, [-7, 3], [False, False]),
        (["7", "1" * 18], [], {}, [7, int("1" * 18)], [False, False]),
        (["7", "1" * 19], [], {}, ["7", "1" * 19], [False, False]),
        (["No", "yes"], ["no", "yes"], {"same": {"No": "no"}}, ["no", "yes"], [False, False]),
        (
            ["no", "K.A.", "yes"],
            ["yes", "no"],
            {"missing": ("k.a.",)},
            ["no", "yes", "yes"],
            [False, True, False],
        ),
        (["a", "b", "a"], ["b", "a", "b"], {}, ["a", "b", "a"], [False] * 3),
        ([1.0, None, 2], [], {}, [1, 1, 2], [False, True, False]),
    ],
)
def test_labels_are_classes_and_what_is_none_counts_as_the_first(values, declared, how, want, strange):
    got, unread = labels("y", values, declared, **how)
    assert got.tolist() == want
    assert unread.tolist() == strange


def test_there_are_two_classes_or_more_and_not_too_many():
    for values in (["a"], ["a", ""]):
        with pytest.raises(ValueError, match="y holds one class only; there must be two or more: is it the"):
            labels("y", values, [])
    thousand = [f"c{k}" for k in range(1000)]
    assert len(labels("y", thousand, [])[0]) == 1000
    with pytest.raises(ValueError, match="y holds more than 1,000 different values: it must hold classes"):
        labels("y", [*thousand, "more"], [])


def test_public_labels_are_written_as_the_private_ones():
    known = encoding.known_labels
    how = {"same": {"Y": "yes"}, "missing": ("-",)}
    assert known("y", ["Y", "no"], like=np.array(["yes"]), **how).tolist() == ["yes", "no"]
    assert known("y", ["3", "-4"], like=np.array([1]), same={}, missing=()).tolist() == [3, -4]
    assert known("y", ["Y", "-"], like=np.array(["yes"]), **how) is None
    with pytest.raises(ValueError, match="y must hold whole numbers, as the private one does"):
        known("y", ["3", "x"], like=np.array([1]), same={}, missing=())
    people = table(who=["a", "b", "a"], gap=["a", "", "b"])
    assert encoding.people(people, None) is None
    assert encoding.people(people, "who").tolist() == ["a", "b", "a"]
    with pytest.raises(ValueError, match=r"column 'gap' .*is empty in some rows"):
        encoding.people(people, "gap")
