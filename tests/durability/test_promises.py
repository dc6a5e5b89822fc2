"""Races, random walks, tampering and length: what a ledger promises while nothing crashes."""

import pytest

from rigs import big, charging, disk, model, races, tampering


@pytest.mark.parametrize("budgets", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", charging.LEDGERS)
def test_callers_who_want_more_than_there_is_get_exactly_what_there_is(mode, budgets):
    try:
        findings = races.find(mode, budgets=budgets)
    except disk.UnavailableError as missing:
        pytest.skip(str(missing))
    assert findings.passed, findings


@pytest.mark.parametrize("steps", [120, pytest.param(300, marks=pytest.mark.slow)])
def test_random_walks_of_the_ledger_and_of_a_plain_model_agree(steps):
    findings = model.find(steps=steps)
    assert findings.passed, findings


@pytest.mark.parametrize(("charges", "flipped"), [(3, 50), pytest.param(5, 150, marks=pytest.mark.slow)])
# owned has the store of shared, and is changed in more ways
@pytest.mark.parametrize("mode", [pytest.param("shared", marks=pytest.mark.slow), "owned", "log"])
def test_whatever_is_changed_in_the_files_is_noticed_or_means_the_same(mode, charges, flipped):
    findings = tampering.find(mode, charges=charges, flipped=flipped, step=8192)
    assert findings.passed, findings


@pytest.mark.parametrize("entries", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_long_ledger_is_read_from_its_last_anchor_and_a_changed_entry_is_found(entries):
    findings = big.find(entries=entries)
    assert not findings.blind, findings  # how fast it is, a soak says: here other tests share the cores
