"""A round with keepers: exact sums of distinct survivors, one set of them, and nothing before that."""

import pickle

import numpy as np
import pytest
from scipy.stats import chi2

from ostraka import Budget, Ledger, release
from ostraka.collect import Client, Histogram, Keeper, Tally, Task, Tree, results
from ostraka.collect import messages as _reports
from ostraka.collect.plan import fanout_for, simulated
from ostraka.core.mechanisms.skellam import skellam
from ostraka.secure.agreement import canonical
from ostraka.secure.keys import Identity, exchange_key, new_secret
from ostraka.secure.log import LogError
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import PartyServer
from tests.false_alarm import FALSE_ALARM, looks_uniform


@pytest.mark.statistical
@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize(("honest", "n_keepers"), [(1, 2), (2, 3)])
def test_keepers_add_noise_of_the_stated_variance_whoever_vanishes(keeper_round, honest, n_keepers):
    exchange = keeper_round(
        Histogram(0, 1, cells=4000), n_keepers=n_keepers, noise="keepers", sigma=6.0, honest=honest
    )
    values = np.linspace(0, 1, 9)
    exchange.send(*values)
    noise = exchange.tally.close().open() - exchange.plain(values)
    scaled = (noise.astype(float) ** 2).sum() / exchange.task.variance(n_survivors=9)
    low, high = chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], 4000)
    assert low * 0.98 < scaled < high * 1.02  # Skellam's fourth moment widens the law of chi-squared a little
    assert not low * 0.98 < scaled * 1.5 < high * 1.02
    assert exchange.task.variance(n_survivors=9) == n_keepers * 36.0 / honest


def test_the_sum_is_released_once_and_only_by_the_mechanism_of_the_task(keeper_round):
    exchange = keeper_round(noise="keepers", sigma=9.0)
    exchange.send(*range(10))
    sums = exchange.tally.close()
    assert sums.adjacency.unit == "client"
    with Ledger(":memory:", budget=Budget(epsilon=3.0, delta=1e-6)) as ledger:
        assert release(exchange.task.mechanism, sums, ledger=ledger).shape == (exchange.task.encoding.cells,)
        with pytest.raises(ValueError, match="hides"):
            release(keeper_round(noise="keepers", sigma=8.0).task.mechanism, sums, ledger=ledger)
        with pytest.raises(ValueError, match="hides"):
            release(keeper_round(noise="tally", sigma=9.0).task.mechanism, sums, ledger=ledger)
        assert len(ledger.entries()) == 1


def test_too_few_clients_are_refused_by_everybody_before_any_mask(keeper_round, monkeypatch):
    exchange = keeper_round(least=4)
    exchange.send(1, 2, 3)
    with pytest.raises(PartyError, match="needs 4 clients"):
        exchange.tally.close()
    for maker in ("ostraka.collect.keeper.masks_for", "ostraka.collect.keeper.pair_mask"):
        monkeypatch.setattr(maker, lambda *_, **__: pytest.fail("a mask was computed"))
    with pytest.raises(PartyError, match="needs 4"):
        exchange.ask(exchange.closing())


def test_a_late_report_is_refused_and_a_repeated_one_is_acknowledged_again(keeper_round):
    exchange = keeper_round()
    messages = exchange.send(1, 2, 3)
    late = Client(exchange.task).report(4)
    first = exchange.tally.close().open()
    with pytest.raises(PartyError, match="closed") as caught:
        exchange.tally.receive(late)
    assert caught.value.parties == (_reports.Report.read(late, exchange.task, 0).key.hex(),)
    assert len(exchange.tally.receive(messages[0])) == 16
    np.testing.assert_array_equal(exchange.tally.close().open(), first)


class Late:
    """A lock before which one more report is taken, the first time."""

    def __init__(self, tally, message):
        self.lock, self.before = tally._lock, iter([lambda: tally._state.receive(message)])

    def __enter__(self):
        next(self.before, lambda: None)()
        return self.lock.__enter__()

    def __exit__(self, *error):
        return self.lock.__exit__(*error)


