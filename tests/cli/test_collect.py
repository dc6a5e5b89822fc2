"""ostraka collect: every role a verb of its own over HTTP, and a plan before it."""

import gc
import json
import math
import re
import sys
from functools import partial
from typing import ClassVar

import click
import numpy as np
import pytest

from ostraka import Budget, Ledger
from ostraka.collect import Client, Histogram, Keeper, Question, Tally, Task, Tree, cli
from ostraka.collect import client as _network
from ostraka.collect import plan as _plan
from ostraka.core.mechanisms.skellam import SkellamSum
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import PartyServer
from tests.cli.terminal import PATIENCE, typed
from tests.threads import at_once


def collect(*words):
    return typed("collect", *words)


@pytest.mark.parametrize(("typed", "least"), [((), 80), (("--least", 7), 7)])
def test_a_round_needs_four_fifths_of_its_clients_or_as_many_as_typed(tmp_path, typed, least):
    public = collect("key", tmp_path / "me").out.strip()
    task = tmp_path / "task.json"
    words = ("plan", "tree:0:20:5", "--clients", 100, "--epsilon", 20, "--tally", public, "--out", task)
    assert collect(*words, "--trust", "clients", *typed).code == 0
    assert Task.from_json(task.read_text()).least == least


def test_a_round_with_keepers_each_role_a_verb(start, tmp_path):
    public = collect("key", tmp_path / "me").out.strip()
    keys = [collect("key", tmp_path / f"keeper{k}", "--keeper").out.strip() for k in range(2)]
    task = tmp_path / "task.json"
    planned = collect(
        "plan", "tree:0:20:5", "--clients", 5, "--epsilon", 20, "--least", 4, "--tally", public,
        "--keeper", keys[0], "--keeper", keys[1], "--out", task,
    )  # fmt: skip
    assert planned.code == 0, planned.err
    urls = [
        start(
            "collect", "keeper", task, "--identity", tmp_path / f"keeper{k}", "--folder", tmp_path / f"k{k}"
        ).url
        for k in range(2)
    ]
    tally = start(
        "collect", "tally", task, "--identity", tmp_path / "me", "--folder", tmp_path / "t", "--clients", 5,
        "--seconds", 60, "--keeper", urls[0], "--keeper", urls[1], "--epsilon", 21,
        "--out", tmp_path / "sums.json",
    )  # fmt: skip
    url = tally.url
    agreed = Task.from_json(task.read_text()).sha256
    notice = _network.results(url, sha256=agreed)
    assert (notice["spent"], notice["budget"], notice["result"]) == (0.0, 21.0, None)
    with pytest.raises(ValueError, match="another task"):
        _network.send(url, 3, sha256="0" * 64)
    sent = collect("send", url, "3", "--sha256", agreed, "--folder", tmp_path / "client", "--budget", 20.5)
    assert (sent.code, sent.out) == (0, f"reported to the task {agreed}\n"), sent.err
    price = Task.from_json(task.read_text()).mechanism.curve().epsilon(delta=1e-6)
    mine = json.loads(collect("mine", tmp_path / "client", "--json").out)
    assert mine == {"spent": mine["spent"], "left": mine["left"], "budget": 20.5, "delta": 1e-6}
    assert mine["spent"] == pytest.approx(price) == pytest.approx(20.5 - mine["left"])
    assert collect("mine", tmp_path / "client").out == (
        f"spent in all collections: epsilon {price:.4g} of 20.5 (delta 1e-06)\n"
        f"left: epsilon {20.5 - price:.4g}\n"
    )
    assert "needs --folder, where it is counted" in collect("send", url, "3", "--budget", 1).err
    assert collect("send", url, "4", "--folder", tmp_path / "client").code == 1
    assert collect("send", url, "NaN").code != 0
    for value in (3, 3, 19, 8):
        _network.send(url, value, sha256=agreed)
    assert tally.said() == []
    record = json.loads((tmp_path / "sums.json").read_text())
    exact = sum(Tree(0, 20, fanout=5).encode(value).astype(int) for value in (3, 3, 3, 19, 8))
    assert np.abs(np.array(record["sums"]) - exact).max() < 10 * record["variance"] ** 0.5
    assert record["n_survivors"] == 5
    assert record["epsilon"] <= 20
    assert record["unit"] == "client"
    with Ledger(tmp_path / "t" / "collect.ledger") as ledger:
        assert ledger.budget == Budget(epsilon=21.0, delta=1e-6, adaptive=False)
        assert record["epsilon"] == ledger.spent().epsilon(delta=1e-6)


