"""The question of a task: every word is in its fingerprint, its price is true, and pages show it."""

import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from ostraka import Budget, Ledger
from ostraka.collect import Client, Grid, Histogram, Keeper, Pairs, Question, Sum, Tally, Task, Tree, Vector
from ostraka.collect import plan as _plan
from ostraka.collect.show import Collected, summary
from ostraka.secure.keys import Identity
from ostraka.secure.wire import PartyServer
from tests.cli.terminal import typed
from tests.collect.test_page import FILLED

SIGMA = 10.0  # of one round at epsilon 1
TEXTS = {
    "text": {
        "en": "How do you get to work?",
        "de": "Wie kommen Sie zur Arbeit?",
        "fr": "Comment y allez-vous ?",
    },
    "title": {"en": "Ways to work", "de": "Wege zur Arbeit", "fr": "Chemins du travail"},
    "purpose": {"en": "To plan buses.", "de": "Um Busse zu planen.", "fr": "Pour planifier les bus."},
}
CHOICES = {"en": ["by bus", "on foot"], "de": ["mit dem Bus", "zu Fuß"], "fr": ["en bus", "à pied"]}
UNIT = {"en": "minutes", "de": "Minuten", "fr": "minutes"}


def question(**changes):
    fields = {
        **TEXTS, "controller": "City of Example", "contact": "data@example.org",
        "epsilon": 1.0, "series": 2.0, "delta": 1e-6, "keep_days": 30,
    }  # fmt: skip
    return Question(**{**fields, **changes})


def task(encoding=None, *, me=None, others=(), **changes):
    fields = {
        "sigma": SIGMA, "tally": (me or Identity.fresh()).public_key,
        "keepers": [Keeper.key(keeper) for keeper in others], "question": question(choices=CHOICES),
    }  # fmt: skip
    return Task(encoding or Histogram(0, 2, cells=2), **{**fields, **changes})


@pytest.fixture(scope="module")
def poll_tally():
    """A round of choices and one of numbers, with their tallies."""

    def made(encoding, words):
        me, others = Identity.fresh(), [Identity.fresh() for _ in range(2)]
        sigma = _plan.sigma_for(encoding, epsilon=1.0, delta=1e-6)
        poll = task(encoding, me=me, others=others, sigma=sigma, question=question(**words))
        return Tally(poll, me, keepers=[Keeper(poll, keeper) for keeper in others])

    return made


def test_tasks_without_a_question_keep_their_fingerprints():
    """Written by the version before questions: regression values."""
    keepers = ["cd" * 32 + "01" * 32, "ef" * 32 + "02" * 32]
    cases = {
        "040a6ad9852683f38c34e3e8c077fcd62d0d34a4224e72d2ecac55e5557b8c3a": (
            Tree(0, 240), {"keepers": keepers, "honest": 2},
        ),
        "39ada7e8983955c2ad992975e5f922f02313ace3cd3d95c2d25b1e7fcb639a4b": (Histogram(0, 6, cells=3), {}),
        "77b96d38c3970ffec7cc5765d1b5aa9d6442ca40650191ef1e690e8c318f05e2": (
            Grid(x=(0, 1), y=(0, 2.5), shape=(3, 4)), {"lying": True, "enrolment": "12" * 32},
        ),
    }  # fmt: skip
    for sha256, (encoding, options) in cases.items():
        assert Task(encoding, sigma=24.0, tally="ab" * 32, least=100, **options).sha256 == sha256


