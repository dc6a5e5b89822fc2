"""What a deployed service says of budgets and receipts, and how it makes its secrets: without a service."""

import asyncio
import hmac
import json
import logging
import os
import re
import stat
from types import SimpleNamespace

import pytest

from ostraka import GNMax
from ostraka.core.ledger.budget import KeyConflict, LedgerMoved, LedgerUnavailable
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.ledger import LedgerError
from ostraka.serve import deployment as _deployment
from ostraka.serve.deployment import (
    Deployment,
    Grants,
    Settings,
    recognise,
    remember,
    secret_of,
    witnesses_at,
)
from ostraka.serve.keys import ITSELF, Holder, KeyRecord
from ostraka.serve.requests import Refused

ANN, BEN, OLGA = Holder("ann", "client"), Holder("ben", "client"), Holder("olga", "owner")


class Left:
    """Counts of answers left, as they are known."""

    def __init__(self, counts, seconds):
        self.counts, self.seconds, self.said = counts, seconds, []

    def given(self, name, n):
        self.said.append((name, n))
        return [who for who, n in self.counts.items() if n is None]

    def known(self, name=""):
        return self.counts.get(name)

    def of(self, name=""):
        return self.counts.get(name) or 0

    def renewed(self, name=""):
        return self.counts.get(name)

    def seconds_to_empty(self, name=""):
        return self.seconds.get(name)

    def work_out(self, name):
        self.counts[name] = 5 if name else 4

    def rate(self, name):
        return 0.25


def entry(**changes):
    usual = {"seq": 3, "head": "ab", "account": "ann", "key": "k", "digest": "cd", "mechanism": "M"}
    return SimpleNamespace(**{**usual, "answer": 1, "kind": "charge", **changes})


@pytest.fixture
def instance():
    """A deployment of stand-ins, as far as it answers questions about itself."""
    instance = object.__new__(Deployment)
    accounts = [
        SimpleNamespace(name=name, cap=cap, spent=spent, left=cap - spent)
        for name, cap, spent in (("".join(ITSELF), 9.0, 0.0), ("ann", 4.0, 1.5), ("ben", 2.0, 0.5))
    ]
    instance.ledger = SimpleNamespace(
        budget=SimpleNamespace(epsilon=8.0, delta=1e-6),
        epsilon=lambda: 3.0,
        left=lambda: 5.0,
        accounts=lambda: accounts,
        entries=lambda *, after, limit: [entry(seq=after + 1)],
    )
    instance.counts = SimpleNamespace(catch_up=lambda ledger: None)
    instance.unit, instance._left, instance._working_out = "row", {"ann": 2.5}, {}
    instance.answers_left = Left({"": 12, "ann": 7, "ben": 9}, {"": 60.0, "ann": 30.5})
    instance.batcher = SimpleNamespace(waiting=2)
    instance.readiness = SimpleNamespace(problems=list)
    instance.keys = SimpleNamespace(readable=True, kept={})
    return instance


def test_a_client_sees_its_own_budget_and_an_owner_all_of_them(instance):
    ann = {"epsilon": 4.0, "spent": 1.5, "left": 2.5, "answers_left": 7, "seconds_to_empty": 30.5}
    ben = {"epsilon": 2.0, "spent": 0.5, "left": 1.5, "answers_left": 9, "seconds_to_empty": None}
    whole = {"delta": 1e-6, "unit": "row"}
    assert instance.budget(ANN) == {"client": "ann", **ann, **whole}
    assert instance.budget(BEN) == {"client": "ben", **ben, **whole}
    nothing = dict.fromkeys(("epsilon", "spent", "left", "answers_left", "seconds_to_empty"), 0)
    assert instance.budget(Holder("eve", "client")) == {"client": "eve", **nothing, **whole}
    mine = instance.budget(OLGA)
    clients = [{"client": "ann", **ann}, {"client": "ben", **ben}]
    numbers = {"epsilon": 8.0, "spent": 3.0, "left": 5.0, "answers_left": 12, "seconds_to_empty": 60.0}
    assert mine == {**numbers, **whole, "clients": clients}