def test_a_report_that_arrives_while_its_round_is_closed_is_summed(keeper_round):
    exchange = keeper_round()
    exchange.send(1, 2, 3)
    exchange.tally._lock = Late(exchange.tally, Client(exchange.task).report(4))
    np.testing.assert_array_equal(exchange.tally.close().open(), exchange.plain([1, 2, 3, 4]))
    assert (exchange.tally.n_clients, exchange.tally.n_refused) == (4, 0)


def test_no_keeper_answers_for_a_second_set_of_survivors_not_after_a_restart_either(keeper_round, tmp_path):
    exchange = keeper_round(folder=tmp_path)
    exchange.send(1, 2, 3, 4)
    exchange.tally.close()
    keys = sorted(exchange.tally._state.reports)
    for _ in range(2):
        for fewer in (keys[1:], keys[:-1]):
            with pytest.raises(PartyError, match="another request"):
                exchange.ask(exchange.closing(fewer))
        exchange.restart()


def test_a_restarted_round_goes_on_where_it_was_and_noise_is_not_drawn_twice(keeper_round, tmp_path):
    exchange = keeper_round(folder=tmp_path, noise="keepers", sigma=5.0)
    exchange.send(1, 2, 3)
    exchange.restart()
    exchange.send(7)
    assert exchange.tally.n_clients == 4
    first = exchange.tally.close().open()
    exchange.restart()
    with pytest.raises(PartyError, match="closed"):
        exchange.send(9)
    np.testing.assert_array_equal(exchange.tally.close().open(), first)


def test_a_keeper_that_died_before_its_answer_was_kept_draws_again_for_the_same_request_only(
    keeper_round, tmp_path, monkeypatch
):
    exchange = keeper_round(folder=tmp_path)
    exchange.send(1, 2, 3, 4)
    fewer = exchange.closing(sorted(exchange.tally._state.reports)[1:])
    monkeypatch.setattr(Keeper, "_sum", lambda *_: (_ for _ in ()).throw(RuntimeError))
    with pytest.raises(RuntimeError):
        exchange.tally.close()
    monkeypatch.undo()
    exchange.restart()
    with pytest.raises(PartyError, match="another request"):
        exchange.ask(fewer)
    first = exchange.tally.close().open()
    np.testing.assert_array_equal(first, exchange.plain([1, 2, 3, 4]))
    exchange.restart()
    np.testing.assert_array_equal(exchange.tally.close().open(), first)


def test_a_missing_keeper_fails_the_round_and_is_named_and_the_round_can_go_on(keeper_round, monkeypatch):
    exchange = keeper_round(n_keepers=3)
    exchange.send(1, 2, 3)
    key = exchange.task.keepers[1]

    def silent(*_request, **_options):
        raise PartyError("no answer", code="unreachable")

    monkeypatch.setattr(exchange.tally._keepers[key], "ask", silent)
    with pytest.raises(PartyError, match="no answer") as caught:
        exchange.tally.close()
    assert caught.value.parties == (key[:16],)
    monkeypatch.undo()
    np.testing.assert_array_equal(exchange.tally.close().open(), exchange.plain([1, 2, 3]))


def flipped(message: bytes, place: int) -> bytes:
    return message[:place] + bytes([message[place] ^ 1]) + message[place + 1 :]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: m[:-1], "bytes"),
        (lambda m: m + b"\0", "bytes"),
        (lambda m: b"", "bytes"),
        (lambda m: flipped(m, 3), "another task"),
        (lambda m: m[:16] + bytes(32) + m[48:], "low order"),
        (lambda m: m[:16] + b"\1" + bytes(31) + m[48:], "low order"),
        (lambda m: m[:47] + bytes([m[47] | 0x80]) + m[48:], "malformed"),
        (lambda m: m[:16] + b"\xee" + b"\xff" * 30 + b"\x7f" + m[48:], "malformed"),
    ],
)
def test_other_messages_are_refused_and_nothing_is_counted(keeper_round, change, why):
    exchange = keeper_round()
    exchange.send(1, 2)
    with pytest.raises(PartyError, match=why):
        exchange.tally.receive(change(Client(exchange.task).report(5)))
    assert exchange.tally.n_clients == 2
    exchange.send(3)
    np.testing.assert_array_equal(exchange.tally.close().open(), exchange.plain([1, 2, 3]))


