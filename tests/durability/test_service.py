"""The whole service under lost requests, kills and nonsense."""

import pytest

pytest.importorskip("httpx", reason="the rigs need httpx: pip install '.[test]'")
pytest.importorskip("uvloop", reason="the service needs uvloop: pip install '.[service]'")

from rigs import disk, edges, fuzz, storm


@pytest.mark.slow  # quick: a process that stops and the retry, tests/serve/test_semantics.py
def test_whoever_retries_pays_once_and_is_told_the_same():
    findings = storm.find(keys=100, kills=1)
    assert findings.passed, findings


@pytest.mark.slow  # quick: numbers at edges and raw bytes below, and tests/serve/test_refusals.py
def test_no_request_breaks_the_service_and_none_that_is_refused_is_charged():
    try:
        findings = fuzz.find(requests=300)
    except disk.UnavailableError as missing:
        pytest.skip(str(missing))
    assert findings.passed, findings


@pytest.mark.parametrize("requests", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_numbers_at_edges_and_raw_bytes_break_nothing(requests):
    findings = edges.find(requests=requests)
    assert findings.passed, findings