@pytest.mark.parametrize(
    "change",
    [
        {"text": {**TEXTS["text"], "fr": "Autre ?"}},
        {"title": {**TEXTS["title"], "de": "Anders"}},
        {"purpose": {**TEXTS["purpose"], "en": "For profit."}},
        {"controller": "Somebody else"},
        {"contact": "else@example.org"},
        {"epsilon": 1.5},
        {"series": 3.0},
        {"delta": 1e-5},
        {"keep_days": 31},
        {"unit": UNIT},
        {"choices": {**CHOICES, "en": ["on foot", "by bus"]}},
    ],
)
def test_every_word_is_in_the_fingerprint_and_comes_back(change):
    usual = task(me=Identity(bytes(32)))
    changed_task = task(me=Identity(bytes(32)), question=question(**{"choices": CHOICES, **change}))
    assert changed_task.sha256 != usual.sha256
    assert Task.from_json(changed_task.to_json()) == changed_task
    assert Task.from_json(changed_task.to_json()).sha256 == changed_task.sha256


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"title": {"en": "one"}}, "languages of the question"),
        ({"purpose": {**TEXTS["purpose"], "fr": " "}}, "purpose must be a text"),
        ({"controller": "two\nlines"}, "one line"),
        ({"choices": {**CHOICES, "fr": ["en bus"]}}, "choices must be"),
        ({"choices": {**CHOICES, "fr": ["en bus", "en bus"]}}, "differ"),
        ({"series": 0.5}, "series must not be below"),
        ({"protects": "row"}, "protects"),
    ],
)
def test_what_nobody_can_agree_to_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        question(**change)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("contact", ["x" * 2000, "ä"], ["x" * 2001, "", " ", "a\tb", None]),
        ("controller", ["x" * 2000], ["x" * 2001, "a\nb", 7]),
        ("keep_days", [0, 10**6], [-1, 0.5, True]),
        ("epsilon", [1e-300, 2.0], [0, -1, 2.1, math.inf, "1"]),
        ("series", [1.0, 1e300], [0.999, math.nan]),
        ("delta", [1e-300, 0.999], [0, 1, None]),
        ("text", [{"en": "x"}, {"deu": "x"}, {"pt-BR": "x"}, {"en": "x", "de": "y"}],
         [{"e": "x"}, {"engl": "x"}, {"EN": "x"}, {"pt-br": "x"}, {"pt-B": "x"}, {1: "x"}, "x", {}, None]),
        ("unit", [{}, {"en": "m"}], [{"de": "m"}, {"en": ""}, "m"]),
        ("choices", [{}, {"en": ["a", "b"]}, {"en": [f"{k}" for k in range(1000)]}],
         [{"en": ["a"]}, {"en": [f"{k}" for k in range(1001)]}, {"en": "ab"}, {"en": ["a", "a"]},
          {"en": ["a", ""]}, {"en": ["a", 1]}, {"de": ["a", "b"]}, "ab"]),
    ],
)  # fmt: skip
def test_the_least_and_the_largest_that_a_question_may_say(name, inside, outside):
    def one(value):
        languages = value if name == "text" and isinstance(value, dict) else {"en": "x"}
        texts = {part: dict.fromkeys(languages, "x") for part in ("text", "title", "purpose")}
        return question(**texts | {name: value})

    for value in inside:
        parts = getattr(one(value), name)
        assert parts == (
            {code: tuple(words) for code, words in value.items()} if name == "choices" else value
        )
        assert Question.read(one(value).written()) == one(value)
    for value in outside:
        with pytest.raises((ValueError, TypeError)):
            one(value)


def test_a_question_cannot_understate_the_price_of_a_round_or_of_all_rounds():
    price = task().mechanism.curve()
    exact = price.epsilon(delta=1e-6)
    words = {"choices": CHOICES, "series": 9.0}
    assert task(question=question(**words, epsilon=exact))
    with pytest.raises(ValueError, match="states epsilon"):
        task(question=question(**words, epsilon=0.999 * exact))
    three = (3 * price).epsilon(delta=1e-6)
    assert task(rounds=3, question=question(choices=CHOICES, series=three))
    with pytest.raises(ValueError, match="states series"):
        task(rounds=3, question=question(choices=CHOICES, series=max(1.0, 0.999 * three)))


def test_choices_are_the_cells_of_the_encoding_and_answers_their_texts_or_numbers():
    poll = task()
    for number, texts in enumerate(zip(*CHOICES.values(), strict=True)):
        for answer in (number, *texts):
            assert poll.encoded(answer).nonzero()[0].tolist() == [number]
    for answer in (2, -1, 0.5, True, "by car", None):
        with pytest.raises(ValueError, match="must be") as caught:
            poll.encoded(answer)
        assert "car" not in str(caught.value)
    with pytest.raises(ValueError, match="2 choices needs the encoding"):
        task(Tree(0, 2))
    with pytest.raises(ValueError, match="a question has the fields"):
        Task.from_json(poll.to_json().replace('"keep_days"', '"keep"'))


