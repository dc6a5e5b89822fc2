"""Shards: dealt by a keyed hash, equal, disjoint, complete, whole; and the written deal shows any change."""

import datetime as dt
import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka.data import units
from ostraka.data.units import Manifest, _order
from ostraka.voters import partition

KEY = b"a key of thirty-two bytes, or so"
PEOPLE = ["ann", "bob", "ann", "eve", "joe", "eve", "ann", "kim"]


def people() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 30), min_size=1, max_size=60)


@given(people=people(), data=st.data())
def test_every_row_has_one_shard_people_stay_whole_and_shards_share_people_equally(people, data):
    n_people = len(set(people))
    n_teachers = data.draw(st.integers(1, n_people))
    manifest = partition(people, n_teachers=n_teachers, key=KEY)
    rows = manifest.rows()
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(people)))
    owners = [{people[row] for row in shard} for shard in rows]
    assert sum(map(len, owners)) == len(set.union(*owners)) == n_people
    assert max(map(len, owners)) - min(map(len, owners)) <= 1
    assert (manifest.n_rows, manifest.n_units, manifest.unit) == (len(people), n_people, "person")


def test_the_deal_is_a_keyed_blake2b_of_the_name_in_order():
    # the same by hand: sort names by their keyed digest, deal them round
    names = sorted(
        set(PEOPLE),
        key=lambda name: hashlib.blake2b(f"person:{name}".encode(), digest_size=16, key=KEY).digest(),
    )
    want = [names.index(name) % 3 for name in PEOPLE]
    assert partition(PEOPLE, n_teachers=3, key=KEY).shards.tolist() == want


def test_the_same_key_deals_the_same_and_another_key_another_way():
    first, second = (partition(200, n_teachers=10, key=KEY) for _ in range(2))
    assert first.sha256 == second.sha256
    second_deal = partition(200, n_teachers=10, key=KEY[::-1])
    assert (second_deal.shards != first.shards).any()
    assert second_deal.commitment != first.commitment


def test_without_a_key_every_deal_is_new():
    assert partition(200, n_teachers=10).sha256 != partition(200, n_teachers=10).sha256


def test_a_row_and_a_person_of_the_same_name_are_different_units():
    rows = partition(50, n_teachers=5, key=KEY)
    persons = partition(range(50), n_teachers=5, key=KEY)
    assert (rows.unit, persons.unit) == ("row", "person")
    assert (rows.shards != persons.shards).any()


def test_doubtful_spellings_are_one_person():
    spellings = np.array([7, 7.0, "7", b"7", " 7 "], dtype=object)
    assert partition(spellings, n_teachers=1).n_units == 1
    assert (
        partition(np.array([7.0, 8.0]), n_teachers=1, key=KEY).sha256
        == partition([7, 8], n_teachers=1, key=KEY).sha256
    )


class NAType:
    """Stands for a missing value that compares as neither true nor false."""

    def __ne__(self, value):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None


@pytest.mark.parametrize("missing", [None, float("nan"), "", "  ", b"", NAType()])
def test_a_row_without_a_person_is_refused(missing):
    with pytest.raises(ValueError, match="every row must name its person"):
        partition(np.array(["ann", missing, "bob"], dtype=object), n_teachers=1)


def test_fewer_units_than_teachers_names_both_numbers_and_the_way_out():
    with pytest.raises(
        ValueError, match=r"10 teachers need at least 10 people, but there are 5: use n_teachers=5"
    ):
        partition(PEOPLE, n_teachers=10)
    with pytest.raises(
        ValueError, match=r"10 teachers need at least 10 rows, but there are 9: use n_teachers=9"
    ):
        partition(9, n_teachers=10)


@pytest.mark.parametrize("units", [[], [["ann"], ["bob"]], 0, -3])
def test_what_names_no_units_is_refused(units):
    with pytest.raises(ValueError, match=r"units must name|n_rows must be"):
        partition(units, n_teachers=1)


@pytest.mark.parametrize(
    "key", [b"", b"short", b"short" + b"x" * 10, b"x" * 65, "text, not bytes, of some length, short"]
)
def test_a_key_that_cannot_be_secret_is_refused_without_showing_it(key):
    for long in (b"x" * 16, b"x" * 64):
        assert partition(10, n_teachers=2, key=long).n_rows == 10
    with pytest.raises(ValueError, match=r"key must be 16 to 64 bytes") as caught:
        partition(10, n_teachers=2, key=key)
    assert "short" not in str(caught.value)


