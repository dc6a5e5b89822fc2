"""What a page keeps and computes for its person: the own ledger, and recommendations from own items."""

import numpy as np
import pytest

from ostraka.collect import Histogram, Keeper, Pairs, Question, Tally, Task, estimate
from ostraka.collect.show import Collected, record_of, summary
from ostraka.secure.keys import Identity
from ostraka.secure.wire import PartyServer
from tests.collect.test_page import FILLED
from tests.collect.test_page_among_clients import SOURCE, node

LEDGER = """
const main = ({ budget, answers }) => {
  const kept = new Map(), getItem = (name) => kept.get(name) ?? null;
  const storage = { getItem, setItem: (name, text) => kept.set(name, text) };
  const own = () => new collect.OwnLedger(storage); // as after each reload
  own().budget = budget;
  return answers.map((one) => {
    try { own().charge(one); return own().spent(); } catch (error) { return [error.asked, error.budget]; }
  });
};
"""


def asked(sha, round_, **price):
    return {"sha": sha, "round": round_, "question": {"epsilon": 1, "series": 1.5, "delta": 1e-6, **price}}


def test_the_own_ledger_adds_up_all_tasks_takes_the_price_of_a_series_and_stops_at_the_limit():
    answers = [
        asked("a", 0), asked("a", 1), asked("a", 2), asked("b", 0), asked("c", 0, epsilon=2, series=2),
        asked("b", 0),
    ]  # fmt: skip
    replies = node(LEDGER, {"budget": 3.5, "answers": answers})
    # rounds of one series cost what it states, another task is added, the same round again costs again
    assert [reply["epsilon"] for reply in replies[:4]] == [1, 1.5, 1.5, 2.5]
    assert [reply["delta"] for reply in replies[:4]] == pytest.approx([1e-6, 1e-6, 1e-6, 2e-6])
    assert replies[4] == [4.5, 3.5]
    assert replies[5]["epsilon"] == 3.5


def test_a_ledger_that_was_damaged_sends_nothing():
    script = """const main = (text) => {
      try { new collect.OwnLedger({ getItem: () => text }).charge({}); return "sent"; }
      catch (error) { return error.message; } };\n"""
    assert "nothing is sent" in node(script, '{"budget": -1, "tasks": {}}')


def question(epsilon: float) -> Question:
    return Question(
        text={"en": "Which?"}, title={"en": "Which?"}, purpose={"en": "To know."}, controller="us",
        contact="here", epsilon=epsilon, series=epsilon, delta=1e-6,
    )  # fmt: skip


def tally_of(encoding, *, epsilon, sigma):
    me, two = Identity.fresh(), [Identity.fresh() for _ in range(2)]
    keys = [Keeper.key(keeper) for keeper in two]
    task = Task(encoding, sigma=sigma, tally=me.public_key, keepers=keys, question=question(epsilon))
    return Tally(task, me, keepers=[Keeper(task, keeper) for keeper in two])


def set_limit(epsilon):
    return f"""(() => {{ const field = document.getElementById("limit"); field.value = "{epsilon}";
      field.dispatchEvent(new Event("change")); return document.getElementById("own").textContent; }})()"""


SEND = """(() => { document.getElementById("value").value = "%s";
  document.getElementById("said").textContent = ""; document.getElementById("form").requestSubmit(); })()"""


def test_the_page_shows_the_own_ledger_and_does_not_send_above_the_limit(browser):
    tally = tally_of(Histogram(0, 4, cells=4), epsilon=1.25, sigma=6.0)
    with PartyServer(tally, pages=tally.pages) as server:
        browser.open(server.url, width=360)
        browser.ask(FILLED % "sha")
        assert "With this answer: 1.25." in browser.ask(set_limit("1"))
        browser.ask(SEND % "2")
        assert "above your limit of 1" in browser.ask(FILLED % "said")
        assert tally.n_clients == 0
        browser.ask(set_limit("2"))
        browser.ask(SEND % "2")
        assert browser.ask(FILLED % "said") == "Received. It will be counted once."
        assert "ε = 1.25" in browser.ask("document.getElementById('own').textContent")
        assert browser.ask("document.getElementById('limit').value") == "2"
        browser.open(server.url, width=360)  # what was answered is remembered
        browser.ask(FILLED % "sha")
        assert "You have answered this round here." in browser.ask(
            "document.getElementById('own').textContent"
        )
        browser.ask(SEND % "2")
        assert "2.5" in browser.ask(FILLED % "said")
        assert tally.n_clients == 1


def baskets(n, items, rng):
    weight = 1 / np.arange(1, items + 1)
    return [
        rng.choice(items, rng.integers(2, 6), replace=False, p=weight / weight.sum()).tolist()
        for _ in range(n)
    ]


def test_the_page_recommends_what_python_recommends():
    rng, items = np.random.default_rng(4), 30
    encoding = Pairs(items=items, at_most=5)
    task = Task(encoding, sigma=6.0, noise="tally", tally="ab" * 32)
    sums = sum(encoding.encode(answer).astype(int) for answer in baskets(400, items, rng))
    sums = np.rint(sums + rng.normal(0, 6, len(sums))).astype(int)
    questions = [*baskets(20, items, rng), []]
    script = f"""const {{ similarity, ranked }} = await import({str(SOURCE.parent / "similar.js")!r});
    const main = ({{ sums, encoding, baskets }}) => {{ const likelihood = similarity(sums, encoding, 400, 36);
      return baskets.map((basket) => ranked(likelihood, basket, 10)); }};\n"""
    replies = {"sums": sums.tolist(), "encoding": {"kind": "Pairs", "items": items}, "baskets": questions}
    expected = [
        estimate.similar_items(sums, task, basket, n=10, n_clients=400, variance=36.0).tolist()
        for basket in questions
    ]
    assert node(script, replies) == expected


def test_recommendations_come_from_the_signed_counts_and_items_stay_in_the_page(browser):
    encoding = Pairs(items=5, at_most=3)
    tally = tally_of(encoding, epsilon=5.0, sigma=9.0)
    sums = sum(200 * encoding.encode(answer).astype(int) for answer in ([0, 1], [2, 3], [0, 1, 4]))
    record = record_of(tally, sums, epsilon=1.0, delta=1e-6) | {"n_survivors": 600}
    tally.announce(spent=1.0, budget=2.0, result=summary(Collected(record)))
    with PartyServer(tally, pages=tally.pages) as server:
        browser.open(server.url, width=360)
        browser.ask(FILLED % "similar")
        posts = len(browser.requests())
        typed = """(() => { const field = document.getElementById("items"); field.value = "%s";
          field.dispatchEvent(new Event("input"));
          return document.getElementById("similar").innerText.split("\\n"); })()"""
        for basket in ([0], [3], []):
            best = estimate.similar_items(
                sums, tally.task, basket, n_clients=600, variance=record["variance"]
            )
            assert browser.ask(typed % " ".join(map(str, basket))) == [str(item) for item in best]
        assert len(browser.requests()) == posts
