"""Power cuts, failing disks and kills: what was acknowledged is charged, and nothing is charged twice."""

import gc

import pytest

from rigs import charging, faults, kills, power

# one process that commits for many threads, and the log of the other roles; shared has the store of owned
MODES_ALONE = [pytest.param("shared", marks=pytest.mark.slow), "owned", "log"]


@pytest.mark.parametrize("images", [50, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", MODES_ALONE)
def test_a_power_cut_loses_no_acknowledged_charge(recorder, mode, images):
    findings = power.find(mode, images=images)
    assert findings.passed, findings


# quick for the others: a disk that is full at a commit or in the middle, tests/core/ledger/test_outages.py
@pytest.mark.parametrize(
    "mode", [*(pytest.param(mode, marks=pytest.mark.slow) for mode in ("shared", "owned")), "log"]
)
def test_a_disk_that_fails_at_any_call_leaves_no_uncharged_answer(recorder, mode):
    findings = faults.find(mode, charges=3, session=3)  # each kind of call, from opening to closing
    assert findings.passed, findings


# of one file several processes may be killed at once
@pytest.mark.parametrize("n_kills", [6, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["shared", pytest.param("owned", marks=pytest.mark.slow), "log"])
def test_a_kill_at_any_moment_loses_nothing_and_charges_nothing_twice(mode, n_kills):
    findings = kills.find(mode, kills=n_kills)
    assert findings.passed, findings


@pytest.mark.parametrize(("end", "log_stays"), [("--crash", True), ("--name=k", False)])
def test_a_session_that_crashes_leaves_its_log_to_be_recovered(tmp_path, monkeypatch, end, log_stays):
    charge = charging.charge

    def charge_then_collect(session):
        charge(session)
        gc.collect()  # a ledger that was dropped closes its connection

    monkeypatch.setattr(charging, "charge", charge_then_collect)
    charging.forked([str(tmp_path), end, "--charges=1", "--threads=1"])
    log = tmp_path / f"{charging.NAME}-wal"
    assert (log.exists() and log.stat().st_size > 0) == log_stays
