"""Power cuts, failing disks and kills: what was acknowledged is charged, and nothing is charged twice."""

import pytest

from rigs import charging, faults, kills, power

TILLS = charging.ON_DISK


@pytest.mark.parametrize("till", TILLS)
def test_a_power_cut_loses_no_acknowledged_charge(recorder, till):
    found = power.find(till, images=300)
    assert found.passed, found


@pytest.mark.parametrize("till", TILLS)
def test_a_disk_that_fails_at_any_call_leaves_no_uncharged_answer(recorder, till):
    found = faults.find(till, charges=8, session=8)
    assert found.passed, found


@pytest.mark.parametrize("till", TILLS)
def test_a_kill_at_any_moment_loses_nothing_and_charges_nothing_twice(till):
    found = kills.find(till, kills=20)
    assert found.passed, found