@pytest.mark.parametrize("n_teachers", [3, 7, 51])
def test_people_as_codes_in_parts_have_the_manifest_of_their_names(n_teachers, monkeypatch):
    names = np.array(["ann", "007", "7", "Zoë", "Zoe\u0308", *(f"p{k}" for k in range(48))])
    codes = np.random.default_rng(0).permutation(np.arange(500) % len(names)).astype(np.uint16)
    whole_manifest = partition(names[codes], n_teachers=n_teachers, key=KEY)
    monkeypatch.setattr(units, "_BLOCK", 33)  # a multiple of 3, as of the numbers in one part of base 64
    people = units.People(names, codes)
    parts = partition(people, n_teachers=n_teachers, key=KEY)
    assert parts.n_units == 51  # two persons are spelled in two ways
    assert parts.to_json() == whole_manifest.to_json()
    np.testing.assert_array_equal(people.named[0], units.named(names[codes], version=units.LATEST)[0])
    for text in (
        whole_manifest.to_json(),
        whole_manifest.to_json().encode(),
        json.dumps(json.loads(whole_manifest.to_json()), indent=1),
    ):
        back = Manifest.from_json(text)
        back.check(people)
        np.testing.assert_array_equal(back.shards, whole_manifest.shards)
    with pytest.raises(ValueError, match="into other people"):
        parts.check(units.People(names, np.roll(codes, 1)))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("units", [PEOPLE, 57])
def test_the_deal_is_that_of_earlier_versions_however_it_is_written(units, version):
    before, now = (partition(units, n_teachers=3, key=KEY, version=k) for k in (version, 4))
    np.testing.assert_array_equal(now.units, before.units)
    np.testing.assert_array_equal(now.shards, before.shards)
    np.testing.assert_array_equal(Manifest.from_json(before.to_json()).units, now.units)
    assert {"shards", "units"} <= json.loads(before.to_json()).keys()
    assert now.sha256 != before.sha256


def test_rows_take_as_little_room_however_many_they_are():
    small, large = (partition(n_rows, n_teachers=3, key=KEY) for n_rows in (5, 10**9))
    assert len(large.to_json()) - len(small.to_json()) == 2 * (len(str(10**9)) - 1)
    Manifest.from_json(large.to_json()).check(10**9)


def test_equal_halves_of_hashes_are_ordered_by_the_other_half(monkeypatch):
    want = partition(300, n_teachers=7, key=KEY).units
    halves = np.random.default_rng(0).integers(0, 2, size=(300, 2), dtype=np.uint64)
    order = _order(halves)
    np.testing.assert_array_equal(order, np.lexsort((halves[:, 1], halves[:, 0])))
    monkeypatch.setattr("ostraka.data.units._BLOCK", 64)
    np.testing.assert_array_equal(partition(300, n_teachers=7, key=KEY).units, want)


def test_neither_names_nor_the_key_are_written_or_shown():
    manifest = partition(PEOPLE, n_teachers=3, key=KEY)
    for text in (manifest.to_json(), repr(manifest)):
        for secret in (*PEOPLE, KEY.decode(), KEY.hex()):
            assert secret not in text
    assert repr(manifest) == "Manifest(n_teachers=3, n_rows=8, n_units=5, unit='person')"


HEADER = ["n_teachers", "n_rows", "n_units", "unit", "commitment", "sha256", "version"]


@pytest.mark.parametrize(
    ("units", "version", "field"),
    [
        *((8, 3, field) for field in (*HEADER, "shards", "units")),
        *((8, 4, field) for field in (*HEADER, "seed")),
        *((PEOPLE, 4, field) for field in (*HEADER, "units")),
    ],
)
def test_any_change_of_the_written_manifest_is_seen(units, version, field):
    record = json.loads(partition(units, n_teachers=4, key=KEY, version=version).to_json())
    value = record[field]
    record[field] = {
        "n_teachers": 2,
        "n_rows": 9,
        "n_units": 7,
        "unit": "person" if units == 8 else "row",
        "version": 1,
        "shards": [3 - shard for shard in value] if field == "shards" else None,
        "units": value[::-1] if field == "units" else None,
    }.get(field, "0" * 64)
    with pytest.raises(ValueError, match="damaged or was changed"):
        Manifest.from_json(json.dumps(record))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"shards": "x"}'])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(ValueError, match="damaged or was changed"):
        Manifest.from_json(text)