SHOWN = "document.querySelector('ostraka-question').innerText"
TYPED = """
(() => { const field = document.getElementById("value"); field.value = "%s";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  return document.getElementById("clipped").textContent; })()
"""
LANGUAGE = """
(() => { const choice = document.getElementById("language"); choice.value = "%s";
  choice.dispatchEvent(new Event("change")); return document.querySelector("ostraka-question").lang; })()
"""
WIDE = "document.documentElement.scrollWidth"
SMALL = """
[...document.querySelectorAll("button, select, .choice, input:not([type=radio])")]
  .map((one) => one.getBoundingClientRect().height)
"""


def test_the_page_asks_in_words_says_what_is_clipped_and_shows_the_signed_result(poll_tally, browser):
    tally = poll_tally(Tree(0, 241), {"unit": UNIT})
    tally.announce(spent=0.5, budget=2.0)
    with PartyServer(tally, pages=tally.pages) as server:
        browser.open(server.url, width=360)
        browser.ask(FILLED % "sha")
        text = browser.ask(SHOWN)
        for words in (
            "How do you get to work?", "To plan buses.", "City of Example, data@example.org", "30 days",
            "Numbers from 0 to 240 minutes", "2.72 (ε = 1)", "1 : 1,000,000", "1.5 remains",
            tally.task.sha256,
        ):  # fmt: skip
            assert words in text
        assert "{" not in text
        assert browser.ask(WIDE) <= 360
        assert min(browser.ask(SMALL)) >= 44
        assert min(ratio for ratio, _ in browser.contrasts()) >= 4.5
        assert browser.ask(TYPED % "999") == "999 counts as 240."
        assert browser.ask(TYPED % "-3") == "-3 counts as 0."
        assert browser.ask(TYPED % "30") == ""
        for language, words in (("de", "Zahlen von 0 bis 240 Minuten"), ("fr", "Nombres de 0 à 240 minutes")):
            assert browser.ask(LANGUAGE % language) == language
            assert words in browser.ask(SHOWN)
        assert browser.ask(LANGUAGE % "en") == "en"
        browser.ask(TYPED % "999")
        browser.ask("document.getElementById('form').requestSubmit()")
        assert browser.ask(FILLED % "said") == "Received. It will be counted once."
        for minutes in (10, 20, 30):
            tally.receive(Client(tally.task).report(minutes))
        assert tally.n_clients == 4
        tally.announce(spent=1.5, budget=2.0, result={"value": 34, "low": 30, "high": 40})
        browser.open(server.url, width=360, dark=True)
        browser.ask(FILLED % "result")
        text = browser.ask(SHOWN)
        assert "The median is 34 minutes; with 95 % probability it lies between 30 and 40." in text
        assert "0.5 remains" in text
        assert min(ratio for ratio, _ in browser.contrasts()) >= 4.5
        good = tally._notice  # somebody else's words are not shown
        tally._notice = Identity.fresh().seal("notice", good[64:])
        browser.open(server.url)
        browser.ask(FILLED % "sha")
        assert "34" not in browser.ask("document.getElementById('result').textContent")


def test_choices_are_buttons_for_fingers_and_keys_and_one_is_sent(poll_tally, browser):
    tally = poll_tally(Histogram(0, 2, cells=2), {"choices": CHOICES})
    with PartyServer(tally, pages=tally.pages) as server:
        browser.open(server.url, width=360)
        browser.ask(FILLED % "sha")
        assert min(browser.ask(SMALL)) >= 44
        browser.ask("document.getElementById('form').requestSubmit()")
        assert browser.ask(FILLED % "said") == "Choose one answer first."
        assert browser.ask("document.activeElement.type") == "radio"
        arrow = {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40}
        for kind in ("keyDown", "keyUp"):
            browser.do("Input.dispatchKeyEvent", type=kind, **arrow)
        assert browser.ask("document.querySelector('input:checked').value") == "1"
        browser.ask("document.getElementById('said').textContent = ''")
        browser.ask("document.getElementById('form').requestSubmit()")
        assert browser.ask(FILLED % "said") == "Received. It will be counted once."
    assert tally.n_clients == 1


# from a question to an answer by commands


def collect(*words):
    return typed("collect", *words)


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """A question of numbers, and its answer by 100 invented people: two commands."""
    folder = tmp_path_factory.mktemp("survey")
    output = collect(
        "new", folder / "s", "--question", "How many minutes do you travel?", "--range", "0:240",
        "--unit", "minutes", "--clients", 100, "--epsilon", 4, "--controller", "City of Example",
    )  # fmt: skip
    assert output.code == 0, output.err
    ran = collect("simulate", folder / "s" / "task.json", "--clients", 100, "--out", folder / "out.json")
    assert ran.code == 0, ran.err
    return folder


