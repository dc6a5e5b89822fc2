"""Rounds under one ledger: each charged once and released once, wherever the scheduler is killed."""

import itertools
import json
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ostraka import Budget, BudgetExceeded, Ledger
from ostraka.collect import Client, Histogram, Keeper, Series, Task, results, send
from ostraka.collect import client as _client
from ostraka.collect import series as _series
from ostraka.collect.client import own_ledger
from ostraka.collect.show import Collected
from ostraka.collect.tally import run_exchanges
from ostraka.core import files
from ostraka.secure.keys import Identity
from ostraka.secure.log import Log, LogError
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import PartyServer
from tests.cli.terminal import typed
from tests.collect.test_page_among_clients import node
from tests.threads import at_once

SIGMA, EVERY = 6.0, 100.0


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Hourly:
    """A series with keepers in this process, which can be killed at any step and started again."""

    def __init__(self, folder, *, rounds=4, epsilon=99.0):
        self.me, self.others, self.folder = Identity.fresh(), [Identity.fresh() for _ in range(2)], folder
        self.task = Task(
            Histogram(0, 3, cells=3), sigma=SIGMA, tally=self.me.public_key, rounds=rounds,
            keepers=[Keeper.key(keeper) for keeper in self.others],
        )  # fmt: skip
        self.budget, self.clock, self.series = (
            Budget(epsilon=epsilon, delta=1e-6, adaptive=False),
            Clock(),
            None,
        )
        self.sent = 0
        self.restart()

    def restart(self):
        if self.series is not None:
            self.series.end()
        keepers = [
            Keeper(self.task, keeper, folder=self.folder / f"k{place}")
            for place, keeper in enumerate(self.others)
        ]
        self.series = Series(
            self.task, self.me, folder=self.folder / "t", budget=self.budget, every=EVERY, keepers=keepers,
            clock=self.clock,
        )  # fmt: skip

    def report(self, monkeypatch, n=5):
        """Clients report to each round while it is open."""

        def exchanges(tally, *, n_clients, seconds):
            for number in range(tally.n_clients, n):
                tally.receive(Client(self.task, round=tally.round).report(number % 3))
            self.clock.sleep(1.0)

        monkeypatch.setattr("ostraka.collect.tally.run_exchanges", exchanges)

    def run(self):
        self.series.run(n_clients=5, sleep=self.clock.sleep)

    def files(self):
        return {
            path.name: json.loads(path.read_text()) for path in sorted((self.folder / "t").glob("round-*"))
        }


def test_each_round_is_charged_before_it_opens_and_released_once(tmp_path, monkeypatch):
    collection = Hourly(tmp_path)
    collection.report(monkeypatch)
    collection.run()
    assert collection.series.outcomes == ["released"] * 4
    exact = (4 * collection.task.mechanism.curve()).epsilon(delta=1e-6)
    assert collection.series.ledger.spent().epsilon(delta=1e-6) == pytest.approx(exact)
    records = collection.files()
    assert [record["round"] for record in records.values()] == [0, 1, 2, 3]
    assert list(records.values())[-1]["epsilon"] == pytest.approx(exact)
    for record in records.values():
        assert np.abs(Collected(record).sums - [2, 2, 1]).max() < 10 * record["variance"] ** 0.5
    collection.run()  # nothing is left to do
    assert collection.files() == records


