"""Token buckets on a clock that the test turns."""

import pytest

from ostraka.serve.requests import Buckets


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate_of_each_client_and_a_rate_of_nothing_is_refused():
    clock = Clock()
    buckets = Buckets(rate=2.0, burst=4, clock=clock)
    assert [buckets.take("a", 1) for _ in range(5)] == [0, 0, 0, 0, 1]
    assert buckets.take("b", 1) == 0
    clock.now += 0.5
    assert [buckets.take("a", 1) for _ in range(2)] == [0, 1]
    clock.now += 1000
    assert [buckets.take("a", 1) for _ in range(5)] == [0, 0, 0, 0, 1]
    for settings in ({"rate": 0.0, "burst": 1}, {"rate": 1.0, "burst": 0}):
        with pytest.raises(ValueError, match="must be"):
            Buckets(**settings)


def test_a_batch_counts_its_rows_and_one_above_the_burst_is_paid_back_in_time():
    clock = Clock()
    buckets = Buckets(rate=1.0, burst=10, clock=clock)
    assert buckets.take("a", 30) == 0
    assert buckets.take("a", 1) == 21
    clock.now += 21
    assert buckets.take("a", 1) == 0


def test_who_waits_as_told_is_let_in():
    clock = Clock()
    buckets = Buckets(rate=0.3, burst=5, clock=clock)
    for rows in (5, 3, 5, 1, 4):
        clock.now += buckets.take("a", rows)
        assert buckets.take("a", 0) == 0


def test_the_latest_twenty_thousand_clients_are_remembered():
    buckets = Buckets(rate=1.0, burst=1, clock=Clock())
    assert not any(buckets.take(f"client {number}", 1) for number in range(20_001))
    assert buckets.take("client 1", 1) == 1
    assert buckets.take("client 0", 1) == 0
