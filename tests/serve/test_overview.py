"""What is counted for the owner's page: from the ledger's entries alone, each read once, in bounded space."""

import asyncio
import hmac
import json
from types import SimpleNamespace

import pytest

from ostraka import Budget, GNMax, Ledger, Threshold
from ostraka.core.ledger.chain import Brief
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.ledger import ChargeRequest, LedgerError
from ostraka.serve import counts as _counts
from ostraka.serve import owner as _owner
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


class Book:
    """A ledger of so many entries that a real one would take long: each from a function of its number."""

    budget = SimpleNamespace(delta=1e-6)

    def __init__(self, n_entries, entry):
        self.n_entries, self.entry, self.pages = n_entries, entry, []

    def briefly(self, *, after, limit):
        self.pages.append((after, limit))
        return [self.entry(seq) for seq in range(after + 1, min(after + limit, self.n_entries) + 1)]

    def entries(self, *, after, limit):
        assert limit == 1
        curve = SimpleNamespace(epsilon=lambda delta: (after + 1) * delta)
        return [SimpleNamespace(seq=after + 1, head=f"{after + 1:x}", curve=curve)][: self.n_entries - after]


def brief(seq, **changes):
    """An entry of alice, whose question was asked before."""
    usual = {"account": "alice", "mechanism": "M", "uses": 0, "answer": 1, "digest": b"%d" % seq}
    return Brief(**{"seq": seq, "epsilon_after": 0.0, "at": 1_000_000, **usual, **changes})


