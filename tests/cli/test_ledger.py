"""ostraka ledger: everything charged, and a plain word when the file no longer holds together."""

import json
import shutil
from functools import partial

import click
import numpy as np
import pytest

import ostraka.cli.ledger
from ostraka import Adjacency, Budget, GNMax, Ledger, Private, release
from ostraka.core.ledger import readings
from ostraka.ledger import ChargeRequest, LedgerError
from tests.cli.terminal import typed
from tests.core.ledger.conftest import tamper


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ledger.sqlite"
    votes = Private(np.array([[9, 1], [2, 8]]), Adjacency.one_ballot(unit="person"))
    with Ledger(path, budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
        release(GNMax(sigma=40.0), votes, ledger=ledger, key="answers/0")
    return path


ostraka_ledger = partial(typed, "ledger")


def test_show_and_verify_print_every_charge_what_is_left_and_the_head(file):
    code, out, _ = ostraka_ledger("show", file)
    assert code == 0
    for words in ("answers/0", "GNMax(sigma=40.0", "of epsilon 9 at delta 1e-05, for one person"):
        assert words in out
    code, out, err = ostraka_ledger("show", file, "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert record["charges"] == len(record["entries"]) == 1
    assert record["entries"][0]["uses"] == 2
    assert record["epsilon_spent"] == record["entries"][0]["epsilon_after"] > 0
    assert record["epsilon_spent"] + record["epsilon_left"] == pytest.approx(9.0)
    with Ledger(file) as ledger:
        head = ledger.head
    assert head in ostraka_ledger("verify", file)[1]
    verified = json.loads(ostraka_ledger("verify", file, "--json")[1])
    assert (verified["intact"], verified["head"]) == (True, head)


def test_a_witness_is_asked_by_its_address_and_pays_for_what_was_lost(file, tmp_path, monkeypatch, start):
    monkeypatch.setenv("OSTRAKA_WITNESS_SECRET", "ab" * 32)
    url = start("ledger", "witness", tmp_path, "--port", 0).url
    assert url.startswith("http://127.0.0.1:")
    grant, witness = ["grant", str(file), "ann"], ["--witness", url]

    def typed(*words):
        return ostraka.cli.ledger.app.main([*words, *witness], standalone_mode=False)

    typed(*grant, "--epsilon", "1", "--by", "olga")
    shutil.copy(file, tmp_path / "copy")
    typed(*grant, "--epsilon", "2")
    shutil.copy(tmp_path / "copy", file)
    with pytest.raises(LedgerError, match="lacks entry 4"):
        typed(*grant, "--epsilon", "3")
    typed("adopt", str(file), "--by", "olga", "--json")
    typed(*grant, "--epsilon", "2")
    monkeypatch.setenv("OSTRAKA_WITNESS_SECRET", "ab")
    with pytest.raises(click.UsageError, match="OSTRAKA_WITNESS_SECRET"):
        typed(*grant, "--epsilon", "3")
    with Ledger(file) as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["charge", "grant", "note", "charge", "grant"]
        assert ledger.entries()[2].key == "3: grant by olga"
        assert "1 lost" in ledger.entries()[3].key


def test_export_goes_on_after_an_entry(file):
    with Ledger(file) as ledger:
        ledger.note("keys revoke ann", by="olga")
    lines = ostraka_ledger("export", file, "--since", 1)[1].splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["2: keys revoke ann by olga"]
    assert ostraka_ledger("adopt", file, "--by", "o")[0] == 2
    assert ostraka_ledger("adopt", file, "--by", "o", "--witness", "/")[0] == 2  # without the secret


def test_a_restored_copy_is_adopted_with_what_it_lacks(file):
    before = json.loads(ostraka_ledger("show", file, "--json")[1])
    assert ostraka_ledger("adopt", file, "--by", "olga", "--lost", 3)[0] == 2
    noise = ("--sigma", 30, "--screen", 200, 150)
    code, out, _ = ostraka_ledger("adopt", file, "--by", "olga", "--lost", 3, *noise, "--json")
    after = json.loads(ostraka_ledger("show", file, "--json")[1])
    assert code == 0
    assert json.loads(out)["lost"] == after["entries"][-1]["uses"] == 3
    assert after["epsilon_spent"] > before["epsilon_spent"]
    assert "adopted by olga" in after["entries"][-1]["key"]
    assert "0 lost answers charged" in ostraka_ledger("adopt", file, "--by", "o", "--lost", 0)[1]


def test_a_damaged_ledger_is_said_to_be(file):
    tamper(file, "UPDATE entry SET uses = 1")
    for verb in ("show", "verify"):
        code, out, err = ostraka_ledger(verb, file)
        assert (code, out) == (1, "")
        assert "is damaged" in err
        assert "count its whole budget as spent" in err


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("my notes, " * 100)
    assert ostraka_ledger("show", tmp_path / "notes.txt")[0] == 1
    assert (tmp_path / "notes.txt").read_text() == "my notes, " * 100
    code, _, err = ostraka_ledger("show", tmp_path / "nothing")
    assert code == 1
    assert "there is no ledger" in err
    assert not (tmp_path / "nothing").exists()


@pytest.fixture
def clients(tmp_path):
    """A ledger with a secret, an anchor and two clients, one of whom asked."""
    price = GNMax(sigma=40.0)
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 32)
    options = {"secret": b"s" * 32, "anchor": tmp_path / "anchor"}
    with Ledger(tmp_path / "l", budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False), **options) as ledger:
        ledger.grant("ann", budget_epsilon=2.0)
        ledger.grant("bob", budget_epsilon=1.0)
        charge = ChargeRequest(account="ann", key="first", digest="00ff", cost=price, reserve=price, answer=7)
        ledger.charge_each([charge])
    return tmp_path / "l", secret, tmp_path / "anchor"


