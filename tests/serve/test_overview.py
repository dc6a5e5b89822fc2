"""What is counted for the owner's page: from the ledger's entries alone, each read once, in bounded space."""

from types import SimpleNamespace

import pytest

from ostraka import Budget, GNMax, Ledger
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.ledger import ChargeRequest
from ostraka.serve import counts as _counts
from ostraka.serve.answering import Reserved
from ostraka.serve.counts import Checkpoint, RunningCounts
from ostraka.serve.owner import overview
from tests.serve.conftest import PATIENCE, deploy, serving

NOISE = GNMax(sigma=40.0)


@pytest.fixture
def ledger():
    """Two clients and nothing asked yet."""
    with Ledger(":memory:", budget=Budget(epsilon=50.0, delta=1e-6)) as book:
        for name in ("alice", "bob"):
            book.grant(name, budget_epsilon=20.0)
        yield book


def ask(ledger, *questions, start=0):
    """Questions as (client, name of the question, answer)."""
    requests = [
        ChargeRequest(
            account=who, key=f"{start + n}", digest=f"{name:064x}", cost=NOISE, reserve=NOISE, answer=answer
        )
        for n, (who, name, answer) in enumerate(questions)
    ]
    for receipt in ledger.charge_each(requests, unit="row"):
        assert not isinstance(receipt, Exception)


def counted(ledger) -> RunningCounts:
    counts = RunningCounts()
    assert counts.catch_up(ledger, seconds=PATIENCE)
    return counts


def test_answers_abstentions_repeats_and_prices_are_counted(ledger):
    ask(ledger, ("alice", 1, 0), ("alice", 2, ABSTAIN), ("bob", 1, 0), ("bob", 3, 2), ("bob", 3, 2))
    counts = counted(ledger)
    assert counts.answers == {"alice": 2, "bob": 3}
    assert counts.abstained == {"alice": 1, "bob": 0}
    assert counts.repeats == {"bob": 2}
    assert counts.costs == {"GNMax(sigma=40.0)": [pytest.approx(NOISE.curve().epsilon(1e-6)), 5]}


def test_repeated_questions_come_most_often_asked_first(ledger):
    ask(
        ledger,
        *[("alice", 1, ABSTAIN)] * 4,
        ("alice", 2, 0),
        ("bob", 2, 0),
        ("alice", 3, 0),
        ("bob", 1, ABSTAIN),
    )
    first, second = counted(ledger).repeated()
    assert (int(first.digest, 16), first.times, first.repeaters, first.abstained) == (1, 5, 2, True)
    assert (int(second.digest, 16), second.times, second.repeaters, second.abstained) == (2, 2, 1, False)


def test_a_price_that_rounds_to_nothing_is_looked_up_once(ledger, monkeypatch):
    cheap = GNMax(sigma=1e6)
    requests = [
        ChargeRequest(account="alice", key=f"{n}", digest=f"{n:064x}", cost=cheap, reserve=cheap, answer=0)
        for n in range(50)
    ]
    ledger.charge_each(requests)
    read, entries = [], type(ledger).entries
    monkeypatch.setattr(
        type(ledger), "entries", lambda self, **which: (read.append(which), entries(self, **which))[1]
    )
    assert counted(ledger).costs == {repr(cheap): [0.0, 50]}
    assert len(read) == 1


def test_no_more_entries_are_fetched_than_are_wanted(ledger, monkeypatch):
    ask(ledger, *[("alice", n, 0) for n in range(30)])
    fetched, rows = [], type(ledger._store).rows

    def counted_rows(self, after, limit=None):
        batch = list(rows(self, after, limit))
        fetched.append(len(batch))
        return iter(batch)

    monkeypatch.setattr(type(ledger._store), "rows", counted_rows)
    assert [entry.seq for entry in ledger.entries(after=4, limit=1)] == [5]
    assert [entry.seq for entry in ledger.briefly(after=4, limit=3)] == [5, 6, 7]
    assert fetched == [1, 3]