def test_entries_are_read_two_hundred_at_a_time_and_all_of_them_in_a_view_of_a_twentieth_of_a_second(
    monkeypatch,
):
    clock = [0.0]
    monkeypatch.setattr(_counts, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    book = Book(1_000, brief)

    def slow(seq):
        clock[0] += 0.01 / 200
        return brief(seq)

    book.entry = slow
    counts = RunningCounts()
    assert not counts.catch_up(book)
    assert book.pages == [(200 * page, 200) for page in range(5)]
    assert (counts.seq, clock[0]) == (1_000, pytest.approx(0.05))
    assert counts.catch_up(book)
    assert (counts.answers, counts.repeats) == ({"alice": 1_000}, {"alice": 1_000})
    assert counts.costs == {"M": [1e-6, 1_000]}  # the price is that of the first entry of its kind


def test_a_history_has_at_most_eight_hundred_points_and_every_second_one_beyond():
    for n, seqs in ((800, [*range(1, 801)]), (1_000, [*range(1, 1_000, 2), 1_000])):
        book = Book(n, lambda seq: brief(seq, epsilon_after=float(seq), at=seq))
        counts = counted(book)
        assert counts.history == [(seq, float(seq), seq) for seq in seqs]


def test_of_repeated_questions_ten_thousand_are_counted_a_thousand_written_and_twenty_listed():
    def asked(seq):
        name = seq % 20_001
        return brief(seq, digest=b"%05d" % name, answer=ABSTAIN if name % 2 else 0)

    counts = counted(Book(20_000, asked))
    assert len(counts._again) == 20_000
    counts.catch_up(Book(20_200, asked), seconds=PATIENCE)  # some for the second time
    assert len(counts._again) == 10_000
    assert counts._stopped <= counts._again.keys()
    assert [view.times for view in counts.repeated()] == [3] * 20
    again = counts.plain()["again"]
    assert (len(again), again[0][1], again[-1][1]) == (1_000, {"alice": 2}, {"alice": 1})
    assert sum(stopped for *_, stopped in again) == 500


def test_the_latest_answers_are_ten_and_five_of_each_client_after_a_restart_as_well(tmp_path):
    def asked(seq):
        if seq % 3 == 0:  # a batch is bound, and a cap is granted
            return brief(seq, mechanism="Reserved(M)") if seq % 2 else brief(seq, answer=None, digest=None)
        return brief(seq, account="bob" if seq % 5 else "alice", answer=ABSTAIN if seq % 2 else 1, at=None)

    for n in (20, 301):
        book = Book(n, asked)
        counts = counted(book)
        checkpoint = Checkpoint(tmp_path / "counts", b"s" * 32)
        book.pages.clear()
        after = copied(checkpoint, counts, book)
        assert book.pages == [(max(0, n - 200), min(200, n))]
        seqs = [seq for seq in range(n, 0, -1) if seq % 3]
        for present in (counts, after):
            assert [answer.seq for answer in present.latest()] == seqs[:10]
            for client, is_theirs in (("alice", lambda seq: seq % 5 == 0), ("bob", lambda seq: seq % 5)):
                assert [answer.seq for answer in present.latest_of(client)] == [*filter(is_theirs, seqs)][:5]
            assert present.latest_of("eve") == ()
            first = present.latest()[0]
            assert (first.client, first.digest, first.mechanism) == (
                "bob" if n % 5 else "alice",
                (b"%d" % seqs[0]).hex(),
                "M",
            )
            assert (first.repeated, first.abstained, first.at) == (True, seqs[0] % 2 == 1, None)
            assert present.in_a_day(1_000_000) == present.per_second(1_000_000) == 0


def test_rates_are_of_the_budget_or_of_one_client():
    def asked(seq):
        return brief(seq, account="bob" if seq % 4 == 0 else "alice", uses=seq % 2)

    counts = counted(Book(360, asked))
    rates = [
        (counts.in_a_day(1_003_600, who), counts.per_second(1_003_600, who))
        for who in ("", "alice", "bob", "eve")
    ]
    assert rates == [(180, 0.05), (270, 0.075), (90, 0.025), (0, 0.0)]
    assert counts.repeats == {"alice": 90, "bob": 90}


def test_counting_in_the_background_takes_small_steps_and_keeps_every_ten_thousandth_entry(
    tmp_path, monkeypatch
):
    slept, written, book = [], [], Book(9_999, brief)

    class Stepwise(RunningCounts):
        def catch_up(self, ledger, *, seconds):
            assert (ledger, seconds) == (book, 0.005)
            self.seq = min(self.seq + 5_000, book.n_entries)
            if len(slept) == 4:
                raise LedgerError("away")
            return self.seq == book.n_entries

    async def sleep(seconds):
        slept.append(seconds)
        book.n_entries = {2: 10_000, 5: 19_999, 7: 20_000}.get(len(slept), book.n_entries)
        if len(slept) == 9:
            raise asyncio.CancelledError

    class Noting(Checkpoint):
        def write(self, counts, ledger):
            written.append(counts.seq)
            super().write(counts, ledger)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    checkpoint = Noting(tmp_path / "counts", b"s" * 32)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Stepwise().keep_up(book, checkpoint))
    assert written == [10_000, 20_000]
    assert slept == [0.02, 1.0, 1.0, 1.0, 1.0, 0.02, 1.0, 1.0, 1.0]
    assert (tmp_path / "counts").stat().st_mode & 0o777 == 0o600
    slept.clear()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Stepwise().keep_up(book))  # without a place to keep them
    assert written == [10_000, 20_000]


def test_a_checkpoint_is_sealed_and_of_this_version_and_nothing_is_written_of_nothing(tmp_path):
    path, book = tmp_path / "counts", Book(3, brief)
    checkpoint = Checkpoint(path, b"s" * 32)
    checkpoint.write(RunningCounts(), book)
    assert not path.exists()
    checkpoint.write(counted(book), book)
    seal, text = path.read_text().split("\n")
    assert seal == hmac.digest(b"s" * 32, b"ostraka counts\0" + text.encode(), "sha256").hex()
    plain = json.loads(text)
    assert (plain["version"], plain["seq"], plain["head"], checkpoint.seq) == (1, 3, "3", 3)
    assert Checkpoint(path, b"s" * 32).read(book).seq == 3
    for change in ({"version": 2}, {"head": "4"}, {"seq": 4}, {"seq": 2}):
        text = json.dumps(plain | change)
        seal = hmac.digest(b"s" * 32, b"ostraka counts\0" + text.encode(), "sha256").hex()
        path.write_text(f"{seal}\n{text}")
        assert Checkpoint(path, b"s" * 32).read(book).seq == 0, change
    blocked = Checkpoint(tmp_path / "no" / "folder", b"s" * 32)
    blocked.write(counted(book), book)  # as on a full disk
    assert blocked.seq == 0


