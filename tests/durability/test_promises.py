"""Races, random walks, tampering and length: what a ledger promises while nothing crashes."""

import pytest

from rigs import big, charging, disk, model, races, tampering


@pytest.mark.parametrize("mode", charging.LEDGERS)
def test_callers_who_want_more_than_there_is_get_exactly_what_there_is(mode):
    try:
        found = races.find(mode, budgets=3)
    except disk.UnavailableError as missing:
        pytest.skip(str(missing))
    assert found.passed, found


def test_random_walks_of_the_ledger_and_of_a_plain_model_agree():
    found = model.find(steps=300)
    assert found.passed, found


@pytest.mark.parametrize("mode", charging.ON_DISK)
def test_whatever_is_changed_in_the_files_is_noticed_or_means_the_same(mode):
    found = tampering.find(mode, charges=5, flipped=150, step=8192)
    assert found.passed, found


def test_a_long_ledger_is_read_from_its_last_anchor_and_a_changed_entry_is_found():
    found = big.find(entries=10_000)
    assert not found.blind, found  # how fast it is, a soak says: here other tests share the cores
