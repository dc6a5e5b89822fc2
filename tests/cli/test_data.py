"""Tables to arrays: all that is learned comes from public rows; bad cells are refused unseen."""

from pathlib import Path

import numpy as np
import pytest

from ostraka.data import columns as _encoding
from ostraka.data import columns as _schema
from ostraka.data import table as _table
from ostraka.data import task as _data

CANARY = "canary-7391"
PUBLIC = "age,job,zip,note\n10,cook,01,a\n20,nurse,02,b\n30,cook,01,a\n"
PRIVATE = "who,age,job,zip,note,ill\nann,40,cook,01,a,yes\nbob,60,smith,03,b,no\nann,20,nurse,02,a,no\n"


def tables(folder: Path, *, private=PRIVATE, public=PUBLIC, holdout=None, **columns) -> _data.Task:
    (folder / "private.csv").write_text(private)
    (folder / "public.csv").write_text(public or "")
    chosen = {"label": "ill", "person": "who", "text": ("zip",), "drop": ("note",), **columns}
    return _data.tables(
        folder / "private.csv",
        folder / "public.csv" if public else None,
        columns=_data.Columns(**chosen),
        holdout=holdout,
        seed=0,
    )


def test_numbers_are_scaled_and_kinds_are_spread_by_public_rows_alone(tmp_path):
    task = tables(tmp_path)
    spread = np.std([10, 20, 30])
    ages = (np.array([40, 60, 20]) - 20) / spread
    cook, nurse = [1, 0, 0], [0, 0, 1]
    first, second = [1, 0, 0], [0, 0, 1]  # and no column for 03, which no public row has
    np.testing.assert_allclose(task.X_private[:, 0], ages)
    np.testing.assert_array_equal(task.X_private[:, 1:3], np.column_stack([cook, nurse]))
    np.testing.assert_array_equal(task.X_private[:, 3:], np.column_stack([first, second]))
    assert task.columns == ("age", "job", "zip")
    assert task.groups.tolist() == ["ann", "bob", "ann"]
    assert task.y_private.tolist() == ["yes", "no", "no"]
    assert (task.X_test, task.y_test, task.classes) == (None, None, None)
    assert "bob" not in repr(task)


def test_what_private_rows_hold_does_not_move_public_features(tmp_path):
    before = tables(tmp_path).X_public
    after = tables(tmp_path, private=PRIVATE.replace("40,cook", "4000,astronaut")).X_public
    np.testing.assert_array_equal(before, after)


def test_whole_number_labels_are_numbers_and_others_text(tmp_path):
    table_text = PRIVATE.replace("yes", "1").replace("no\n", "0\n")
    assert tables(tmp_path, private=table_text).y_private.dtype.kind == "i"
    assert tables(tmp_path).y_private.dtype.kind == "U"


def test_declared_classes_are_taken_and_checked(tmp_path):
    assert tables(tmp_path, classes=("no", "yes", "maybe")).classes.tolist() == ["no", "yes", "maybe"]
    for cell in (CANARY, ""):  # a row with another label must not end the run of all
        task = tables(tmp_path, private=PRIVATE.replace("yes", cell), classes=("yes", "no"))
        assert task.y_private.tolist() == ["yes", "no", "no"]
        assert task.unread == {"ill": 1}
    table_text = PRIVATE.replace("yes", "1.5").replace("no\n", "7\n")
    assert tables(tmp_path, private=table_text, classes=("0", "7")).y_private.tolist() == [0, 7, 7]


def test_public_labels_that_are_no_classes_are_refused_or_said(tmp_path):
    """UCI Adult spells the labels of its test rows with a full stop: every answer counted as wrong."""
    rows = [f"{k},cook,01,{'yes' if k > 4 else 'no'}" for k in range(10)]
    head = "age,job,zip,ill\n"
    says = r"10 of 10 public rows .* none of the 2 classes, such as 'no\.', 'yes\.'"
    with pytest.raises(ValueError, match=says):
        tables(tmp_path, public=head + "".join(f"{row}.\n" for row in rows))
    task = tables(tmp_path, public=head + "\n".join([*rows, "11,cook,01,maybe"]) + "\n")
    assert any("1 of 11 public rows" in sentence and "count as wrong" in sentence for sentence in task.said)
    assert not any(
        "count as wrong" in sentence for sentence in tables(tmp_path, public=head + "\n".join(rows)).said
    )