def test_a_round_among_clients_over_http_goes_on_without_those_who_vanish(start, tmp_path):
    me = Identity.kept_at(tmp_path / "me")
    task = Task(
        Histogram(0, 1, cells=4), sigma=2.0, noise="tally", tally=me.public_key, least=5, most=12, missing=0.3
    )
    (tmp_path / "task.json").write_text(task.to_json())
    tally = start(
        "collect", "tally", tmp_path / "task.json", "--identity", tmp_path / "me", "--folder", tmp_path / "t",
        "--clients", 9, "--seconds", 1.5, "--epsilon", 50, "--out", tmp_path / "sums.json",
    )  # fmt: skip
    url = tally.url
    failed = []

    def client(value, gone):
        try:
            _network.send(url, value, timeout=0.4 if gone else PATIENCE)
        except (PartyError, OSError) as error:
            failed.append(error)

    with at_once(*(partial(client, k / 9, k < 2) for k in range(9))):
        pass
    assert tally.said() == []
    record = json.loads((tmp_path / "sums.json").read_text())
    assert 7 <= record["n_survivors"] <= 9
    assert abs(sum(record["sums"]) - record["n_survivors"]) < 40
    assert len(failed) <= 2
    (tmp_path / "sums.json").unlink()  # as if it had been killed before it wrote them
    again = collect(
        "tally", tmp_path / "task.json", "--identity", tmp_path / "me", "--folder", tmp_path / "t",
        "--clients", 9, "--seconds", 0.1, "--epsilon", 50, "--out", tmp_path / "sums.json",
    )  # fmt: skip
    assert (again.code, "released before" in again.err) == (0, True), again.err
    assert json.loads((tmp_path / "sums.json").read_text()) == record
    folder = ("--identity", tmp_path / "me", "--folder", tmp_path / "t", "--epsilon", 50)
    folder += ("--clients", 9, "--seconds", 0.1)
    gc.collect()  # as if its process had ended
    printed = collect("tally", tmp_path / "task.json", *folder, "--json")
    assert (json.loads(printed.out), printed.err.startswith("http://127.0.0.1:")) == (record, True)
    gc.collect()
    address, line = collect("tally", tmp_path / "task.json", *folder).out.splitlines()
    assert (json.loads(line), address.startswith("http://127.0.0.1:")) == (record, True)


def test_a_series_is_paid_for_as_its_question_says_and_ends_with_what_became_of_each_round(
    tmp_path, monkeypatch
):
    calls = []

    class Series:
        outcomes, pages, most_bytes, name = ("released", None), {}, 100, "series"
        answers: ClassVar[dict] = {}

        def __init__(self, task, me, **how):
            calls.append((task, me.public_key, how))

        def run(self, **how):
            calls.append(how)
            if how["n_clients"] == 9:
                raise KeyboardInterrupt

        def end(self):
            calls.append("ended")

    monkeypatch.setattr("ostraka.collect.tally.Series", Series)
    monkeypatch.setattr(cli.time, "sleep", calls.append)
    me = Identity.kept_at(tmp_path / "me").public_key
    texts = {name: {"en": "x"} for name in ("text", "title", "purpose")}
    question = Question(**texts, controller="c", contact="c", epsilon=30.0, series=40.0, delta=1e-7)
    tasks = [Task(Tree(0, 20), sigma=5.0, tally=me, rounds=2, question=q) for q in (None, question)]
    for name, task in zip("ab", tasks, strict=True):
        (tmp_path / name).write_text(task.to_json())

    def series(name, *words):
        folder = ("--identity", tmp_path / "me", "--folder", tmp_path)
        return collect("series", tmp_path / name, *folder, "--every", 60, *words)

    without = series("a", "--clients", 3)
    assert (without.code, "no question that states what all rounds cost" in without.err) == (2, True)
    asked = series("b", "--clients", 3, "--seconds", 5, "--keeper", "http://k", "--stay", 2)
    assert (asked.code, asked.out.splitlines()[1:]) == (0, ["round 0: released", "round 1: None"])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", asked.out.splitlines()[0])
    budget = Budget(epsilon=40.0, delta=1e-7, adaptive=False)
    kept = {"folder": tmp_path, "every": 60.0}
    assert calls == [
        (tasks[1], me, kept | {"budget": budget, "keepers": ["http://k"]}),
        {"n_clients": 3, "seconds": 5.0},
        2.0,
        "ended",
    ]
    for name, epsilon, delta in (("a", 7.0, 1e-5), ("b", 7.0, 1e-7)):
        calls.clear()
        said = series(name, "--clients", 3, "--epsilon", epsilon, "--delta", 1e-5, "--json")
        assert json.loads(said.out) == {"outcomes": ["released", None]}
        assert said.err.startswith("http://127.0.0.1:")
        assert calls[0][2]["budget"] == Budget(epsilon=epsilon, delta=delta, adaptive=False)
        assert (calls[0][2]["keepers"], calls[1], calls[2]) == ((), {"n_clients": 3, "seconds": None}, 0.0)
    calls.clear()
    assert series("b", "--clients", 9).code == 130
    assert calls[-1] == "ended"