def broken(**changes):
    good = partition(6, n_teachers=3, key=KEY)
    names = ("n_teachers", "unit", "commitment", "shards", "units")
    fields = {name: getattr(good, name) for name in names}
    return Manifest(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"shards": [0, 0, 1, 1, 2]}, "one shard and one unit a row"),
        ({"shards": [], "units": []}, "one shard and one unit a row"),
        ({"shards": [0, 0, 1, 1, 2, 3]}, "one of 3 shards"),
        ({"shards": [0, 0, 1, 1, 2, -1]}, "one of 3 shards"),
        ({"shards": [0, 0, 0, 1, 1, 1], "units": range(6)}, "none may be empty"),
        ({"shards": [0, 0, 0, 0, 1, 2], "units": range(6)}, "share the units equally"),
        ({"shards": [0, 1, 1, 2, 2, 0], "units": [0, 0, 1, 2, 3, 4]}, "one lies in two"),
        ({"units": [0, 1, 2, 3, 4, 6]}, "without gaps"),
        ({"units": [0, 1, 2, 3, 4, -1]}, "without gaps"),
        ({"n_teachers": 0}, "n_teachers must be"),
        ({"unit": "party of one"}, "unit must be"),
        ({"seed": b"short", "n_rows": 6}, "a seed of 32 bytes"),
        ({"seed": b"x" * 32, "n_rows": 2}, "a seed of 32 bytes"),
        ({"seed": b"x" * 32, "n_rows": 6, "unit": "person"}, "a seed of 32 bytes"),
    ],
)
def test_a_partition_that_is_none_cannot_be_made(changes, match):
    with pytest.raises(ValueError, match=match):
        broken(**changes)


def test_check_accepts_the_data_it_was_dealt_from_and_nothing_one_row_longer():
    for dealt, longer in ((PEOPLE, [*PEOPLE, "zoe"]), (9, 10)):
        manifest = partition(dealt, n_teachers=3)
        manifest.check(dealt)
        with pytest.raises(ValueError, match="other data"):
            manifest.check(longer)


@pytest.mark.parametrize(
    "others",
    [
        8,
        PEOPLE[:-1],
        [*PEOPLE[:-1], "ann"],
        ["ann", "bob", "bob", "eve", "joe", "eve", "ann", "kim"],
        list("abcdefgh"),
    ],
)
def test_check_refuses_other_rows_and_other_people(others):
    with pytest.raises(ValueError, match="other data"):
        partition(PEOPLE, n_teachers=3).check(others)


def test_check_does_not_mind_renamed_people():
    # names are not stored: a one-to-one renaming cannot be seen, and changes nothing
    manifest, renamed = partition(PEOPLE, n_teachers=3), [name.upper() for name in PEOPLE]
    manifest.check(renamed)
    with pytest.raises(ValueError, match="other data"):
        manifest.check([renamed[1], renamed[0], *renamed[2:]])


def test_the_arrays_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        partition(9, n_teachers=3).shards[0] = 1


@pytest.mark.parametrize(
    "spellings",
    [
        ["Jos\u00e9", "Jose\u0301"],
        [7, 7.0, "7", "7.0", "007", "7e0", b"7.00", "+7", "７"],
        [0, "-0", "0.0", -0.0],
        ["0.5", 0.5, ".50"],
        [10**22, "1e22", "10000000000000000000000"],
        [2**53 - 1, 2.0**53 - 1, "9007199254740991.0"],
        ["ann", "an\u200bn", "\ufeffann", "ann\u200e ", "a\u00adnn"],
        [
            dt.date(2020, 1, 2),
            np.datetime64("2020-01-02").item(),
            np.datetime64("2020-01-02T00", "s").item(),
            np.datetime64("2020-01-02", "ns"),
            "2020-01-02 00:00",
        ],
        [
            "2020-01-02T01:00:00.5+01:00",
            "2020-01-02 00:00:00.500",
            np.datetime64("2020-01-02T00:00:00.5").item(),
        ],
    ],
    ids=str,
)
def test_a_person_is_in_one_shard_however_the_name_is_written(spellings):
    people = np.array([*spellings, *(f"other {number}" for number in range(40))], dtype=object)
    for draw in range(20):
        manifest = partition(people, n_teachers=20, key=bytes([draw]) * 32)
        assert len(set(manifest.shards[: len(spellings)].tolist())) == 1
        assert manifest.n_units == 41