def test_public_labels_measure_accuracy_where_all_are_known(tmp_path):
    public = "age,job,zip,ill\n" + "".join(f"{k},cook,01,{'yes' if k > 4 else 'no'}\n" for k in range(10))
    task = tables(tmp_path, public=public)
    assert (len(task.X_test), len(task.X_public)) == (2, 8)
    tested = sorted(set(range(10)) - set(task.public_rows.tolist()))
    assert sorted(task.y_test.tolist()) == sorted("yes" if k > 4 else "no" for k in tested)
    assert tables(tmp_path, public=public.replace("yes", "")).y_test is None


def test_missing_numbers_are_filled_with_the_public_median_on_request(tmp_path):
    public = PUBLIC.replace("10,", "NA,")
    with pytest.raises(ValueError, match=r"no number in data row 1: type --fill"):
        tables(tmp_path, public=public)
    holes = PRIVATE.replace("ann,40", "ann,")
    middle = tables(tmp_path, private=holes, public=PUBLIC.replace("30,", "60,"), fill=True).X_private[0, 0]
    assert middle == (20 - 30) / np.std([10, 20, 60])


@pytest.mark.parametrize("cell", ["", "NA", "inf", "-inf", "nan(1)", "1e999", "1_000", "0x1", "4O", "\ufffd"])
def test_a_private_cell_without_a_number_is_the_public_mean_and_ends_nothing(tmp_path, cell):
    task = tables(tmp_path, private=PRIVATE.replace("40,", f"{cell},"))
    np.testing.assert_array_equal(task.X_private[1:], tables(tmp_path).X_private[1:])
    assert task.X_private[0, 0] == 0.0
    assert task.unread == ({} if cell in {"", "NA", "\ufffd", "nan(1)"} else {"age": 1})


def test_a_private_number_far_from_all_public_ones_stays_finite(tmp_path):
    for cell in ("1e300", "-1.7e308"):
        X = tables(tmp_path, private=PRIVATE.replace("40,", f"{cell},")).X_private
        assert abs(X[0, 0]) == 1e15


