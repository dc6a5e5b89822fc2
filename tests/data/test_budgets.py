"""Budgets of tables as a reading of what was charged; digests; what guards see."""

import gzip
import hashlib
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from ostraka import GNMax
from ostraka.data import budgets, guards
from ostraka.data.budgets import Account, Spent, Tables
from ostraka.ledger import LedgerError

STEPS = {  # what was promised, what is asked for, and how many steps between neighbours that takes
    ("row", "row"): 1,
    ("person", "person"): 1,
    ("person", "row"): 1,
    ("row", "person"): 0,
    ("row", "label"): 1,
    ("person", "label"): 1,
    ("label", "row"): 0,
    ("label", "label"): 1,
    ("row (zero-out)", "row"): 2,
    ("row (add-or-remove)", "row"): 2,
    ("row (add-or-remove)", "row (zero-out)"): 1,
    ("row (zero-out)", "row (add-or-remove)"): 0,
    ("row", "row (zero-out)"): 0,
    ("row (zero-out)", "row (zero-out)"): 1,
    ("person (zero-out)", "row"): 2,
    ("person (add-or-remove)", "row (add-or-remove)"): 2,
    ("person (add-or-remove)", "label"): 2,
    ("row (zero-out)", "person"): 0,
    ("row (zero-out)", "label (zero-out)"): 2,
}


@pytest.mark.parametrize(("promised", "wanted"), STEPS)
def test_releases_of_another_promise_count_once_twice_or_not(tmp_path, promised, wanted):
    tables = Tables(tmp_path)
    account = tables.account(None, rows=np.eye(3))
    account.charge(GNMax(sigma=40.0), uses=3, unit=promised, simulation=False, key="run/a", delta=1e-6)
    account.charge(GNMax(sigma=40.0), uses=2, unit=promised, simulation=False, key="run/b", delta=1e-6)
    account.charge(GNMax(sigma=40.0), uses=1, unit=promised, simulation=False, key="other/a", delta=1e-6)
    account.close()
    spent, steps = account.spent(wanted), STEPS[promised, wanted]
    price = (6 * GNMax(sigma=40.0).curve()).epsilon(1e-6)
    assert (spent.releases, spent.others) == ((2, 0) if steps else (0, 2))
    assert spent.epsilon == pytest.approx(steps * price)
    assert spent.delta == pytest.approx({0: 0.0, 1: 1e-6, 2: (1 + math.exp(price)) * 1e-6}[steps])
    assert account.units() == [promised]
    file = f"{account.number}-{promised.replace(' (', '-').rstrip(')')}.sqlite"
    assert [path.name for path in tmp_path.glob("*.sqlite")] == [file]
    but = account.spent(wanted, but="run")
    assert but.releases + but.others == 1
    assert account.spent(wanted, but="none") == spent


def test_chances_beyond_1_are_1_and_nothing_spent_is_nothing(tmp_path):
    account = Tables(tmp_path).account(None, rows=np.eye(3))
    assert account.spent("row") == Spent(epsilon=0.0, delta=0.0, releases=0, others=0)
    assert account.units() == []
    account.charge(GNMax(sigma=0.8), uses=40, unit="row (zero-out)", simulation=False, key="a", delta=1e-3)
    account.close()
    assert account.spent("row").delta == 1.0


def test_a_table_is_known_by_its_path_or_by_enough_of_its_rows_or_people(tmp_path):
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(300, 2)), rng.normal(size=(300, 2))
    tables = Tables(tmp_path / "a")
    assert tables.known(None, rows=rows) is None
    assert not (tmp_path / "a").exists()  # looking writes nothing
    account = tables.account(None, rows=rows)
    for n_same, same in ((300, True), (230, True), (170, False), (0, False)):  # half of both together
        mixed = np.concatenate([rows[:n_same], others[n_same:]])
        known = tables.known(None, rows=mixed)
        assert (known is not None and known.number == account.number) == same
    people = np.arange(200)
    mine = tables.account(None, people, rows=others)
    for shift, same in ((0, True), (150, True), (199, False), (200, False)):  # a twentieth of both
        known = tables.known(None, people + shift, rows=rng.normal(size=(200, 2)))
        assert (known is not None and known.number == mine.number) == same
    assert [one.number for one in tables.accounts()] == sorted({account.number, mine.number})
    assert {one.name for one in tables.accounts()} == {"rows in memory"}
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n")
    of_file = tables.account(path)
    path.write_text("b\n7\n8\n9\n")  # another content at the same path
    assert tables.known(path).number == of_file.number
    (tmp_path / "moved.csv").write_text("b\n9\n7\n8\n")  # the newest lines in another order
    tables = Tables(tmp_path / "a")
    tables.account(path)
    assert Tables(tmp_path / "a").known(tmp_path / "moved.csv").number == of_file.number
    record = json.loads((tmp_path / "a" / f"{of_file.number}.json").read_text())
    assert record["paths"] == [str(path.resolve())]
    assert isinstance(of_file, Account)
    (tmp_path / "a" / "x.json").write_text('{"version": 2}')
    with pytest.raises(
        LedgerError, match=r"x\.json is damaged, or of another version: take it from a backup"
    ):
        tables.known(path)