def test_a_receipt_is_of_an_answer_and_for_its_client_or_an_owner(instance):
    receipt = {"seq": 17, "head": "ab", "client": "ann", "key": "k", "digest": "cd", "mechanism": "M"}
    assert instance.receipt(ANN, "17") == instance.receipt(OLGA, "17") == receipt
    assert instance.receipt(BEN, "17") is instance.receipt(OLGA, "0") is None
    instance.ledger.entries = lambda *, after, limit: [entry(seq=after + 1, answer=None)]
    assert instance.receipt(ANN, "17") is instance.receipt(OLGA, "17") is None


def test_gauges_tell_the_budget_and_whether_it_can_be_charged(instance):
    values = {name: value for name, _, value in instance.gauges()}
    assert values == {
        "ostraka_epsilon_budget": 8.0,
        "ostraka_epsilon_spent": 3.0,
        "ostraka_delta": 1e-6,
        "ostraka_rows_waiting": 2,
        "ostraka_answers_left": 12,
        "ostraka_answers_per_second": 0.25,
        "ostraka_ready": 1.0,
        "ostraka_keys_readable": 1.0,
    }
    instance.readiness.problems, instance.keys.readable, instance.answers_left.counts[""] = (
        lambda: ["one"],
        False,
        None,
    )
    values = {name: value for name, _, value in instance.gauges()}
    assert [values[f"ostraka_{name}"] for name in ("ready", "keys_readable", "answers_left")] == [0, 0, 0]


def headers(instance, name, *lefts):
    receipts = [SimpleNamespace(left=left) for left in lefts]
    return dict(asyncio.run(instance.left_after(name, receipts)))


def test_what_is_left_after_an_answer_is_the_smaller_count_and_lasts_at_the_clients_own_rate(instance):
    fields = {b"ostraka-left": b"1.250000", b"ostraka-answers-left": b"7", b"ostraka-seconds-to-empty": b"30"}
    assert headers(instance, "ann", 2.0, 1.25) == fields
    assert instance.answers_left.said == [("ann", 2)]
    assert (instance.left("ann"), instance.left("eve")) == (
        (b"ostraka-left", b"1.250000"),
        (b"ostraka-left", b"0.000000"),
    )
    instance.answers_left.counts[""] = 3
    fields = {
        b"ostraka-left": b"0.500000",
        b"ostraka-answers-left": b"3",
        b"ostraka-seconds-to-empty": b"259200",
    }
    assert headers(instance, "ben", 0.5) == fields  # three days: it asked one today


def test_a_count_that_is_not_known_is_waited_for_half_a_second_and_worked_out_once(instance, monkeypatch):
    waits, wait = [], asyncio.wait

    async def noted(tasks, **how):
        waits.append(how["timeout"])
        return await wait(tasks)

    monkeypatch.setattr(asyncio, "wait", noted)
    instance.answers_left.counts = {"": None, "ann": None}
    assert headers(instance, "ann", 1.0)[b"ostraka-answers-left"] == b"4"
    assert (waits, instance._working_out) == ([0.5, 0.5], {})

    def away(name):
        raise LedgerUnavailable("away")

    instance.answers_left.counts, instance.answers_left.work_out = {"": None, "ann": 9}, away
    assert headers(instance, "ann", 1.0)[b"ostraka-answers-left"] == b"0"
    assert instance._working_out == {}


def test_an_answer_is_told_with_its_receipt():
    instance = object.__new__(Deployment)
    instance._said = {
        ABSTAIN: _deployment._said(None),
        0: _deployment._said('a "b"'),
        1: _deployment._said(7),
    }
    for answer, label in ((ABSTAIN, None), (0, 'a "b"'), (1, 7)):
        body_of_answer = json.loads(instance.shown(SimpleNamespace(answer=answer, seq=5, head="5e")))
        assert body_of_answer == {
            "label": label,
            "abstained": label is None,
            "receipt": {"seq": 5, "head": "5e"},
        }