def test_three_commands_lead_from_a_question_to_a_page_with_a_median(survey, tmp_path):
    result = collect("show", "median", survey / "out.json", "--html", tmp_path / "median.html")
    assert result.code == 0, result.err
    assert "The median is" in result.out
    page = (tmp_path / "median.html").read_text()
    for words in (
        "The median is",
        "minutes; with 95 % probability",
        "<svg",
        "Simulation",
        "100 people took part",
    ):
        assert words in page
    assert "<script" not in page
    answer = json.loads(collect("show", "median", survey / "out.json", "--json").out)
    assert answer["low"] <= answer["value"] <= answer["high"] <= 240
    secrets = {path.name for path in (survey / "s").iterdir()}
    assert secrets == {"task.json", "tally.key", "keeper-1.key", "keeper-2.key"}
    assert all((survey / "s" / name).stat().st_mode & 0o077 == 0 for name in secrets - {"task.json"})


def test_where_the_sums_are_to_be_written_is_looked_at_before_anybody_is_asked(survey, tmp_path):
    words = ("tally", survey / "s" / "task.json", "--identity", survey / "s" / "tally.key")
    words += ("--folder", tmp_path / "t", "--clients", 3, "--seconds", 0, "--out", tmp_path / "none" / "out")
    refused = collect(*words)
    assert (refused.code, "is no folder" in refused.err) == (2, True)
    assert not (tmp_path / "t").exists()


def test_a_ledger_that_is_there_keeps_its_budget_unless_another_is_typed(survey, tmp_path, monkeypatch):
    announced = []

    def announce(tally, *, spent, budget):
        announced.append((spent, budget))
        raise RuntimeError("nobody is asked in this test")

    def tally(folder, *words):
        place = survey / "s" / "task.json", "--identity", survey / "s" / "tally.key", "--folder", folder
        keepers = "--keeper", "http://127.0.0.1:1", "--keeper", "http://127.0.0.1:2"
        words = ("collect", "tally", *place, *keepers, "--clients", 3, "--seconds", 0, *words)
        return typed(*words, unexpected="--epsilon" not in words).err

    monkeypatch.setattr(Tally, "announce", announce)
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
        budget = Budget(epsilon=5.0, delta=1e-7, adaptive=False)
        Ledger(tmp_path / name / "collect.ledger", budget=budget).close()
    tally(tmp_path / "a")
    tally(tmp_path / "b")
    assert "has Budget(epsilon=5.0" in tally(tmp_path / "c", "--epsilon", 1)
    assert announced == [(0.0, 1.0), (0.0, 5.0)]


DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize(
    ("heading", "words", "page"),
    [
        ("Tor's median", "The median is 30. circuits; with 95 % probability", "median"),
        ("A heat map and its next hour", "by the forecast from 2 rounds", "next-hour"),
        ("A recommender", "Who has 3, 17 is likeliest to want item 0", "similar"),
    ],
)
def test_each_system_of_the_thesis_is_the_commands_of_the_manual(heading, words, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = (DOCS / "collect.md").read_text().partition(f"### {heading}\n")[2].partition("\n##")[0]
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE))
    exec(blocks.get("python", ""), {})
    for line in blocks["sh"].replace("\\\n", " ").splitlines():
        output = collect(*shlex.split(line)[2:])
        assert output.code == 0, (line, output.err)
    assert re.search(words, output.out), output.out
    assert re.search(words, (tmp_path / f"{page}.html").read_text())
    assert "<svg" in (tmp_path / f"{page}.html").read_text()


def collected(encoding, values, **changes):
    """What would be released without noise."""
    poll = task(encoding, sigma=SIGMA, noise="tally", question=None)
    sums = np.sum([encoding.encode(value).astype(np.int32) for value in values], axis=0, dtype=np.int64)
    return {
        "task": json.loads(poll.to_json()), "sums": sums.tolist(), "variance": 1.0,
        "n_survivors": len(values), "epsilon": 1.0, "delta": 1e-6, **changes,
    }  # fmt: skip