STEPS = {
    "charged": (Ledger, "charge"),
    "opened": (_series, "Tally"),
    "collected": (_series, "run_exchanges"),
    "closed": (_series.Tally, "close"),
    "kept": (Log, "once"),
    "released": (_series, "release"),
    "written": (files, "write"),
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_scheduler_killed_at_any_step_goes_on_and_nothing_is_paid_or_released_twice(
    tmp_path, monkeypatch, step, after
):
    collection = Hourly(tmp_path, rounds=2)
    collection.report(monkeypatch)
    owner, name = STEPS[step]
    usual, number = getattr(owner, name), itertools.count()

    def killed(*args, **options):
        last = next(number) == 1
        done = usual(*args, **options) if after or not last else None
        if last:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        with pytest.raises(KeyboardInterrupt):
            collection.run()
    before = collection.files()
    collection.restart()
    collection.run()
    assert collection.series.outcomes == ["released"] * 2
    exact = (2 * collection.task.mechanism.curve()).epsilon(delta=1e-6)
    assert collection.series.ledger.spent().epsilon(delta=1e-6) == pytest.approx(exact)
    records = collection.files()
    assert {name: records[name]["sums"] for name in before} == {
        name: record["sums"] for name, record in before.items()
    }
    collection.series.end()


def test_rounds_that_passed_while_nothing_ran_cost_nothing_and_failed_ones_are_said(tmp_path, monkeypatch):
    collection = Hourly(tmp_path)
    collection.clock.sleep(2.5 * EVERY)
    collection.report(monkeypatch, n=2)  # too few
    collection.run()
    assert collection.series.outcomes == ["missed", "missed", "failed", "failed"]
    assert collection.series.ledger.spent().epsilon(delta=1e-6) == pytest.approx(
        (2 * collection.task.mechanism.curve()).epsilon(delta=1e-6)
    )
    assert not collection.files()


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, [(1000.0, EVERY), (1100.0, EVERY), (1200.0, EVERY)]),
        (30.0, [(1000.0, 30.0), (1100.0, 30.0), (1200.0, 30.0)]),
    ],
)
def test_a_round_begins_when_it_is_due_and_ends_when_the_next_is(tmp_path, monkeypatch, seconds, expected):
    collection, seen = Hourly(tmp_path, rounds=3), []

    def exchanges(tally, *, n_clients, seconds):
        seen.append((collection.clock.now, seconds))
        assert n_clients == 7
        for number in range(3):
            tally.receive(Client(collection.task, round=tally.round).report(number))
        collection.clock.sleep(20.0)

    monkeypatch.setattr("ostraka.collect.tally.run_exchanges", exchanges)
    collection.series.run(n_clients=7, seconds=seconds, sleep=collection.clock.sleep)
    assert seen == expected
    collection = Hourly(tmp_path / "late", rounds=3)
    seen.clear()
    collection.clock.sleep(1.75 * EVERY)  # three quarters of the second round have passed
    collection.series.run(n_clients=7, seconds=seconds, sleep=collection.clock.sleep)
    assert seen == [(1175.0, min(25.0, seconds or EVERY)), (1200.0, seconds or EVERY)]


def test_keepers_out_of_reach_are_asked_until_the_next_round_is_due(tmp_path, monkeypatch):
    collection, close, calls = Hourly(tmp_path, rounds=3), Series.close, []
    collection.report(monkeypatch)

    def failing(series, tally):
        calls.append((tally.round, round(collection.clock.now - 1000, 6)))
        if tally.round == 1 or (tally.round == 0 and len(calls) < 3):
            raise PartyError("gone", code="unreachable")
        if tally.round == 2:
            raise PartyError("no", code="refused")
        return close(series, tally)

    monkeypatch.setattr(Series, "close", failing)
    collection.run()
    assert collection.series.outcomes == ["released", "failed", "failed"]
    first, second = ([now for number, now in calls if number == which] for which in (0, 1))
    assert first == [1.0, 1.2, 1.4]
    np.testing.assert_allclose(np.diff(second), 0.2)
    assert (second[0], 200.0 <= second[-1] < 200.3) == (101.0, True)
    assert [number for number, _ in calls].count(2) == 1


def test_a_round_whose_exchanges_fail_is_said_to_have_failed(tmp_path, monkeypatch):
    collection = Hourly(tmp_path, rounds=2)

    def nobody(tally, **_):
        raise PartyError("nobody", code="unreachable")

    monkeypatch.setattr("ostraka.collect.tally.run_exchanges", nobody)
    collection.run()
    assert collection.series.outcomes == ["failed", "failed"]
    assert repr(collection.series) == f"Series(task={collection.task.sha256[:16]!r})"


