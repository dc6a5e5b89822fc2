import numpy as np
import pytest

from ostraka.synth import Column, Schema

SECRET = "ward-7-patient"


def test_codes_and_back():
    schema = Schema.from_dict(
        {
            "city": {"categories": ["ulm", "bonn"], "missing": True},
            "age": {"edges": [0, 18, 65, 120], "whole": True},
            "pulse": {"edges": [40, 60, 200], "missing": True},
        }
    )
    frame = {
        "city": ["bonn", None, "ulm"],
        "age": [17, 18, 300],
        "pulse": [59.9, 60.0, np.nan],
        "other": [1, 2, 3],
    }
    codes = schema.encode(frame)
    np.testing.assert_array_equal(codes, [[1, 0, 0], [2, 1, 1], [0, 2, 2]])
    back = schema.decode(codes, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(schema.encode(back), codes)
    assert back["city"].tolist() == ["bonn", None, "ulm"]
    assert all(isinstance(value, int) for value in back["age"].tolist())


def test_a_data_frame_is_taken():
    import pandas as pd

    schema = Schema.from_dict({"age": {"edges": [0, 18, 99]}})
    np.testing.assert_array_equal(schema.encode(pd.DataFrame({"age": [3, 40]})), [[0], [1]])


def test_toml_is_read(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text('[sex]\ncategories = ["f", "m"]\n[age]\nedges = [0, 18, 120]\nmissing = true\n')
    assert Schema.from_toml(path) == Schema.from_dict(
        {"sex": {"categories": ["f", "m"]}, "age": {"edges": [0, 18, 120], "missing": True}}
    )


def test_a_schema_survives_its_record():
    schema = Schema.from_dict({"a": {"categories": ["x"]}, "b": {"edges": [0, 1], "whole": True}})
    assert Schema.from_dict(schema.to_dict()) == schema


def test_public_rows_give_a_schema():
    schema = Schema.from_public(
        {"age": np.arange(100), "city": ["a", "b"] * 50, "one": [5.0] * 100}, n_bins=4
    )
    assert schema.sizes == (4, 2, 1)
    assert schema.columns[0].whole


def test_numbers_without_spikes_fall_into_bins_of_equal_size():
    public = np.random.default_rng(3).exponential(1000.0, 4000)
    (column,) = Schema.from_public({"gain": public}, n_bins=16).columns
    assert np.bincount(column.encode(public)) == pytest.approx(np.full(16, 250), abs=3)


def test_public_rows_give_bins_as_one_would_by_hand():
    """Values that very many rows have alone, whole numbers whole, dates as dates, and room for others."""
    rng = np.random.default_rng(0)
    rare = rng.random(2000) < 0.08
    rows = {
        "gain": np.where(rare, rng.integers(100, 20_000, 2000), 0),
        "hours": np.where(rng.random(2000) < 0.5, 40, rng.integers(1, 99, 2000)),
        "rate": np.where(rng.random(2000) < 0.3, 0.5, rng.random(2000)),
        "day": [f"2026-{month:02}-{day:02}" for month, day in rng.integers(1, 13, (2000, 2))],
        "kind": np.array(["a", "b", "c", "d"])[rng.integers(0, 4, 2000)],
        "label": np.array(["no", "yes"])[rng.integers(0, 2, 2000)],
        "plan": rng.integers(1, 6, 2000).astype(str),
        "empty": [None] * 1999 + ["2"],
    }
    schema = Schema.from_public(rows)
    gain, hours, rate, day, kind, label, plan, empty = schema.columns
    assert gain.edges[:2] == (0, 1)
    assert gain.size < 10
    assert {40, 41} <= set(hours.edges)
    assert [c.whole for c in (gain, hours, plan, rate)] == [True, True, True, False]
    assert rate.decode(rate.encode([0.5] * 50), rng=rng).astype(float) == pytest.approx(0.5, abs=1e-12)
    assert day.date
    assert kind.categories == ("a", "b", "c", "d", "other")
    assert label.categories == ("no", "yes")
    assert plan.edges == (1, 2, 3, 4, 5, 6)
    assert empty.missing
    codes = schema.encode(rows)
    np.testing.assert_array_equal(schema.encode(schema.decode(codes, rng=rng)), codes)
    assert not schema.unread(rows)
    assert Schema.from_dict(schema.to_dict()) == schema


def test_a_data_dictionary_counts_before_what_public_rows_show():
    rows = {"age": [20, 30, 40] * 20, "sex": ["f", "f", "m"] * 20, "x": [0.5, 1.5, 2.5] * 20}
    entries = {"age": {"range": [0, 120]}, "sex": {"categories": ["f", "m", "x"], "missing": True}}
    age, sex, _ = Schema.from_public(rows, dictionary=entries).columns
    assert (age.edges, age.whole) == ((0, 30, 40, 121), True)
    assert (sex.categories, sex.missing) == (("f", "m", "x"), True)
    for wrong in ({"income": {}}, {"age": {"least": 0}}, {"age": {"range": [3, 1]}}):
        with pytest.raises(ValueError, match=r"dictionary must|range of column 'age' must"):
            Schema.from_public(rows, dictionary=wrong)


def test_dates_are_days_whatever_type_they_have(tmp_path):
    import datetime as dt

    path = tmp_path / "schema.toml"
    path.write_text("[day]\nedges = [2026-01-01, 2026-02-01, 2027-01-01]\nmissing = true\n")
    schema = Schema.from_toml(path)
    days = [
        "2026-01-31",
        "2026-02-01T10:00",
        dt.date(2025, 1, 1),
        np.datetime64("2030-05-05"),
        "30.1.2026",
        None,
    ]
    assert schema.columns[0].encode(days).tolist() == [0, 1, 0, 1, 2, 2]
    back = schema.decode(np.array([[0], [1], [2]]), rng=np.random.default_rng(0))["day"]
    assert back[0].startswith("2026-01-")
    assert back[2] is None


def test_rare_public_categories_are_others_and_names_of_rows_are_refused():
    town = Schema.from_public({"town": list("aaabbbcd") * 3}, most_categories=3).columns[0]
    assert town.categories == ("a", "b", "other")
    assert town.encode(["d", "secret"]).tolist() == [2, 2]


HOSTILE = ["a", None, 7, 7.0, True, b"a", b"\xff", "", " ", np.nan, np.inf, 1.7e308, -0.0]
HOSTILE += ["nan(1)", "1_0", "x" * 9]


@pytest.mark.parametrize(
    ("column", "unlisted", "absent"),
    [
        (Column(name="c", categories=("a", "7")), 0, 0),
        (Column(name="c", categories=("a", "7"), missing=True), 2, 2),
        (Column(name="c", categories=("a", "other", "7")), 1, 1),
        (Column(name="c", categories=("a", "other", "7"), missing=True), 1, 3),
    ],
)
def test_each_value_has_a_public_code_whatever_it_is(column, unlisted, absent):
    codes = {"a": 0, 7: column.categories.index("7"), b"a": 0}
    missing = {None, b"\xff", "", " ", np.nan}
    expected = [codes.get(cell, absent if cell in missing else unlisted) for cell in HOSTILE]
    assert column.encode(HOSTILE).tolist() == expected
    assert [column.encode([cell])[0] for cell in HOSTILE] == expected
    assert column.unread([SECRET, "a"]) == 1
    assert column.encode([7.0, "a"]).tolist() == [codes[7], 0]


@pytest.mark.parametrize(("missing", "absent"), [(False, 0), (True, 2)])
def test_each_number_has_a_bin_and_all_else_is_missing(missing, absent):
    column = Column(name="c", edges=(0.0, 5.0, 9.0), missing=missing)
    places = {7: 1, 1.7e308: 1, -0.0: 0}
    expected = [0 if cell is True else places.get(cell, absent) for cell in HOSTILE]
    assert column.encode(HOSTILE).tolist() == expected
    assert [column.encode([cell])[0] for cell in HOSTILE] == expected


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "one column or more"),
        ({"a": {}}, "either categories or edges"),
        ({"a": {"categories": ["x"], "edges": [0, 1]}}, "either categories or edges"),
        ({"a": {"categories": ["x", "x"]}}, "must not repeat"),
        ({"a": {"edges": [1, 0]}}, "increasing"),
        ({"a": {"edges": [0]}}, "increasing"),
        ({"a": {"edgse": [0, 1]}}, "unknown fields edgse"),
    ],
)
def test_a_wrong_schema_is_refused(record, words):
    with pytest.raises(ValueError, match=words):
        Schema.from_dict(record)


def test_a_table_without_a_column_of_the_schema_is_refused():
    with pytest.raises(ValueError, match="it lacks b"):
        Schema.from_dict({"a": {"edges": [0, 1]}, "b": {"edges": [0, 1]}}).encode({"a": [0.5]})


def test_public_rows_with_too_many_categories_are_refused():
    with pytest.raises(ValueError, match="at most 3 categories, got 5"):
        Schema.from_public({"name": list("abcde")}, most_categories=3)