def test_the_latest_answers_come_newest_first_and_are_few(ledger):
    ask(ledger, *[("alice", n // 2, n % 2) for n in range(50)])
    latest = counted(ledger).latest()
    assert [answer.seq for answer in latest] == list(range(52, 42, -1))
    assert [answer.repeated for answer in latest[:4]] == [True, False, True, False]
    assert latest[0].epsilon == pytest.approx(NOISE.curve().epsilon(1e-6))
    assert latest[0].epsilon_after >= latest[-1].epsilon_after > latest[0].epsilon


def test_what_binds_a_key_to_a_batch_is_no_answer(ledger):
    free = Reserved(each=NOISE, uses=0)
    marker = ChargeRequest(account="alice", key="batch", digest="0" * 64, cost=free, reserve=free, answer=3)
    ledger.charge_each([marker], unit="row")
    counts = counted(ledger)
    assert (counts.seq, counts.answers, counts.latest(), counts.costs) == (3, {}, (), {})


def test_each_look_reads_what_is_new(ledger):
    counts = RunningCounts()
    for look in range(3):
        ask(ledger, ("alice", look, 0), ("alice", look, 0), start=10 * look)
        counts.catch_up(ledger)
        counts.catch_up(ledger)
    assert counts.answers["alice"] == 6
    assert counts.repeats["alice"] == 3


def test_a_look_ends_in_time_and_the_next_one_goes_on(ledger, monkeypatch):
    monkeypatch.setattr(_counts, "_PAGE", 5)
    ask(ledger, *[("alice", n, 0) for n in range(20)])
    clock = iter(range(100))  # each glance at the clock takes a second
    monkeypatch.setattr(_counts, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    counts = RunningCounts()
    seqs = []
    for _ in range(4):
        counts.catch_up(ledger, seconds=3.0)
        seqs.append(counts.seq)
    assert seqs == [10, 20, 22, 22]
    assert counts.answers == {"alice": 20}


def test_the_history_is_thinned_but_begins_and_ends_where_the_ledger_does(ledger, monkeypatch):
    monkeypatch.setattr(_counts, "_POINTS", 2)
    counts, rising = RunningCounts(), {1: 0.0, 2: 0.0}
    for n in range(60):
        ask(ledger, ("alice", n, 0), start=n)
        (entry,) = ledger.entries(after=n + 2)
        rising[entry.seq] = entry.epsilon_after
        counts.catch_up(ledger)
        assert len(counts.history) <= 4
        assert counts.history[0][:2] == (1, 0.0)
        assert counts.history[-1][1] == entry.epsilon_after
    assert all(rising[seq] == epsilon for seq, epsilon, _ in counts.history)


def test_a_flood_of_repeated_questions_is_forgotten_but_for_the_most_frequent(ledger, monkeypatch):
    monkeypatch.setattr(_counts, "_KEPT", 10)
    ask(ledger, *[("alice", 1_000, ABSTAIN)] * 30, *[("bob", n // 2, 0) for n in range(200)])
    counts = counted(ledger)
    assert len(counts._again) <= 20
    assert counts.repeated()[0].times == 30
    assert counts.repeated()[0].abstained
    assert counts.repeats == {"alice": 29, "bob": 100}


def copied(checkpoint, counts, ledger):
    """The counts after a restart."""
    checkpoint.write(counts, ledger)
    return Checkpoint(checkpoint._path, checkpoint._secret).read(ledger)


def test_a_restart_goes_on_from_the_checkpoint_as_if_nothing_had_been(ledger, tmp_path):
    ask(ledger, *[("alice", n % 7, n % 3 - 1) for n in range(40)], ("bob", 3, 0))
    before = counted(ledger)
    after = copied(Checkpoint(tmp_path / "counts", b"s" * 32), before, ledger)
    ask(ledger, ("bob", 99, 0), ("alice", 3, 0), start=100)
    for counts in (before, after):
        counts.catch_up(ledger)
    assert [tuple(point) for point in after.plain()["history"]] == before.plain()["history"]
    for name in ("seq", "answers", "abstained", "repeats", "costs"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.repeated() == before.repeated()
    assert after.latest() == before.latest()
    assert after.latest_of("bob") == before.latest_of("bob")
    assert after.in_a_day(2_000_000_000) == before.in_a_day(2_000_000_000)


@pytest.mark.parametrize("wrong", ["secret", "text", "ledger", "nothing", "garbage"])
def test_a_checkpoint_that_does_not_fit_is_not_used(ledger, tmp_path, wrong):
    ask(ledger, ("alice", 1, 0), ("bob", 1, 0))
    path = tmp_path / "counts"
    Checkpoint(path, b"s" * 32).write(counted(ledger), ledger)
    if wrong == "text":
        path.write_text(path.read_text().replace('"alice": 1', '"alice": 7', 1))
    if wrong == "nothing":
        path.unlink()
    if wrong == "garbage":
        path.write_bytes(b"0\n" + b"[" * 100_000)
    secret = b"t" * 32 if wrong == "secret" else b"s" * 32
    with Ledger(":memory:", budget=Budget(epsilon=50.0, delta=1e-6)) as second:
        second.grant("alice", budget_epsilon=1.0)
        second.grant("bob", budget_epsilon=1.0)
        ask(second, ("alice", 5, 0), ("bob", 6, 0))
        counts = Checkpoint(path, secret).read(second if wrong == "ledger" else ledger)
    assert (counts.seq, counts.answers) == (0, {})
    right = Checkpoint(path, b"s" * 32).read(ledger)
    assert bool(right.seq) is (wrong in ("secret", "ledger"))


def test_a_service_that_ends_leaves_its_counts_to_the_next(tmp_path, saved):
    with serving(deploy(tmp_path, saved)) as first:
        first.label(key="one")
    again = deploy(tmp_path, saved)
    try:
        assert again.there.counts.seq >= 4
        assert again.there.counts.answers == {"alice": 1}
    finally:
        again.there.ledger.close()


def test_the_service_tells_its_size_noise_and_clients(service):
    service.label(key="one")
    view = overview(service.there)
    assert (view.n_teachers, view.n_classes, view.ballot) == (40, 3, GNMax(sigma=30.0))
    clients = [(client.name, client.answers, client.valid_keys) for client in view.clients]
    assert clients == [("alice", 1, 1), ("bob", 0, 1)]
    assert view.relation == service.there.saved.adjacency.relation == "replace-one"
    assert view.ledger.counted == view.ledger.entries == service.there.ledger.count()
    assert view.spent + view.left == pytest.approx(view.epsilon)