def test_reports_of_another_round_or_task_are_refused(keeper_round):
    exchange, second_collection = keeper_round(rounds=2), keeper_round()
    for message in (Client(exchange.task, round=1).report(3), Client(second_collection.task).report(3)):
        with pytest.raises(PartyError, match=r"bytes|another"):
            exchange.tally.receive(message)
    for wrong in (2, -1, True, 0.0):
        with pytest.raises(ValueError, match="round must be"):
            Client(exchange.task, round=wrong)
    full = keeper_round(most=3)
    with pytest.raises(PartyError, match="full"):
        full.send(1, 2, 3, 4)


def test_every_round_has_masks_of_its_own(keeper_round):
    exchange = keeper_round(rounds=2)
    secret, peer = new_secret(), exchange.task.keepers[0]
    streams = [
        _reports.masks_for(
            exchange.task, secret, peer, exchange_key(secret), peer[64:], transcript=transcript
        )
        for transcript in (exchange.task.transcript("report", round=number) for number in range(2))
    ]
    assert (streams[0] != streams[1]).any()
    second = Tally(exchange.task, exchange.me, keepers=exchange.keepers, round=1)
    for value in (4, 5, 6):
        second.receive(Client(exchange.task, round=1).report(value))
    exchange.send(1, 2, 3)
    np.testing.assert_array_equal(second.close().open(), exchange.plain([4, 5, 6]))
    np.testing.assert_array_equal(exchange.tally.close().open(), exchange.plain([1, 2, 3]))


def test_a_client_reports_once_a_round_not_after_a_restart_either(keeper_round, tmp_path):
    exchange = keeper_round(rounds=2)
    client = Client(exchange.task, folder=tmp_path)
    with pytest.raises(ValueError, match="NaN"):
        client.report(float("nan"))  # which uses nothing up
    client.report(3)
    for again in (client, Client(exchange.task, folder=tmp_path)):
        with pytest.raises(PartyError, match="answered this round"):
            again.report(4)
    assert Client(exchange.task, folder=tmp_path, round=1).report(5)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda keys: keys[::-1], "in order"),
        (lambda keys: [keys[0], *keys[:-1]], "in order"),
        (lambda keys: [bytes(32), *keys[1:]], "malformed"),
        (lambda keys: sorted([*keys[1:], b"\xff" * 32]), "malformed"),
    ],
)
def test_keepers_refuse_clients_that_are_repeated_or_malformed(keeper_round, change, why):
    exchange = keeper_round()
    exchange.send(1, 2, 3, 4)
    with pytest.raises(PartyError, match=why):
        exchange.ask(exchange.closing(change(sorted(exchange.tally._state.reports))))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: body[:-1], "keys of 3 clients"),
        (lambda body: body + bytes(32), "keys of 3 clients"),
        (lambda body: body.replace(b'"n":3', b'"n":2'), "needs 3"),
        (lambda body: body.replace(b'"n":3', b'"n":true'), "needs 3"),
        (lambda body: body.replace(b'"round":0', b'"round":1'), "round must be"),
        (lambda body: body.replace(b'"round"', b'"raund"'), "JSON object"),
        (lambda body: body.replace(b'"task":"', b'"task":"0'), "another task"),
        (lambda body: b"\xff" + body, "JSON object"),
    ],
)
def test_keepers_refuse_other_requests(keeper_round, change, why):
    exchange = keeper_round()
    exchange.send(1, 2, 3)
    with pytest.raises(PartyError, match=why):
        exchange.ask(change(exchange.closing()))
    with pytest.raises(PartyError, match="signature"):
        exchange.ask(exchange.closing(), signer=Identity.fresh())


@pytest.mark.parametrize("key", ["zz" * 32, "00" * 32, "AB" * 32, "ff" * 32])
def test_a_request_under_a_key_that_has_no_answer_uses_up_no_round(keeper_round, key):
    exchange = keeper_round()
    exchange.send(1, 2, 3)
    with pytest.raises(PartyError, match="key of the request"):
        exchange.ask(exchange.closing(key=key))
    exchange.send(4)
    np.testing.assert_array_equal(exchange.tally.close().open(), exchange.plain([1, 2, 3, 4]))