def test_all_entries_are_verified_though_a_start_with_an_anchor_reads_the_last_ones(clients, monkeypatch):
    file, secret, anchor = clients
    monkeypatch.setattr("ostraka.core.ledger.history.SNAPSHOT_EVERY", 4)
    with Ledger(file, secret=b"s" * 32, anchor=anchor) as ledger:
        for cap in range(3, 9):
            ledger.grant("ann", budget_epsilon=float(cap))
    tamper(file, "UPDATE entry SET answer = 5 WHERE seq = 3")
    Ledger(file, secret=b"s" * 32, anchor=anchor).close()
    code, _, err = ostraka_ledger("verify", file, "--secret", secret, "--anchor", anchor)
    assert (code, "entry 3" in err) == (1, True)


def test_a_ledger_that_is_owned_can_be_read_and_not_granted_from(clients):
    file, secret, anchor = clients
    with Ledger(file, secret=b"s" * 32, anchor=anchor, owner=True):
        assert ostraka_ledger("show", file, "--secret", secret)[0] == 0
        assert ostraka_ledger("export", file, "--secret", secret)[0] == 0
        assert ostraka_ledger("verify", file, "--secret", secret, "--anchor", anchor)[0] == 0
        code, _, err = ostraka_ledger("grant", file, "eve", "--epsilon", 1, "--secret", secret)
        assert (code, "owned by another process" in err) == (1, True)


def test_grant_sets_what_a_client_may_spend(clients):
    file, secret, anchor = clients
    options = ("--secret", secret, "--anchor", anchor)
    assert "entry 4: eve may spend" in ostraka_ledger("grant", file, "eve", "--epsilon", 0.5, *options)[1]
    record = json.loads(ostraka_ledger("grant", file, "eve", "--epsilon", 0.7, *options, "--json")[1])
    assert record == {"seq": 5, "account": "eve", "cap": 0.7, "spent": 0.0, "left": 0.7}
    assert json.loads(ostraka_ledger("verify", file, *options, "--json")[1])["anchored"]
    for account, epsilon in (("eve", -1), ("", 1)):
        code, _, err = ostraka_ledger("grant", file, account, "--epsilon", epsilon, *options)
        assert (code, "must be" in err) == (2, True)


def test_export_prints_one_line_of_json_for_each_entry(clients, monkeypatch):
    file, secret, _ = clients
    monkeypatch.setattr(readings, "_BLOCK", 2)
    lines = ostraka_ledger("export", file, "--secret", secret)[1].splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["seq"] for entry in entries] == [1, 2, 3]
    assert [entry["kind"] for entry in entries] == ["grant", "grant", "charge"]
    assert (entries[2]["account"], entries[2]["answer"], entries[2]["digest"]) == ("ann", 7, "00ff")
    with Ledger(file, secret=b"s" * 32) as ledger:
        assert entries[2]["head"] == ledger.head
    assert json.loads(ostraka_ledger("export", file, "--secret", secret, "--json")[1]) == entries


def test_the_secret_may_come_from_the_environment(clients, monkeypatch):
    file = clients[0]
    code, _, err = ostraka_ledger("show", file)
    assert (code, "begun with a secret" in err) == (1, True)
    monkeypatch.setenv("OSTRAKA_LEDGER_SECRET", (b"s" * 32).hex())
    assert ostraka_ledger("show", file)[0] == 0
    monkeypatch.setenv("OSTRAKA_LEDGER_SECRET", "not hexadecimal")
    code, _, err = ostraka_ledger("show", file)
    assert (code, "not hexadecimal" in err) == (2, False)


def test_a_lost_anchor_is_begun_anew_on_demand_only(clients):
    file, secret, anchor = clients
    anchor.unlink()
    code, _, err = ostraka_ledger("verify", file, "--secret", secret, "--anchor", anchor)
    assert (code, "there is no anchor" in err) == (2, True)
    assert not anchor.exists()
    record = json.loads(ostraka_ledger("anchor", file, anchor, "--secret", secret, "--json")[1])
    assert record["entries"] == 3
    assert ostraka_ledger("verify", file, "--secret", secret, "--anchor", anchor)[0] == 0
    code, _, err = ostraka_ledger("anchor", file, anchor, "--secret", secret)
    assert (code, "exists" in err) == (1, True)


def test_show_says_what_it_leaves_out_and_export_streams_what_scan_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(readings, "_BLOCK", 3)
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
        for n in range(8):
            ledger.charge(GNMax(sigma=40.0), uses=1, unit="row", simulation=False, key=f"run/{n}")
        assert [entry.seq for entry in ledger.scan(after=2)] == [3, 4, 5, 6, 7, 8]
        assert ledger.entry_of("run/4").seq == 5
        assert ledger.entry_of("run/4", account="a client") is None
        assert ledger.entry_of("run/8") is None
    _, out, _ = ostraka_ledger("show", path, "--last", 2)
    assert "6 older entries are not printed" in out
    assert "run/6" in out
    assert "run/5" not in out
    _, out, _ = ostraka_ledger("show", path, "--last", 0)
    assert "run/0" in out
    assert "older entries" not in out
    _, out, _ = ostraka_ledger("export", path, "--json")
    assert [entry["key"] for entry in json.loads(out)] == [f"run/{n}" for n in range(8)]