class Stages:
    """A tally whose exchanges have so many answers, one more at each look, and time that passes by steps."""

    def __init__(self, monkeypatch, stages, expected, *, enrolment=None):
        self.stages, self.expected, self.answered, self.closed = list(stages), expected, 0, []
        self.task = SimpleNamespace(enrolment=enrolment)
        self.now = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr("ostraka.collect.tally.time", clock)

    @property
    def stage(self):
        return self.stages[0]

    @property
    def progress(self):
        return self.answered, self.expected

    def sleep(self, seconds):
        assert seconds == 0.05
        self.now += 1.0
        self.answered += 1

    def advance(self):
        self.closed.append((self.stages.pop(0), self.answered, self.now))
        self.answered = 0


AMONG = ["join", "share", "mask", "unmask"]


@pytest.mark.parametrize(
    ("stages", "n_clients", "expected", "seconds", "closed", "end"),
    [
        # each exchange waits for those who can answer, the first for as many as are wanted
        (AMONG, 3, 5, 9, [("join", 3, 3.0), ("share", 5, 8.0), ("mask", 5, 13.0)], 18.0),
        # or until so many seconds have passed in it
        (AMONG, 30, 50, 2, [("join", 3, 3.0), ("share", 3, 6.0), ("mask", 3, 9.0)], 12.0),
        (["report"], 4, 1000, 60, [], 4.0),
        (["report"], 4, 1000, 2, [], 3.0),
    ],
)
def test_an_exchange_is_closed_when_all_have_answered_or_its_time_is_over(
    monkeypatch, *, stages, n_clients, expected, seconds, closed, end
):
    tally = Stages(monkeypatch, stages, expected)
    run_exchanges(tally, n_clients=n_clients, seconds=seconds)
    assert (tally.closed, tally.now) == (closed, end)


def test_a_roster_is_closed_by_its_enrolment_alone(monkeypatch):
    tally = Stages(monkeypatch, AMONG, 5, enrolment="office")
    with pytest.raises(PartyError, match="approved no roster in time") as ended:
        run_exchanges(tally, n_clients=2, seconds=6)
    assert (tally.closed, tally.now, ended.value.code) == ([], 7.0, "unreachable")


def test_a_round_that_the_ledger_does_not_pay_for_is_not_opened(tmp_path, monkeypatch):
    two = (2 * Hourly(tmp_path / "other").task.mechanism.curve()).epsilon(delta=1e-6)
    collection = Hourly(tmp_path / "own", epsilon=1.0001 * two)
    collection.report(monkeypatch)
    with pytest.raises(BudgetExceeded):
        collection.run()
    assert collection.series.outcomes == ["released", "released", None, None]
    assert len(collection.files()) == 2


def test_a_report_that_comes_when_its_round_has_ended_is_refused_in_words(tmp_path):
    collection = Hourly(tmp_path)
    tally = collection.series.open(0)
    late = Client(collection.task).report(1)
    collection.series.open(1)
    with pytest.raises(PartyError, match="the round is closed"):
        tally.receive(late)


def test_a_second_scheduler_of_one_series_is_refused(tmp_path):
    collection = Hourly(tmp_path)
    with pytest.raises(LogError, match="open elsewhere"):
        Series(
            collection.task, collection.me, folder=tmp_path / "t", budget=collection.budget, every=EVERY,
            keepers=[Keeper(collection.task, keeper) for keeper in collection.others],
        )  # fmt: skip