def test_a_keeper_takes_a_request_about_as_many_clients_as_a_round_may_have(keeper_round):
    exchange = keeper_round(most=50)
    longest = len(exchange.me.seal("close", exchange.closing([new_secret()] * 50)))
    assert longest <= exchange.keepers[0].most_bytes <= longest + 512


def test_a_changed_answer_of_a_keeper_is_noticed(keeper_round):
    exchange = keeper_round()
    exchange.send(1, 2, 3)
    key = exchange.task.keepers[0]
    keeper, ask = exchange.tally._keepers[key], exchange.tally._keepers[key].ask
    for place in (0, 70, 190):
        keeper.ask = lambda *request, place=place, **options: flipped(ask(*request, **options), place)
        with pytest.raises(PartyError, match="signature") as caught:
            exchange.tally.close()
        assert caught.value.parties == (key[:16],)


def test_masks_left_over_are_no_sum(keeper_round):
    exchange = keeper_round()
    exchange.send(1, 2, 3)
    exchange.tally._state.total += np.uint32(2**31 - 5)
    with pytest.raises(PartyError, match="not one of valid reports"):
        exchange.tally.close()


def test_an_enrolment_signs_who_takes_part(keeper_round):
    office = Identity.fresh()
    exchange = keeper_round(enrolment=office.public_key)
    clients = [Client(exchange.task) for _ in range(3)]
    for value, client in enumerate(clients):
        client.certificate = _reports.certificate(exchange.task, office, client.key, round_=0)
        exchange.tally.receive(client.report(value))
    np.testing.assert_array_equal(exchange.tally.close().open(), exchange.plain([0, 1, 2]))
    stranger = Client(exchange.task, certificate=bytes(64))
    with pytest.raises(PartyError, match="enrolment did not sign"):
        exchange.tally.receive(stranger.report(3))
    invented = sorted([*sorted(exchange.tally._state.reports)[:2], bytes.fromhex(stranger.key)])
    signatures = b"".join(exchange.tally._state.reports.get(key, (b"", bytes(64)))[1] for key in invented)
    with pytest.raises(PartyError, match="not enrolled"):
        exchange.ask(
            exchange.closing(invented, signatures=signatures),
            keeper=Keeper(exchange.task, exchange.identities[0]),
        )


@pytest.mark.statistical
def test_a_report_alone_and_with_all_keepers_but_one_is_uniform(keeper_round):
    exchange = keeper_round(Histogram(0, 1, cells=20_000))
    client = Client(exchange.task)
    residue = _reports.Report.read(client.report(0.5), exchange.task, 0).vector
    assert looks_uniform(residue)
    transcript = exchange.task.transcript("report", round=0)
    for keeper, last in zip(exchange.keepers, (False, True), strict=True):
        residue = residue - _reports.masks_for(
            exchange.task, keeper._secret, keeper._own, client.key, client.key, transcript=transcript
        )
        assert looks_uniform(residue) is not last


def test_nothing_of_it_travels_or_prints_a_secret(keeper_round):
    exchange = keeper_round()
    for holder in (Client(exchange.task), exchange.keepers[0], exchange.tally):
        with pytest.raises(TypeError, match="does not travel"):
            pickle.dumps(holder)
        assert "secret" not in repr(holder)


def test_a_full_disk_loses_nothing_and_the_round_goes_on(keeper_round, tmp_path):
    exchange = keeper_round(folder=tmp_path)
    exchange.send(1, 2, 3)
    exchange.tally._log._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(LogError, match="disk is full, and nothing was kept"):
        exchange.send(*range(20))
    exchange.tally._log._db.execute("PRAGMA max_page_count = 1000000")
    before = exchange.tally.n_clients
    exchange.send(5)
    exchange.restart()
    assert exchange.tally.n_clients == before + 1
    exchange.send(6)
    assert exchange.tally.close().open()[:4].sum() == before + 2


def test_two_tallies_in_one_folder_and_a_changed_report_are_refused(keeper_round, tmp_path):
    exchange = keeper_round(folder=tmp_path)
    messages = exchange.send(1, 2, 3, 4)
    with pytest.raises(LogError, match="is open elsewhere"):
        Tally(exchange.task, exchange.me, keepers=exchange.keepers, folder=tmp_path / "tally")
    exchange.restart()
    exchange.tally._log.close()
    (path,) = (tmp_path / "tally").glob("*.log")
    content = bytearray(path.read_bytes())
    content[content.index(messages[1])] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogError, match=r"damaged.*entry 2 was changed or is missing"):
        exchange.restart()