def test_the_smallest_digests_are_kept_whatever_the_parts_are():
    rng = np.random.default_rng(0)
    digests = rng.integers(0, 5000, 3000).astype(np.uint64)
    want = np.unique(digests)[:512]
    for size in (1, 7, 400, 3000):
        parts = (digests[start : start + size] for start in range(0, 3000, size))
        np.testing.assert_array_equal(budgets._smallest(parts), want)
    np.testing.assert_array_equal(budgets._smallest([digests[:5]]), np.unique(digests[:5]))


def test_digests_of_columns_mix_every_bit_and_equal_numbers_alike():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [np.nan, 1.0], [-np.nan, 1.0], [1.0, 0.0]])
    one = guards.block_digests(b"k" * 16, rows)
    assert one[0] == one[1]
    assert one[2] == one[3]
    assert len(np.unique(one)) == 3
    assert (guards.block_digests(b"j" * 16, rows) != one).all()
    whole = guards.block_digests(b"k" * 16, np.array([[0, 1], [1, 0]]))
    np.testing.assert_array_equal(whole, one[[0, 4]])
    flips = np.arange(64)
    words = guards.bits(np.full(65, 0.5))
    words[1:] ^= np.uint64(1) << flips.astype(np.uint64)
    digests = np.zeros(65, dtype=np.uint64)
    guards.mixed_in(digests, words)
    changed = np.bitwise_count(digests[1:] ^ digests[0])
    assert changed.min() > 20  # half of 64 bits on average, whichever bit is another
    assert changed.max() < 44
    mixer = [int(words[0])]  # the finaliser of SplitMix64, by hand
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z = mixer[-1]
        mixer.append((z ^ (z >> shift)) * factor % 2**64)
    assert int(digests[0]) == mixer[-1]


def test_digests_that_are_kept_are_those_of_every_later_version(tmp_path):
    """Of lines, people and rows of numbers a keyed BLAKE2b; of cells as they were first recorded."""
    folder, key = tmp_path / "kept", bytes(range(32))
    folder.mkdir()
    (folder / "secret").write_bytes(key)
    lines = b" a,b\n1,x \r\n2,y\n\n1,x"
    (tmp_path / "a.csv").write_bytes(lines)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(lines))
    frame = pd.DataFrame({"b": ["x", "y", None], "a": [1.0, -0.0, float("nan")], "n": [1, 2, 3]})
    parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    numbers = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "a.npz", y=np.arange(3), X=numbers)

    def kept(path=None, people=None, rows=None):
        number = Tables(folder).account(path, people, rows=rows).number
        record = json.loads((folder / f"{number}.json").read_text())
        (folder / f"{number}.json").unlink()
        assert (record["version"], record["digests"]) == (1, 2)
        return record

    def keyed(texts):
        digests = {hashlib.blake2b(text, key=key, digest_size=8).digest() for text in texts}
        return sorted(int.from_bytes(digest) for digest in digests)

    for name in ("a.csv", "a.csv.gz"):
        assert kept(tmp_path / name)["rows"] == keyed([b"a,b", b"1,x", b"2,y", b""])
    for record in (kept(tmp_path / "a.npz"), kept(rows=numbers)):
        assert record["rows"] == keyed(row.tobytes() for row in numbers)
    assert kept(people=["ann", "7.0", "ann"], rows=numbers)["people"] == keyed([b"ann", b"7"])
    assert "people" not in kept(rows=numbers)
    for record in (kept(tmp_path / "a.parquet"), kept(rows=frame)):
        assert record["rows"] == [0x4B3CA100843585CF, 0xC4C3CF4DA96B75C2, 0xF055E62E0822C4FF]
