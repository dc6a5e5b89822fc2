from types import SimpleNamespace

import pytest

from ostraka.core.ledger.budget import DAY, Pace
from ostraka.ledger import Ledger
from tests.core.ledger.conftest import ASK

NOW = 1_800_000_000


@pytest.fixture
def clock(monkeypatch):
    display = SimpleNamespace(now=NOW)
    for file in ("history", "ledger"):
        monkeypatch.setattr(f"ostraka.core.ledger.{file}.time", SimpleNamespace(time=lambda: display.now))
    monkeypatch.setattr("ostraka.core.ledger.ledger._BLOCK", 4)
    return display


def charged(ledger, gaussian, clock, *times):
    for at in times:
        clock.now = at
        ledger.charge(gaussian(400.0), uses=1, **ASK)
    clock.now = NOW


@pytest.mark.parametrize(
    ("times", "in_a_day"),
    [
        ([NOW - 3 * DAY] * 9 + [NOW - 60] * 7, 7),
        ([NOW - 3 * DAY] * 9, 0),
        ([NOW - 60] * 7 + [NOW - 2 * DAY] + [NOW - 30] * 2, 9),  # a clock that was set back, and right again
        ([NOW - 60] * 3 + [NOW + 400 * DAY] * 2 + [NOW - 30] * 6, 9),  # one that was a year ahead
        ([NOW - 2 * DAY] * 2 + [NOW - 60, NOW - 2 * DAY] * 3 + [NOW - 60], 4),
    ],
)
def test_the_outlook_counts_the_last_day_whatever_the_clock_did(gaussian, budget, clock, times, in_a_day):
    with Ledger(":memory:", budget=budget) as ledger:
        charged(ledger, gaussian, clock, *times)
        assert ledger.outlook().in_a_day == in_a_day


def test_of_a_long_day_the_older_entries_are_counted_at_the_mean_uses_of_the_newest(
    gaussian, budget, clock, monkeypatch
):
    monkeypatch.setattr("ostraka.core.ledger.ledger._SAMPLE", 8)
    with Ledger(":memory:", budget=budget) as ledger:
        charged(ledger, gaussian, clock, *[NOW - 2 * DAY] * 9, *range(NOW - 100, NOW))
        read = []
        rows = ledger._store.rows
        monkeypatch.setattr(ledger._store, "rows", lambda *at: (read.append(at), rows(*at))[1])
        assert ledger.outlook().in_a_day == 100
        assert read == [(105, 4), (101, 4)]


def test_a_rate_begins_with_the_earliest_use():
    forwards, backwards = Pace(), Pace()
    for at in range(NOW - 3600, NOW, 60):
        forwards.add(at, 1)
        backwards.add(2 * NOW - 3660 - at, 1)
    assert forwards.per_second(NOW) == backwards.per_second(NOW) == pytest.approx(1 / 60)


def test_the_first_questions_of_a_ledger_are_no_rate():
    pace = Pace()
    for at in range(NOW - 40, NOW, 20):
        pace.add(at, 1)
    assert pace.per_second(NOW) == pytest.approx(2 / 3600)
    assert pace.per_second(NOW + 7200) == pytest.approx(2 / 7240)