@pytest.mark.parametrize(
    "names", [("p", "p"), ("Jos\u00e9 ", "Jose\u0301 ")]
)  # one text in two Unicode forms
def test_whole_people_are_held_out_with_all_spellings_of_their_names(tmp_path, names):
    people = "".join(f"{names[k % 2]}{k // 4},{k},{'yes' if k % 3 else 'no'}\n" for k in range(40))
    columns = {"text": (), "drop": (), "person": "who"}
    task = tables(tmp_path, private="who,age,ill\n" + people, public=None, holdout=0.3, **columns)
    assert (len(task.X_public), len(task.X_test), len(task.X_private)) == (10, 2, 28)
    numbers = {name[-1] for name in task.groups}
    assert task.n_units == len(numbers) == 7
    assert not {str(row // 4) for row in task.public_rows} & numbers
    assert task.not_protected == (_data.HELD_OUT,)


def test_without_public_rows_the_message_says_what_to_type(tmp_path):
    with pytest.raises(ValueError, match=r"--public FILE .* --holdout 0\.2"):
        tables(tmp_path, public=None)
    with pytest.raises(ValueError, match="exclude each other"):
        tables(tmp_path, holdout=0.2)
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="--holdout must be"):
            tables(tmp_path, public=None, holdout=share)


WHOLE = {"private": PRIVATE.replace("yes", "1").replace(",no\n", ",0\n")}
QUANTITIES, BARE = "".join(f"1,{k}.5\n" for k in range(1001)), {"person": None, "text": (), "drop": ()}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"label": "income"}, r"no column 'income' \(--label\); the first line names 6 columns"),
        ({"person": "patient"}, r"no column 'patient' \(--person\)"),
        ({"drop": ("x",)}, r"no column 'x' \(--drop\)"),
        ({"text": ("x",)}, r"no column 'x' \(--text\)"),
        ({"drop": ("age", "job", "zip", "note")}, "nothing to learn from"),
        ({"private": PRIVATE.replace("yes", "no")}, "holds one class only"),
        ({"private": PRIVATE.replace("bob", "")}, r"'who' \(--person\) is empty in some rows"),
        ({"public": PUBLIC.replace("zip", "ZIP")}, r"lacks the column 'zip' .*--drop zip"),
        ({"public": "age,job,zip\n,cook,1\n,nurse,2\n"}, r"'age' is empty: type --drop age"),
        ({"public": None, "holdout": 0.01}, "leaves one side empty"),
        ({"public": "age,job,zip,ill\n1,cook,1,maybe\n"} | WHOLE, "must hold whole numbers"),
        (
            {"public": "age,job,zip\n" + "".join(f"1,job{k},1\n" for k in range(201))},
            "'job' holds more than 200 diff",
        ),
        (
            {"private": "age,ill\n" + QUANTITIES, "public": "age\n1\n"} | BARE,
            "type --target ill --bounds LOW:HIGH",
        ),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match) as caught:
        tables(tmp_path, **changes)
    for private in (CANARY, "bob", "smith"):
        assert private not in str(caught.value)


def test_digits_are_split_once_and_for_all():
    task = _data.digits(seed=0)
    assert task.X_public.shape == (450, 64)
    assert task.X_private.shape == (1150, 64)
    assert task.X_test.shape == (197, 64)
    assert task.n_classes == 10
    np.testing.assert_array_equal(task.X_public, _data.digits(seed=0).X_public)
    assert not np.array_equal(task.X_public, _data.digits(seed=1).X_public)
    assert len(task.columns) == 64


def many(n: int, seed: int) -> str:
    """Numbers with holes, dates, few kinds and many codes, of which the rare ones count as one."""
    rng = np.random.default_rng(seed)
    lines = ["age,when,job,code,ill"]
    for k in range(n):
        age = "NA" if rng.random() < 0.1 else f"{rng.normal():.6f}"
        code = int(rng.zipf(1.3)) % 400
        lines.append(f"{age},2020-01-{1 + k % 28:02d},job{rng.integers(5)},C{code:03d},{rng.integers(2)}")
    return "\n".join(lines) + "\n"


def test_columns_become_the_features_that_the_encoder_makes_of_cells(tmp_path):
    private, public = many(700, 0), many(1500, 1).replace("job4", "job3")
    task = tables(tmp_path, private=private, public=public, person=None, text=(), drop=(), fill=True)
    table = _table.read(tmp_path / "private.csv", public=False)
    names, numeric = ("age", "when", "job", "code"), (True, True, False, False)
    features = _schema.Features(names, numeric, fill=True, dates=(("when", None),), codes=("code",))
    expected = task.encoder.transform(_encoding.cells(table, features))
    np.testing.assert_array_equal(task.X_private, expected)
    assert task.X_private.shape[1] <= 2 + 4 + 200 + 4 + 40
    assert task.shown.dates == (("when", None),)
    notes = " ".join(task.said)
    for words in ("'when' holds dates", "'NA' is read as no number", "'code' holds"):
        assert words in notes


def test_a_value_that_may_mean_missing_is_pointed_out_and_can_be_declared(tmp_path):
    public = PUBLIC.replace("10,", "-999,")
    assert any("type --missing=-999" in text for text in tables(tmp_path, public=public).said)
    task = tables(tmp_path, public=public, missing=("-999",), fill=True)
    assert not any("--missing" in text for text in task.said)
    assert task.encoder.named_transformers_["numbers"][0].statistics_ == [25.0]