def test_the_end_comes_after_the_last_answers_and_keeps_the_counts(instance):
    done, waiting = [], []

    def note(what, *, fails=None):
        def act(*given):
            done.append((what, *given))
            if fails:
                raise fails

        return act

    async def forever():
        await asyncio.Event().wait()

    async def closed():
        done.append("answered")

    async def end():
        instance._background = [asyncio.create_task(forever()) for _ in range(3)]
        waiting[:] = instance._background
        await asyncio.sleep(0)
        await instance.close()
        await asyncio.wait(waiting)

    instance.batcher.close, instance.ledger.close = closed, note("closed")
    instance._checkpoint = SimpleNamespace(write=note("written"))
    instance.counts.catch_up = note("counted")
    asyncio.run(end())
    assert done == [
        "answered",
        ("counted", instance.ledger),
        ("written", instance.counts, instance.ledger),
        ("closed",),
    ]
    assert all(task.cancelled() for task in waiting)
    done.clear()
    instance.counts.catch_up = note("counted", fails=LedgerUnavailable("away"))
    asyncio.run(end())
    assert done == ["answered", ("counted", instance.ledger), ("closed",)]


# Grants of two owners


class Book:
    """A ledger of notes, approvals and grants."""

    def __init__(self):
        self.kept, self.outcome, self.granted = [], None, []

    def note(self, text, *, by):
        seq = len(self.kept) + 1
        self.kept.append(entry(seq=seq, kind="note", key=f"{seq}: {text} by {by}"))
        return seq

    def entries(self, *, after, limit):
        return self.kept[after : after + limit]

    def charge_each(self, requests, *, unit):
        (self.asked,) = requests
        assert unit == "row"
        return [self.outcome]

    def grant(self, *name, **how):
        self.granted.append((*name, how))
        return 99


@pytest.fixture
def grants():
    record = KeyRecord(role="client", epsilon=None, keys={})
    keys = SimpleNamespace(kept={"ann": record, "olga": KeyRecord(role="owner", epsilon=None, keys={})})
    book = Book()
    return Grants(book, keys, account=ITSELF, unit="row", reserve=GNMax(sigma=9.0)), book


def refusal(act, *arguments):
    with pytest.raises(Refused) as refused:
        act(*arguments)
    body = json.loads(refused.value.reply.body)
    return refused.value.status, body["code"], body["error"]


def test_a_proposal_is_a_positive_cap_of_a_client(grants):
    owners, book = grants
    for written, epsilon in ((b"3", 3.0), (b"1e-300", 1e-300), (b"2.5", 2.5)):
        proposal = owners.propose(OLGA, b'{"client": "ann", "epsilon": %s}' % written)
        assert proposal == {"proposal": len(book.kept), "client": "ann", "epsilon": epsilon, "by": "olga"}
        assert book.kept[-1].key == f"{len(book.kept)}: epsilon {epsilon!r} for ann proposed by olga"
    shape = 'the body must be an object with the members "client", a name, and "epsilon", a positive number'
    numbers = ("0", "-1", "true", '"1"', "null", "1e999")
    for body in (
        *("[]", "{}", '{"client": "ann"}', '{"client": "ann", "epsilon": 1, "more": 1}'),
        '{"client": 1, "epsilon": 1}',
        *(f'{{"client": "ann", "epsilon": {number}}}' for number in numbers),
    ):
        assert refusal(owners.propose, OLGA, body.encode()) == (400, "bad_schema", shape), body
    words = "there is no such client: type 'ostraka keys add' first"
    for name in (b"olga", b"eve"):
        body = b'{"client": "%s", "epsilon": 1}' % name
        assert refusal(owners.propose, OLGA, body) == (404, "not_found", words)
    assert len(book.kept) == 3