def test_a_view_works_answers_left_out_for_the_largest_spenders_first_and_for_a_tenth_of_a_second(
    monkeypatch,
):
    order, keys = [], {"b": SimpleNamespace(keys={"1": "", "2": ""})}
    monkeypatch.setattr(_owner.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(_owner, "now", lambda: 7)

    def renewed(name="", *, until=None):
        order.append((name, until))
        return {"a": None, "b": 3, "c": 0, "": None}[name]

    def account(name, spent):
        return SimpleNamespace(name=name, cap=9.0, spent=spent, left=9.0 - spent)

    counts = RunningCounts()
    monkeypatch.setattr(counts, "catch_up", lambda ledger: None)
    counts.seq, counts.answers["b"] = 20, 5
    counts.costs = {"cheap": [0.1, 4.0], "dear": [0.5, 2.0], "fair": [0.3, 1.0]}
    book = SimpleNamespace(
        count=lambda: 12,
        budget=SimpleNamespace(epsilon=9.0, delta=1e-6),
        epsilon=lambda: 4.0,
        left=lambda: 5.0,
        head="ab",
        simulation=False,
    )
    screen = Threshold(at=30.0, sigma=40.0)
    saved = SimpleNamespace(
        mechanism=NOISE,
        screen=screen,
        n_ballots=40,
        classes=[1, 2],
        adjacency=SimpleNamespace(relation="zero-out"),
    )
    metrics = SimpleNamespace(
        refusals={("b", "x"): 2, ("", "y"): 1}, last_refused={("b", "x"): 5, ("", "y"): 6}
    )
    deployment = SimpleNamespace(
        ledger=book,
        saved=saved,
        counts=counts,
        keys=SimpleNamespace(kept=keys),
        unit="row",
        since=3,
        label=None,
        accounts=lambda: (account("a", 1.0), account("b", 3.0), account("c", 2.0)),
        verified=True,
        metrics=metrics,
        answers_left=SimpleNamespace(renewed=renewed, seconds_to_empty=lambda name="": 10.0 + len(name)),
        readiness=SimpleNamespace(problems=lambda: ["one"]),
    )
    view = overview(deployment)
    assert order == [("b", 100.1), ("c", 100.1), ("a", 100.1), ("", None)]
    clients = [(c.name, c.answers_left, c.seconds_to_empty, c.valid_keys, c.answers) for c in view.clients]
    assert clients == [("a", None, None, 0, 0), ("b", 3, 11.0, 2, 5), ("c", 0, 11.0, 0, 0)]
    assert [(cost.mechanism, cost.epsilon, cost.answers) for cost in view.costs] == [
        ("dear", 0.5, 2),
        ("fair", 0.3, 1),
        ("cheap", 0.1, 4),
    ]
    assert [(r.client, r.code, r.times, r.at) for r in view.refusals] == [("", "y", 1, 6), ("b", "x", 2, 5)]
    assert (view.screen, view.answers_left, view.problems, view.at, view.since) == (
        repr(screen),
        0,
        ("one",),
        7,
        3,
    )
    assert (view.ledger.entries, view.ledger.counted) == (20, 20)
    saved.screen = None
    assert (overview(deployment).screen, overview(deployment).ballot) == (None, NOISE)