@pytest.mark.parametrize("file", ["tally/tally-{}-0.reports", "keeper0/keeper-{}-{}-0.request"])
def test_files_of_earlier_versions_are_refused_with_what_to_do(keeper_round, tmp_path, file):
    exchange = keeper_round()
    old = tmp_path / file.format(exchange.task.sha256[:16], exchange.keepers[0].name)
    old.parent.mkdir()
    old.write_bytes(b"old")
    exchange.folder = tmp_path
    with pytest.raises(LogError, match="written by an earlier ostraka: finish this round with that version"):
        exchange.restart()


def test_the_noise_is_drawn_from_the_operating_system(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda size: b"\x80" * size)
    assert not skellam(4.0, (8,)).any()


def test_roles_are_those_that_the_task_names(keeper_round):
    exchange = keeper_round(rounds=2)
    stranger = Identity.fresh()
    with pytest.raises(ValueError, match="names another tally than this identity"):
        Tally(exchange.task, stranger, keepers=exchange.keepers)
    for keepers in ((), exchange.keepers[:1], [*exchange.keepers, exchange.keepers[0]]):
        with pytest.raises(ValueError, match=f"keepers must be the 2 of the task, got {len(keepers)}"):
            Tally(exchange.task, exchange.me, keepers=keepers)
    with pytest.raises(ValueError, match="does not name this keeper"):
        Keeper(exchange.task, stranger)
    with pytest.raises(ValueError, match="trusts keepers, not clients: use report"):
        Client(exchange.task).join()
    with pytest.raises(ValueError, match="it has one exchange only"):
        exchange.tally.advance()
    exchange.send(1, 2)
    tally = exchange.tally
    assert (tally.stage, tally.progress, tally.n_clients, tally.n_survivors, tally.n_refused) == (
        "report", (2, 1_000_000), 2, 2, 0,
    )  # fmt: skip
    assert tally.most_bytes == len(Client(exchange.task).report(3))
    assert sorted(tally.answers) == ["/v1/notice", "/v1/report"]
    assert [repr(role) for role in (exchange.keepers[0], Client(exchange.task, round=1))] == [
        f"Keeper(name={exchange.task.keepers[0][:16]!r})",
        f"Client(task={exchange.task.sha256[:16]!r}, round=1)",
    ]


def test_a_notice_is_of_the_task_that_was_asked_for(keeper_round):
    exchange = keeper_round()
    exchange.tally.announce(spent=0.25, budget=1.0, result={"value": 3})
    with PartyServer(exchange.tally, pages=exchange.tally.pages) as server:
        assert results(server.url, sha256=exchange.task.sha256) == {
            "task": exchange.task.sha256, "round": 0, "spent": 0.25, "budget": 1.0, "result": {"value": 3},
        }  # fmt: skip
        words = {"task": "0" * 64, "round": 0, "spent": 0.25, "budget": 1.0, "result": None}
        exchange.tally._notice = exchange.me.seal("notice", canonical(words).encode())
        with pytest.raises(ValueError, match="the notice is for another task"):
            results(server.url)


@pytest.mark.parametrize(
    ("high", "fanout"), [(30, 6), (241, 7), (1000, 12), (2**16, 11), (2**16 + 1, 10), (10**6, 10)]
)
def test_the_fanout_for_ranks_is_what_it_was(high, fanout):
    """Regression values, but for wide ranges, which have ten."""
    assert (fanout_for(0, high), fanout_for(-5, high - 5)) == (fanout, fanout)


def test_a_trial_enrols_its_own_people():
    keys = [Keeper.key(Identity.fresh()) for _ in range(2)]
    office = Identity.fresh().public_key
    task = Task(Tree(0, 20), sigma=4.0, tally="ab" * 32, keepers=keys, enrolment=office, noise="tally")
    tally, sums = simulated(task, [3, 4, 4])
    plain = sum(task.encoding.encode(value).astype(int) for value in (3, 4, 4))
    assert (tally.n_clients, sums.open().tolist()) == (3, plain.tolist())
    assert tally.task.enrolment not in {None, office}