def test_a_plan_calibrates_and_says_when_a_sketch_loses(tmp_path):
    sketch = f"count-min:272:14:{'ab' * 32}"
    size = ("--clients", 10_000, "--epsilon", 1, "--json")
    record = json.loads(collect("plan", sketch, "--items", 5_000, *size).out)
    assert record["advice"] == "take the whole vector: its error is smaller"
    assert record["error of a count in the whole vector"] < record["error of a count in the sketch"]
    plain = json.loads(collect("plan", "histogram:0:64:64", *size).out)
    assert plain["error of a share"] == pytest.approx(plain["noise in a cell"] / 10_000)
    mean = json.loads(collect("plan", "sum:20:100:3", *size).out)
    rounding = math.sqrt(10_000) / 2  # of answers to one of 7 steps, at most
    assert mean["error of a mean"] == pytest.approx(
        80 / 7 * math.hypot(mean["noise in a cell"], rounding) / 10_000
    )
    tree = Tree(0, 1000)
    sigma = _plan.sigma_for(tree, epsilon=0.5, delta=1e-6)
    for width, right in ((sigma, True), (0.99 * sigma, False)):
        cost = SkellamSum(sigma=width, l1=tree.l1, l2=tree.l2).curve().epsilon(delta=1e-6)
        assert (cost <= 0.5) is right
    with pytest.raises(ValueError, match="epsilon must be at least"):
        _plan.sigma_for(tree, epsilon=1e-4, delta=1e-6)


def test_a_plan_of_ten_to_the_eight_clients_and_one_among_clients():
    huge = json.loads(collect("plan", "tree:0:1024", "--clients", 10**8, "--epsilon", 1, "--json").out)
    assert huge["bytes to a keeper"] == 32 * 10**8
    among = collect("plan", "tree:0:64", "--clients", 1000, "--epsilon", 1, "--trust", "clients").out
    assert re.search(r"neighbours: 46\nthreshold: 26", among)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "forest:1", "--clients", 9, "--epsilon", 1), "count-sketch:WIDTH:DEPTH:KEY"),
        (("plan", "tree:0", "--clients", 9, "--epsilon", 1), "Type tree:LOW:HIGH[:FANOUT]"),
        (("plan", "tree:0:x", "--clients", 9, "--epsilon", 1), "Type tree:LOW:HIGH[:FANOUT]"),
        (("plan", "tree:0:9", "--clients", 1, "--epsilon", 1), "n_clients must be an integer >= 3, got 1"),
        (
            ("plan", "tree:0:9", "--clients", 9, "--epsilon", 1, "--out", "x.json"),
            "--trust keepers needs the public key of each",
        ),
        (("send", "http://127.0.0.1:1", "word"), "the value must be a number or a list in JSON"),
        (("send", "http://127.0.0.1:1", "[" * 100_000), "the value must be a number or a list in JSON"),
        (("send", "ftp://x", "3"), "must be http://host:port or https://"),
    ],
)
def test_what_is_typed_wrongly_is_refused_in_words_about_it(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refusal = collect(*words)
    assert (refusal.code, message in refusal.err) == (2, True), refusal.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "kind", "cells"),
    [
        ("histogram:0:10:20", "Histogram", 20),
        ("grid:0:1:0:2:4x5", "Grid", 20),
        ("grid:0:1:0:2:4x5:3", "Grid", 20),
        ("visits:0:1:0:2:4x5:3", "Visits", 20),
        ("histograms:0,1,4:0,2,8", "Histograms", 12),
        ("vector:9:1.5", "Vector", 9),
        ("vector:9:1.5:100", "Vector", 9),
        ("pairs:9:3", "Pairs", 45),
    ],
)
def test_encodings_are_typed_in_one_line(words, kind, cells):
    encoding = _plan.parsed(words)
    assert (type(encoding).__name__, encoding.cells) == (kind, cells)