def test_each_kind_of_answer_is_shown_with_its_interval(tmp_path):
    cases = {
        "median": (Tree(0, 64), [*range(20, 41)], {"value": 30}),
        "quantile": (Tree(0, 64), [*range(20, 41)], {"quantile": 0.9, "value": 38}),
        "answers": (Histogram(0, 3, cells=3), [0] * 5 + [2] * 9, {"people": [5.0, 0.0, 9.0]}),
        "map": (Grid(x=(0, 2), y=(0, 1), shape=(2, 1)), [(0.5, 0.5)] * 7, {"people": [[7.0], [0.0]]}),
        "mean": (Sum(0, 255), [3, 4, 8], {"value": 5.0}),
        "sum": (Vector(cells=2, clip=16.0, grid=16), [[3, 4], [1, -2]], {"value": [4.0, 2.0]}),
        "similar": (Pairs(items=4, at_most=2), [[0, 1]] * 9 + [[2, 3]] * 5, {"items": [1, 2, 3]}),
    }
    map_file = tmp_path / "another map.json"
    map_file.write_text(json.dumps(collected(Grid(x=(0, 2), y=(0, 1), shape=(2, 2)), [(1.5, 0.9)] * 7)))
    for kind, (encoding, values, expected) in cases.items():
        file = tmp_path / f"{kind}.json"
        file.write_text(json.dumps(collected(encoding, values)))
        words = ["show", kind, file, "--json", "--html", tmp_path / f"{kind}.html"]
        words += {"quantile": ["--q", 0.9], "similar": ["--items", "0"]}.get(kind, [])
        result = collect(*words)
        assert result.code == 0, (kind, result.err)
        answer = json.loads(result.out)
        assert {name: answer[name] for name in expected} == expected
        assert "<svg" in (tmp_path / f"{kind}.html").read_text()
    assert "(x 0 to 1, y 0 to 1)" in collect("show", "map", tmp_path / "map.json").out
    assert "(x 1 to 2, y 0.5 to 1)" in collect("show", "map", map_file).out
    assert (
        "no item is left" in collect("show", "similar", tmp_path / "similar.json", "--items", "0,1,2,3").err
    )
    for kind in ("median", "map", "similar", "answers"):
        wrong = tmp_path / ("map.json" if kind != "map" else "median.json")
        assert "need" in collect("show", kind, wrong).err


def test_a_forecast_weighs_the_rounds_of_a_series(tmp_path):
    grid = Grid(x=(0, 1), y=(0, 1), shape=(1, 2))
    for name, n in (("a", 4), ("b", 8)):
        (tmp_path / f"{name}.json").write_text(json.dumps(collected(grid, [(0.5, 0.1)] * n)))
    words = ("show", "forecast", tmp_path / "a.json", tmp_path / "b.json", "--alpha", 0.5, "--json")
    assert json.loads(collect(*words).out)["people"][0][0] == pytest.approx((4 * 0.5 + 8) / 1.5)
    assert "takes one FILE" in collect("show", "map", tmp_path / "a.json", tmp_path / "b.json").err
    (tmp_path / "c.json").write_text(json.dumps(collected(Tree(0, 9), [1, 2, 3])))
    mixed = collect("show", "forecast", tmp_path / "a.json", tmp_path / "c.json")
    assert "rounds of one encoding" in mixed.err


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sums": [1, 2]}, "as many as the task has cells"),
        ({"sums": {}}, "as many as the task has cells"),
        ({"variance": ...}, "lacks variance"),
        ({"task": 3}, "task"),
        ({"n_survivors": 0}, "n_survivors"),
        ({"variance": -1.0}, "variance"),
        ({"epsilon": None}, "epsilon"),
        ({"delta": 7}, "delta"),
    ],
)
def test_a_file_that_is_no_record_is_refused_by_name(tmp_path, change, why):
    record = collected(Tree(0, 9), [1, 2, 3], **change)
    file = tmp_path / "wrong.json"
    file.write_text("[" * 100_000)
    assert "wrong.json: it lacks task" in collect("show", "median", file).err
    file.write_text(json.dumps({name: value for name, value in record.items() if value is not ...}))
    refused = collect("show", "median", file).err
    assert "wrong.json" in refused
    assert why in refused


def test_what_pages_are_told_of_a_result_is_the_usual_answer():
    assert summary(Collected(collected(Tree(0, 64), [*range(20, 41)])))["value"] == 30
    assert summary(Collected(collected(Grid(x=(0, 1), y=(0, 1), shape=(2, 2)), [(0.1, 0.1)] * 3))) is None