def test_an_approval_is_another_owners_and_names_both(grants):
    owners, book = grants
    petra, quinn = Holder("petra", "owner", "p-1"), Holder("quinn", "owner")
    owners.propose(petra, b'{"client": "ann", "epsilon": 3}')
    assert refusal(owners.approve, Holder("petra", "owner"), "1")[:2] == (
        403,
        "same_owner",
    )  # without her token, too
    done = owners.approve(quinn, "01")
    assert done == {"seq": 99, "client": "ann", "epsilon": 3.0, "by": ["petra[p-1]", "quinn"]}
    assert book.granted == [
        ("ann", {"budget_epsilon": 3.0, "by": "petra[p-1] and quinn", "key": "proposal 1"})
    ]
    asked = book.asked
    assert (asked.account, asked.key, asked.answer) == (ITSELF, "proposal 1", 0)
    assert asked.cost == asked.reserve
    assert asked.cost.curve().epsilon(1e-6) == 0
    owners.approve(OLGA, "1")
    assert book.asked.digest != asked.digest  # of whoever approves
    book.outcome = KeyConflict("used")
    assert refusal(owners.approve, OLGA, "1")[:2] == (409, "proposal_ended")
    book.outcome = LedgerError("another")
    with pytest.raises(LedgerError, match="another"):
        owners.approve(OLGA, "1")
    assert len(book.granted) == 2


def test_what_is_no_proposal_is_not_approved(grants):
    owners, book = grants
    text = "epsilon 3.0 for ann proposed"
    book.note(f"{text} by eve and", by="mallory")
    book.note("epsilon 3.0 for ann and ben proposed", by="olga")
    book.note(f"{text} by", by="olga")
    book.kept.append(entry(seq=4, kind="charge", key=f"4: {text} by petra"))
    book.kept.append(entry(seq=5, kind="note", key=None))
    words = "there is no such proposal"
    for number in ("1", "2", "3", "4", "5", "6", "0", "x"):
        assert refusal(owners.approve, OLGA, number) == (404, "not_found", words), number
    assert book.granted == []


# Secrets and ends


def test_a_secret_of_256_bits_is_made_once_for_its_owner_alone_unless_the_environment_has_it(tmp_path):
    key_of_answers = secret_of("answers", tmp_path, {})
    assert (len(key_of_answers), key_of_answers == secret_of("answers", tmp_path, {})) == (32, True)
    assert stat.S_IMODE((tmp_path / "answers.secret").stat().st_mode) == 0o600
    assert secret_of("ledger", tmp_path, {"OSTRAKA_LEDGER_SECRET": "ab" * 32}) == b"\xab" * 32
    assert [path.name for path in tmp_path.iterdir()] == ["answers.secret"]


def test_witnesses_have_a_secret_of_their_own_and_none_is_made_for_nobody(tmp_path, monkeypatch):
    assert witnesses_at((), tmp_path, {}) == []
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(_deployment, "witness_at", lambda address, secret: (address, secret))
    secret = secret_of("witness", tmp_path, {})
    assert witnesses_at(("a", "b"), tmp_path, {}) == [("a", secret), ("b", secret)]
    shared = {"OSTRAKA_WITNESS_SECRET": "cd" * 32}
    assert witnesses_at(("a",), tmp_path, shared) == [("a", b"\xcd" * 32)]