def test_the_demonstration_says_first_what_it_lacks_and_writes_a_report_with_pictures(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        claim_output = collect("demo", "--out", tmp_path / "demo")
    assert claim_output.code == 1
    assert "matplotlib is not installed: pip install" in claim_output.err
    assert list(tmp_path.iterdir()) == []
    assert "median" in collect("demo", "--out", tmp_path, "--clients", 60).out
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 3
    assert "The median is" in page
    assert re.search(r"epsilon = [1-3]\.\d\d at delta = 1e-06", page)


def test_an_enrolment_signs_a_claim_that_a_client_prints(tmp_path, monkeypatch):
    me, office = Identity.kept_at(tmp_path / "me"), collect("key", tmp_path / "office").out.strip()
    others = [Identity.fresh() for _ in range(2)]
    keys = [Keeper.key(keeper) for keeper in others]
    task = Task(Tree(0, 20), sigma=3.0, tally=me.public_key, enrolment=office, keepers=keys)
    (tmp_path / "task.json").write_text(task.to_json())
    enrolling = (tmp_path / "task.json", "--identity", tmp_path / "office", "--folder", tmp_path / "o")
    tally = Tally(task, me, keepers=[Keeper(task, keeper) for keeper in others])
    typed = []

    def sign(*_, **how):
        claim = sys.stderr.getvalue().removeprefix("claim: ").strip()
        typed.append(collect("enrol", enrolling[0], claim, *enrolling[1:]).out)
        assert how == {"err": True}
        return typed[-1].strip()

    with PartyServer(tally, pages=tally.pages) as server:
        monkeypatch.setattr(click, "prompt", lambda *_, **__: "no digits")
        refused = collect("send", server.url, "3")
        assert (refused.code, "hexadecimal digits that 'enrol' printed" in refused.err) == (2, True)
        monkeypatch.setattr(click, "prompt", sign)
        sent = collect("send", server.url, "3")
    assert (sent.code, len(typed), task.sha256 in sent.out) == (0, 1, True), sent.err
    assert tally.n_clients == 1
    assert collect("enrol", enrolling[0], "no-claim", *enrolling[1:]).code != 0


def test_an_enrolment_approves_the_roster_of_a_tally(tmp_path):
    me, office = Identity.fresh(), Identity.kept_at(tmp_path / "office")
    task = Task(
        Tree(0, 20), sigma=3.0, noise="tally", tally=me.public_key, least=8, most=20, lying=True,
        enrolment=office.public_key, colluding=0.05,
    )  # fmt: skip
    (tmp_path / "task.json").write_text(task.to_json())
    enrolling = ("--identity", tmp_path / "office", "--folder", tmp_path / "o")
    tally, clients = Tally(task, me), [Client(task) for _ in range(10)]
    signatures = collect(
        "enrol", tmp_path / "task.json", *(keeper.claim for keeper in clients), *enrolling
    ).out
    for client, signature in zip(clients, signatures.split(), strict=True):
        client.certificate = bytes.fromhex(signature)
        tally.receive(client.join())
    with PartyServer(tally) as server:
        words = ("approve", tmp_path / "task.json", server.url, *enrolling, "--clients", 10, "--seconds", 60)
        assert collect(*words) == (0, "approved: 10 clients joined\n", "")
    assert (tally.stage, tally.n_clients) == ("share", 10)
