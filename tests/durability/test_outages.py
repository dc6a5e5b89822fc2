"""What passes, under load: nothing lost, nothing doubled, and the ledger goes on."""

import os

import pytest

from rigs import disk, outages


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["lock", "disk", "restart"])
def test_what_passes_stops_nobody_and_every_retry_is_charged_once(kind, times):
    if kind == "disk" and os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root only")
    try:
        findings = outages.find(kind, times=times)
    except disk.UnavailableError as missing:
        pytest.skip(str(missing))
    assert findings.passed, findings


def test_a_lock_for_a_long_time_stops_no_ledger_of_many(tmp_path, monkeypatch):
    monkeypatch.setattr(outages, "MINUTE", 0.3)
    findings = outages.minutes(tmp_path, 2)
    assert findings["charges"]
    assert not any(findings["wrong"].values()), findings
