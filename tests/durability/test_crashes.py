"""Power cuts, failing disks and kills: what was acknowledged is charged, and nothing is charged twice."""

import pytest

from rigs import charging, faults, kills, power

MODES = charging.ON_DISK


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_loses_no_acknowledged_charge(recorder, mode):
    found = power.find(mode, images=300)
    assert found.passed, found


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_fails_at_any_call_leaves_no_uncharged_answer(recorder, mode):
    found = faults.find(mode, charges=4, session=4)  # each kind of call, from opening to closing
    assert found.passed, found


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_moment_loses_nothing_and_charges_nothing_twice(mode):
    found = kills.find(mode, kills=20)
    assert found.passed, found