def test_sentences_become_topics_that_public_rows_alone_decide(tmp_path):
    def note(k: int) -> str:
        return ("pain in the chest and fever" if k % 2 else "the ankle seems to be broken") + f" n{k}"

    public = "age,job,zip\n" + "".join(f"1,{note(k)},1\n" for k in range(300))
    private = PRIVATE.replace("cook", note(1)).replace("smith", note(2)).replace("nurse", note(1))
    task = tables(tmp_path, public=public, private=private)
    assert any("'job' holds sentences" in text for text in task.said)
    topics = task.X_private[:, 1:-1]
    near, distant = np.abs(topics[0] - topics[2]).sum(), np.abs(topics[0] - topics[1]).sum()
    assert near < distant / 10
    before = tables(tmp_path, public=public).X_public
    np.testing.assert_array_equal(before, task.X_public)
    table = _table.read(tmp_path / "private.csv", public=False)
    numeric = (True, False, False)
    features = _schema.Features(("age", "job", "zip"), numeric, fill=False, texts=("job",))
    cells = _encoding.cells(_table.read(tmp_path / "private.csv", public=False), features)
    assert len(table) == len(cells)
    np.testing.assert_allclose(
        _encoding.matrix(table, features, task.encoder), task.encoder.transform(cells), atol=1e-12
    )


def test_codes_are_told_apart_by_their_beginnings(tmp_path):
    codes = (f"{'ABCD'[k % 4]}{k % 7}{k % 90:02d}.{k % 9}" for k in range(1500))
    public = "age,job,zip\n" + "".join(f"1,{code},1\n" for code in codes)
    private = PRIVATE.replace("cook", "A999.9").replace("smith", "B111.1").replace("nurse", "A888.8")
    task = tables(tmp_path, public=public, private=private)
    assert any("'job' holds 1,260 different texts: they are read as codes" in text for text in task.said)
    letters = [place for place in range(task.X_private.shape[1]) if set(task.X_public[:, place]) == {0, 1}]
    share = (task.X_private[0, letters] == task.X_private[2, letters]).mean()
    assert share > (task.X_private[0, letters] == task.X_private[1, letters]).mean()


@pytest.mark.parametrize(
    ("cell", "second_cell", "notes"),
    [("31/12/1999", "01/02/2000", "the day first"), ("12/31/1999", "02/01/2000", "the month first")],
)
def test_the_public_rows_say_which_part_of_a_date_is_the_day(tmp_path, cell, second_cell, notes):
    public = f"age,job,zip\n{cell},cook,1\n{second_cell},cook,1\n"
    private = (
        PRIVATE.replace("40,", f"{second_cell},")
        .replace("60,", f"{second_cell},")
        .replace("20,", f"{second_cell},")
    )
    task = tables(tmp_path, public=public, private=private)
    assert any(notes in text for text in task.said)
    np.testing.assert_allclose(task.X_private[:, 0], task.X_public[-1, 0] if task.public_rows[-1] else 0)
    wrong = tables(tmp_path, public=public, private=private.replace(f"bob,{second_cell}", "bob,2000-02-01"))
    assert wrong.X_private[1, 0] == 0.0
    assert wrong.unread == {"age": 1}


def test_a_column_that_numbers_the_rows_is_pointed_out_and_a_measurement_is_not(tmp_path):
    rng = np.random.default_rng(0)
    people = zip(rng.integers(20, 90, 300), rng.normal(170, 9, 300), strict=True)
    lines = [f"{k + 7},{age},{height:.1f},{age % 2}" for k, (age, height) in enumerate(people)]
    lines = ["visit,age,height,ill", *lines]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    public = _table.read(tmp_path / "rows.csv", public=True)
    _, notes = _schema.understood(public, ("visit", "age", "height"), as_text=(), fill=False)
    (only,) = notes
    assert "column 'visit' holds another whole number in every row" in only
    assert "--drop visit" in only