def test_clients_answer_each_round_once_and_stop_when_their_own_ledger_is_spent(tmp_path):
    collection = Hourly(tmp_path, rounds=3)
    two, three = ((n * collection.task.mechanism.curve()).epsilon(delta=1e-6) for n in (2, 3))
    budget = (two + three) / 2  # an adaptive ledger costs a little more
    collection.series.open(0)
    with PartyServer(collection.series, pages=collection.series.pages) as server:
        with own_ledger(tmp_path / "me", epsilon=budget) as ledger:
            rounds = Client.auto(
                server.url, lambda round_: round_ % 3, folder=tmp_path / "me", ledger=ledger, pause=0.0
            )
            assert next(rounds) == 0
            with pytest.raises(PartyError, match="answered this round"):
                send(server.url, 1, folder=tmp_path / "me")
            for value in (0, 1):
                send(server.url, value)
            assert collection.series.tally.n_clients == 3
            collection.series.close(collection.series.tally)
            results_page = results(server.url, sha256=collection.task.sha256)
            assert (results_page["round"], results_page["result"]["quantile"]) == (0, 0.5)
            assert results_page["spent"] == pytest.approx(
                collection.task.mechanism.curve().epsilon(delta=1e-6)
            )
            collection.series.open(1)
            assert next(rounds) == 1
            collection.series.open(2)
            with pytest.raises(BudgetExceeded):
                next(rounds)
            assert collection.series.tally.n_clients == 0
            spent = ledger.spent().epsilon(delta=1e-6)
        mine = typed("collect", "mine", tmp_path / "me", "--json")
        assert json.loads(mine.out)["spent"] == pytest.approx(spent)
        assert json.loads(mine.out)["left"] < three - two
        # a page reports to the round that is open
        assert (
            node("const main = ({ url }) => collect.send(url, 1);\n", {"url": server.url})
            == collection.task.sha256
        )
        assert collection.series.tally.n_clients == 1
        good = collection.series.tally._notice
        collection.series.tally._notice = Identity.fresh().seal("notice", good[64:])
        with pytest.raises(ValueError, match="signature"):
            results(server.url)


def test_one_ledger_of_a_client_counts_all_series_that_it_joined(tmp_path):
    ours = [Hourly(tmp_path / name, rounds=2) for name in "ab"]
    with own_ledger(tmp_path / "me", epsilon=3.0) as ledger:
        for series in ours:
            series.series.open(0)
            with PartyServer(series.series, pages=series.series.pages) as server:
                send(server.url, 1, ledger=ledger)
                with pytest.raises(ValueError, match="must be"):
                    send(server.url, "x", ledger=ledger)  # refused before it is charged
        price = ours[0].task.mechanism.curve()
        assert ledger.spent().epsilon(delta=1e-6) >= (2 * price).epsilon(delta=1e-6) * 0.999


def test_a_client_answers_every_round_once_and_ends_after_the_last(tmp_path, monkeypatch):
    task = Task(
        Histogram(0, 1, cells=4), sigma=2.0, noise="tally", tally="ab" * 32, least=5, most=12, rounds=3
    )
    open_rounds, sent = iter([0, 0, 1, 2]), []

    def send(url, value, *, round_, folder, **_):
        sent.append((round_, value))
        _client._answered(Path(folder), task, round_).touch()

    monkeypatch.setattr(_client, "fetch_task", lambda *_, **__: task)
    monkeypatch.setattr(_client, "open_round", lambda *_, **__: next(open_rounds))
    monkeypatch.setattr(_client, "send", send)
    looks = Client.auto("http://tally", lambda round_: round_ / 3, folder=tmp_path, pause=0.0)
    assert list(looks) == [0, 1, 2]
    assert sent == [(0, 0.0), (1, 1 / 3), (2, 2 / 3)]


@pytest.mark.slow  # two rounds of six seconds; with keepers and without HTTP above
def test_a_series_among_clients_over_http(tmp_path):
    me = Identity.fresh()
    task = Task(
        Histogram(0, 1, cells=4), sigma=2.0, noise="tally", tally=me.public_key, least=5, most=12, rounds=2
    )
    series = Series(
        task, me, folder=tmp_path, budget=Budget(epsilon=50.0, delta=1e-6, adaptive=False), every=6.0
    )
    with PartyServer(series, pages=series.pages) as server:

        def answers(k):
            return list(Client.auto(server.url, lambda _: k / 6, folder=tmp_path / f"c{k}", pause=0.2))

        with at_once(lambda: series.run(n_clients=6)):
            while not series.answers:
                time.sleep(0.01)
            with at_once(*(partial(answers, k) for k in range(6))):
                pass
    assert series.outcomes == ["released", "released"]
    assert len(list(tmp_path.glob("round-*.json"))) == 2
    series.end()