def test_teachers_are_recognised_by_a_sealed_hash(tmp_path):
    folder = tmp_path / "service"
    before = os.umask(0)
    try:
        recognise("ab", folder, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    recognise("cd", folder, {})  # nothing is known yet
    remember("ab", folder, {})
    seal = hmac.digest(secret_of("ledger", folder, {}), b"ostraka/teachers/1\0ab", "sha256")
    assert (folder / "teachers.mac").read_bytes() == seal
    recognise("ab", folder, {})
    with pytest.raises(
        LedgerError, match=r"^the teachers are not those that this service began with: put these"
    ):
        recognise("cd", folder, {})
    with pytest.raises(LedgerError, match="not those"):
        recognise("ab", folder, {"OSTRAKA_LEDGER_SECRET": "ab" * 32})


@pytest.mark.parametrize(
    ("error", "event", "words"),
    [
        (
            LedgerMoved("canary"),
            "ledger.moved",
            "ledger was removed, replaced or rolled back (LedgerMoved): stopping; put the newest copy back",
        ),
        (
            LedgerError("canary"),
            "charge.unknown",
            "outcome of a charge is unknown (LedgerError): stopping; start the service",
        ),
    ],
)
def test_a_process_that_must_stop_says_why_and_ends_with_status_1(monkeypatch, caplog, error, event, words):
    ended = []
    monkeypatch.setattr(logging, "shutdown", lambda: ended.append("logs"))
    monkeypatch.setattr(os, "_exit", ended.append)
    _deployment._stop(error)
    assert ended == ["logs", 1]
    (record,) = caplog.records
    assert (record.levelname, record.event) == ("CRITICAL", event)
    assert re.fullmatch(f"the {re.escape(words)} (again|first)", record.getMessage())


def test_changes_of_the_file_of_keys_are_looked_for_each_second_and_applied_as_soon_as_the_ledger_can(
    instance, caplog, monkeypatch
):
    slept, done, stopped = [], [], []
    changes = iter([False, True, False, False, OSError("canary"), ValueError("canary"), True, False])
    failures = iter([LedgerUnavailable("locked"), None, LedgerError("canary")])

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 9:
            raise asyncio.CancelledError

    def refresh():
        change = next(changes)
        if isinstance(change, Exception):
            raise change
        return change

    def grant():
        done.append(len(slept))
        if error := next(failures):
            raise error

    monkeypatch.setattr(asyncio, "sleep", sleep)
    instance.keys.refresh, instance._grant, instance._stop = refresh, grant, stopped.append
    instance._note_keys = lambda: done.append("noted")
    failures = iter([LedgerUnavailable("locked"), None, LedgerError("canary"), None])
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(instance._look())
    assert slept == [1.0] * 9
    assert done == [2, 3, "noted", 7, 8, "noted"]
    assert instance._left == {ITSELF: 9.0, "ann": 2.5, "ben": 1.5}
    assert [str(error) for error in stopped] == ["canary"]
    unreadable = "the file of keys cannot be read ({}): no key is valid until it can"
    assert [(record.levelname, record.event, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "ledger.unavailable", "grants wait until the ledger can be used again: locked"),
        ("ERROR", "keys.unreadable", unreadable.format("OSError")),
        ("ERROR", "keys.unreadable", unreadable.format("ValueError")),
    ]


def test_caps_are_granted_and_notes_say_what_changed_and_who_did_it(instance, caplog):
    granted, notes = [], ["1: key 0a of ann added by olga", "2: key 0b of ann added by olga", "x", None]
    notes += [
        "3: key 0c of eve added by olga",
        "4: subject s-1 of olga added by nobody named",
        "5: key 0d of ben added by x",
    ]
    notes += ["6: key 0d of ben revoked by x", "7: key 0e of ann revoked by of ben added by x"]
    instance.settings = Settings()
    instance.keys.grants = lambda ledger: [("ann", 2.0, "olga"), ("ben", 3.0, "")]
    instance.keys.kept = {
        "ann": KeyRecord(role="client", epsilon=2.0, keys={}, by="petra"),
        "olga": KeyRecord(role="owner", epsilon=None, keys={}, subject="s-2"),
    }
    instance.keys.kept["ann"].keys.update({"0b": "", "0d": ""})
    instance.ledger.grant = lambda *name, **how: granted.append((*name, how))
    instance.ledger.notes = lambda: [SimpleNamespace(key=note) for note in notes]
    instance.ledger.note = lambda text, *, by: granted.append((text, by))
    instance._grant()
    assert granted == [
        ("ann", {"budget_epsilon": 2.0, "by": "olga"}),
        ("ben", {"budget_epsilon": 3.0, "by": ""}),
    ]
    granted.clear()
    instance._note_keys()
    assert granted == [
        ("key 0d of ann added", "petra"),
        ("subject s-2 of olga added", "nobody named"),
        ("key 0a of ann revoked", "petra"),
        ("key 0c of eve revoked", "nobody named"),
        ("subject s-1 of olga revoked", "nobody named"),
    ]
    granted.clear()
    instance.settings = Settings(two_owners=True)
    instance._grant()
    assert granted == []
    words = (
        "the cap of {} in the file of keys does not count: with --two-owners, one owner sends POST /v1/grants"
    )
    assert [
        (record.event, record.getMessage().partition(" and another")[0]) for record in caplog.records
    ] == [("grant.refused", words.format(name)) for name in ("ann", "ben")]