def test_names_that_differ_stay_different():
    people = [
        "Ann",
        "ann",
        "1-2",
        "12",
        "nan",
        "inf",
        "1" * 40,
        "1" * 39 + "2",
        "1e9999999",
        "1e9999998",
        "True",
        1,
        2**53,
        2**53 + 1,
        "2020-01-02",
        "2020-01-02 00:01",
        "2020-13-45",
    ]
    assert partition(np.array(people, dtype=object), n_teachers=1).n_units == len(people)


@pytest.mark.parametrize(
    "people", [[True, 1], np.array([True, False]), [2**53 + 1, 2.0**53], np.array([1e300, 2.0])], ids=str
)
def test_identifiers_which_are_one_for_several_people_are_refused(people):
    with pytest.raises(ValueError, match="identifiers of people must be text or whole numbers"):
        partition(people, n_teachers=1)


def test_identifiers_in_a_list_are_read_one_by_one():
    """An array would spell 7.0 as '7.0' because of the text behind it, and 2**53 + 1 as a float."""
    assert partition([7.0, 7, "x"], n_teachers=1).n_units == 2
    assert partition([2**53, 2**53 + 1, 0.5], n_teachers=1).n_units == 3


@pytest.mark.parametrize("missing", [np.datetime64("NaT"), None])
def test_a_row_without_a_date_names_nobody(missing):
    for people in ([dt.date(2020, 1, 2), missing], np.array(["2020-01-02", missing], dtype="datetime64[D]")):
        with pytest.raises(ValueError, match="every row must name its person"):
            partition(people, n_teachers=1)


def test_a_manifest_that_splits_a_person_is_refused():
    people = np.array(["Jos\u00e9", "Jose\u0301", "ann", "bob"])
    split = partition(people, n_teachers=2, key=KEY, version=1)
    assert split.n_units == 4
    with pytest.raises(ValueError, match="other people than the data"):
        split.check(people)


FIRST_VERSION = {  # written by the code before version 2, from partition(7, …) and these four rows
    7: '{"version": 1, "n_teachers": 3, "n_rows": 7, "n_units": 7, "unit": "row", "commitment": '
    '"dceb97ea628c2006cead8797074fc35a121b84c27fa125de2089d3236698e3ba", "sha256": '
    '"33125e3836cce750831065077a165a75e63fcd86589f6a2d6f8bc7a2a2b49bbc", "shards": [1, 1, 0, 2, 0, 0, 2], '
    '"units": [4, 1, 3, 5, 6, 0, 2]}',
    ("ann", "7.0", "ann", "bob"): '{"version": 1, "n_teachers": 2, "n_rows": 4, "n_units": 3, "unit": '
    '"person", "commitment": "dceb97ea628c2006cead8797074fc35a121b84c27fa125de2089d3236698e3ba", "sha256": '
    '"1db7ea02f71960d3d5d55a8e6c4fb4aff33918c0aea86444f9ac978b2dd0ed96", "shards": [0, 0, 0, 1], '
    '"units": [0, 2, 0, 1]}',
}


@pytest.mark.parametrize("units", FIRST_VERSION, ids=str)
def test_manifests_of_the_first_version_open_and_are_verified_with_their_key(units):
    manifest = Manifest.from_json(FIRST_VERSION[units])
    n_teachers = manifest.n_teachers
    units = units if isinstance(units, int) else list(units)
    manifest.check(units)
    assert partition(units, n_teachers=n_teachers, key=KEY, version=1).sha256 == manifest.sha256
    assert partition(units, n_teachers=n_teachers, key=KEY).sha256 != manifest.sha256


def test_rows_are_in_the_order_of_encrypted_numbers():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    derived = hashlib.blake2b(b"ostraka rows of a manifest", digest_size=32, key=KEY).digest()

    def encrypted(row):
        encryptor = Cipher(algorithms.AES(derived), modes.ECB()).encryptor()
        return encryptor.update(row.to_bytes(8, "little") + bytes(8))

    order = sorted(range(50), key=encrypted)
    assert partition(50, n_teachers=5, key=KEY).units[order].tolist() == list(range(50))
