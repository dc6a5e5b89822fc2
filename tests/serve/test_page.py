"""The owner's page: what it says, and that it says no more."""

import difflib
import html
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from ostraka import GNMax
from ostraka.attacks import leakage_meter
from ostraka.serve import owner as _page
from ostraka.serve.owner import CostView, Overview, render
from tests.golden import blocks, pages
from tests.serve.examples import AT, LABEL, alarming, answer, client, nothing_yet, overview, refusal, spent

RECORD = Path(blocks.__file__).with_name("owners.txt")
DRAWING = re.compile(r'class="line" d="M0 300([^"]*)"')


class Text(HTMLParser):
    """Text of a page, outside of its style sheet, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags[-1:] == [] or self.tags[-1][0] != "style":
            self.words.append(data)

    def __str__(self) -> str:
        return " ".join(" ".join(self.words).split())


def text(view: Overview) -> str:
    return str(Text(render(view)))


# What it says


LOWER = {"epsilon": 0.41299, "confidence": 0.95}
VIEWS = {  # beside a busy page
    "busy": overview(),
    "nothing yet": nothing_yet(),
    "all is spent": spent(),
    "alarming names": alarming(),
    "spent in part, rounded against the reader": overview(spent=3.41201, left=1.58799),
    "the latest answers": overview(latest=(answer(9, abstained=True, repeated=True), answer(8))),
    "nothing repeated": overview(repeated=()),
    "a ledger that does not verify": overview(ledger={"verified": False}),
    "entries that are not counted yet": overview(ledger={"counted": 4_000}),
    "a simulation": overview(ledger={"simulation": True}),
    "a tenth is left": overview(epsilon=5.0, left=0.5),
    "a little more than a tenth is left": overview(epsilon=5.0, left=0.501),
    "less than a week": overview(seconds_to_empty=7 * 86_400 - 1.0),
    "a week": overview(seconds_to_empty=7 * 86_400.0),
    "more than a hundred years": overview(seconds_to_empty=1e11),
    "a client has nothing left": overview(clients=(client(), client("bob", answers_left=0))),
    "six clients have": overview(clients=tuple(client(f"c{n}", answers_left=0) for n in range(6))),
    "99 without a key": overview(refusals=(refusal("", "unauthorized", 99),)),
    "100 without a key": overview(refusals=(refusal("", "unauthorized", 100),)),
    "sampled": overview(relation="add-or-remove"),
    "an audit": overview(label={**LABEL, "lower": LOWER}),
    "an audit without confidence": overview(label={**LABEL, "lower": {"epsilon": 0.41299}}),
    "a simulated run": overview(label={**LABEL, "simulation": True, "epsilon": None, "delta": None}),
    "a run of no stated epsilon": overview(label={**LABEL, "epsilon": None}),
    "a run of no stated delta": overview(label={**LABEL, "delta": None}),
    "a run of rows": overview(label={**LABEL, "unit": "row"}),
    "a run of rows that are left out": overview(label={**LABEL, "relation": "zero-out"}),
    "no label": overview(label=None),
    "an infinite epsilon": overview(spent=float("inf"), left=0.0, history=((1, float("inf"), None),)),
}


def test_the_page_says_what_it_knows_and_no_more():
    """Whole, then what differs; where sums of two units or relations would be wrong, none is said."""
    busy = pages.text(render(VIEWS["busy"])).splitlines()
    for name, view in VIEWS.items():
        lines = busy
        if name != "busy":
            lines = difflib.ndiff(busy, pages.text(render(view)).splitlines())
            lines = [line for line in lines if line[:2] in {"- ", "+ "}]
        blocks.hold(RECORD, name, "\n".join(lines) + "\n")


def test_what_needs_no_attention_is_not_told_first_and_the_page_reloads_only_if_asked():
    assert "spent" not in text(overview()).partition("Budget of the data")[0]
    assert 'class="warn"' not in render(overview())
    assert "Loaded again every minute. Stop that" in str(Text(render(overview(), every=60)))
    assert "http-equiv" not in render(overview(), every=60)


def test_the_meter_of_a_question_says_what_its_repeats_would_have_told():
    before, now, new = leakage_meter(GNMax(sigma=30.0), [[55, 45, 0]], n_answers=[0, 1, 400])[0]
    assert before > now > new
    assert f"0123456789ab 400 2 answered {now:.1f} {new:.1f}" in text(overview())


def test_the_page_of_the_start_compiles_what_the_meter_of_a_later_one_needs(monkeypatch):
    calls = []
    monkeypatch.setattr(_page, "_hidden", lambda *arguments: calls.append(arguments) or (45.0, 44.0))
    render(overview(repeated=()))
    assert [points for *_, points in calls] == [(0, 1)]


@pytest.mark.parametrize(("balance", "percent"), [(5.0, 100.0), (1.58769, 31.8), (0.0, 0.0)])
def test_the_bar_shows_what_its_headline_says(balance, percent):
    top = render(overview(left=balance, spent=5.0 - balance)).partition('class="number"')[2]
    assert f'<rect width="{percent}"' in top.partition("</svg>")[0]


def test_each_client_opens_to_what_it_asked_and_when():
    table = text(overview()).partition("One by one")[2]
    assert "alice : ε 0.500 left of 2" in table
    assert "Answers left 400 In the last 24 hours 300 Empty 2026-11-19 (in 1 day)" in table
    assert "2026-11-18 11:05:40: entry 4,998, question 0123456789ab , abstained" in table
    assert "Refused 12 times, last 2026-11-18 10:56:40: budget_exceeded" in table


# The drawing


def drawn(view: Overview) -> list[tuple[float, float]]:
    """Entry and epsilon of each step, read back from the path."""
    steps = re.findall(r"H([\d.]+)V([\d.]+)", DRAWING.search(render(view))[1])
    top = view.epsilon * 1.04
    return [(float(x) / 1000 * view.ledger.entries, (1 - float(y) / 300) * top) for x, y in steps]


def test_the_drawing_steps_where_the_history_does():
    history = ((2, 1.0, None), (10, 1.5, None), (4_000, 2.25, None), (5_000, 3.0, None))
    steps = drawn(overview(history=history, spent=3.0, left=2.0))
    assert steps == [pytest.approx(point[:2], abs=0.3) for point in history]


def test_a_long_history_is_thinned_and_keeps_its_end():
    history = tuple((n, 3.41231 * (n / 10**5) ** 0.5, n) for n in range(1, 10**5 + 1))
    steps = drawn(overview(history=history, ledger={"entries": 10**5}))
    assert len(steps) < 400
    assert steps[-1] == pytest.approx((10**5, 3.41231), abs=0.01)
    assert all(eps == pytest.approx(3.41231 * (max(n, 0) / 10**5) ** 0.5, abs=0.12) for n, eps in steps)


def test_the_drawing_is_told_to_those_who_cannot_see_it():
    description = html.unescape(re.search(r'<desc id="says">([^<]*)', render(overview()))[1])
    assert description.endswith("3.413 of 5 after all 5,000 entries.")
    numbers = [Decimal(n) for n in re.findall(r"([\d.]+) after entry", description)]
    assert numbers == sorted(numbers)
    assert re.findall(r"after entry ([\d,]*\d)", description) == ["1,250", "2,500", "3,750"]


TICKS = {  # a fifth to a half of the largest power of ten, and the budget in the place of the nearest
    0.003: [0, 0.001, 0.002, 0.003],
    0.5: [0, 0.1, 0.2, 0.3, 0.4, 0.5],
    1.0: [0, 0.2, 0.4, 0.6, 0.8, 1],
    1.01: [0, 0.5, 1.01],
    2.5: [0, 0.5, 1, 1.5, 2, 2.5],
    2.6: [0, 1, 2, 2.6],
    3.4: [0, 1, 2, 3.4],
    3.5: [0, 1, 2, 3.5],
    3.7: [0, 1, 2, 3, 3.7],
    5.0: [0, 1, 2, 3, 4, 5],
    5.1: [0, 2, 4, 5.1],
    64.0: [0, 20, 40, 64],
    99.0: [0, 20, 40, 60, 80, 99],
    100.0: [0, 20, 40, 60, 80, 100],
    123456.7: [0, 50_000, 123_457],
}


def test_the_numbers_beside_the_drawing_are_few_and_end_at_the_budget():
    for epsilon, ticks in TICKS.items():
        margin = re.search(r'<div class="beside"[^>]*>(.*?)</div>', render(overview(epsilon=epsilon)))[1]
        marks = [
            (float(at), float(value)) for at, value in re.findall(r"([\d.]+)%[^>]*>([\d.e+]+)</span>", margin)
        ]
        assert [value for _, value in marks] == ticks, epsilon
        places = [100 * min(value, epsilon) / (1.04 * epsilon) for value in ticks]
        assert [at for at, _ in marks] == pytest.approx(places, abs=0.01)


DRAWINGS = {  # entries with the epsilon after them
    "nothing": {"history": (), "spent": 0.0, "ledger": {"entries": 0}},
    "one entry": {"history": ((1, 0.5, AT),), "spent": 0.5, "ledger": {"entries": 1}},
    "two entries": {"history": ((1, 0.5, AT), (2, 1.0, AT + 90_000)), "spent": 1.0, "ledger": {"entries": 2}},
    "more than is left": {
        "history": ((3, 7.0, None), (10, 8.0, AT)),
        "spent": 7.5,
        "ledger": {"entries": 10},
    },
    "half counted": {
        "history": ((4, 1.0, AT - 90_000), (5, 2.0, None), (6, 3.0, AT)),
        "spent": 4.0,
        "ledger": {"entries": 20, "counted": 10},
    },
    "399 steps": {
        "history": tuple((n, n / 100, None) for n in range(1, 400)),
        "spent": 4.0,
        "ledger": {"entries": 400},
    },
    "400 steps": {
        "history": tuple((n, n / 100, None) for n in range(1, 401)),
        "spent": 4.0,
        "ledger": {"entries": 400},
    },
}


def test_drawings_are_on_record():
    """Of long ones the first and last steps; with what stands below, and is said to those who cannot see."""
    lines = []
    for name, changes in DRAWINGS.items():
        drawing = _page._drawing(overview(**changes))
        steps = re.findall(r"[HVM][^HVM]*", drawing.line)
        shown = steps if len(steps) < 20 else [*steps[:9], f" {len(steps)} ", *steps[-9:]]
        lines += [
            name,
            f"    {''.join(shown)}",
            f"    {drawing.says}",
            f"    the budget at {drawing.cap:.3f}",
        ]
        lines += [f"    {tick.at:.3f}: {tick.text} {tick.day}".rstrip() for tick in drawing.x_ticks]
        assert drawing.area == f"{drawing.line}V300Z"
    blocks.hold(RECORD, "drawings", "\n".join(lines) + "\n")


def test_times_numbers_and_names_are_written_in_one_form(monkeypatch):
    monkeypatch.setattr(_page, "now", lambda: AT)
    furthest = 100 * 366 * 86_400
    written = {
        _page.lasting: {0.999: "less than a second", 1: "1 second", 1.999: "1 second", 2: "2 seconds",
            59.9: "59 seconds", 60: "1 minute", 120: "2 minutes", 3_599: "59 minutes", 3_600: "1 hour",
            86_399: "23 hours", 86_400: "1 day", 172_800: "2 days", furthest + 1e9: "36,600 days",
            float("inf"): "36,600 days"},
        _page.date: {AT + furthest: "2127-02-02", AT + furthest + 1: "after a hundred years", 0: "1970-01-01",
            float("inf"): "after a hundred years", AT + 0.5: "2026-11-18"},
        _page.utc: {None: "–", 0: "1970-01-01 00:00:00", AT: "2026-11-18 11:06:40"},
        _page._delta: {None: "not stated", 0.0: "0", 1e-5: "1e-05 (1 in 100,000)", 0.3: "0.3 (1 in 3)",
            3e-6: "3e-06 (1 in 333,333)"},
        _page._name: {"a\tb": "a\\tb", "x" * 80: "x" * 80, "x" * 81: "x" * 79 + "…", "é\u202e": "é\\u202e"},
    }  # fmt: skip
    for write, cases in written.items():
        assert {value: write(value) for value in cases} == cases
    assert (_page._name("x" * 30, 30), _page._name("x" * 31, 30)) == ("x" * 30, "x" * 29 + "…")
    for direction, values in (
        (ROUND_FLOOR, ("1.234", "0.000", "2.000")),
        (ROUND_CEILING, ("1.235", "0.001", "2.000")),
    ):
        assert tuple(_page._rounded(value, direction=direction) for value in (1.2341, 1e-9, 2.0)) == values
        assert _page._rounded(float("inf"), direction=direction) == "infinite"
    parts = [((1.0, 3.0), 33.3), ((2.0, 1.0), 100.0), ((-1.0, 1.0), 0.0), ((1.0, 0.0), 0.0),
             ((0.5, 0.5), 100.0), ((1.0, 0.5), 100.0), ((0.25, 0.5), 50.0)]  # fmt: skip
    assert [(given, _page._part(*given)) for given, _ in parts] == parts
    ends = [(0, None, "spent"), (None, None, "not at the present rate"), (1, None, "not at the present rate"),
            (1, 86_400.0, "2026-11-19 (in 1 day)"), (None, 60.0, "2026-11-18 (in 1 minute)")]  # fmt: skip
    for n, seconds, words in ends:
        assert _page._empty(client(answers_left=n, seconds_to_empty=seconds), AT) == words


def test_alerts_name_five_clients_who_asked_and_count_the_others():
    def alerts(**changes):
        head = text(overview(**changes)).partition("Budget of the data")[0]
        return head.partition("Privacy label ")[2]

    names = ["a" * 31, *"bcdef"]
    clients = tuple(client(name, answers_left=0) for name in names)
    never = client("never", answers_left=0, answers=0)
    says = "Clients have nothing left. {}: their questions are refused. "
    assert alerts(clients=(*clients[:5], never)) == says.format(", ".join(["a" * 29 + "…", *"bcde"]))
    assert alerts(clients=clients) == says.format(", ".join(["a" * 29 + "…", *"bcde"]) + " and 1 more")
    assert alerts(clients=(client("rich", answers_left=1), client("unknown", answers_left=None))) == ""
    assert "Clients have" not in alerts(clients=clients, answers_left=0)


def test_the_meter_is_of_a_vote_of_at_least_55_percent_and_is_worked_out_for_the_times_asked(monkeypatch):
    asked = []

    def meter(ballot, votes, *, n_answers):
        asked.append((ballot, votes, n_answers))
        return np.zeros((1, len(n_answers)))

    monkeypatch.setattr("ostraka.audit.attacks.votes.leakage_meter", meter)
    ballot = GNMax(sigma=31.25)  # of no other test: values are kept
    for n_teachers, n_classes, votes in ((100, 3, [55, 45, 0]), (101, 2, [56, 45]), (7, 4, [4, 3, 0, 0])):
        assert _page._hidden(ballot, n_teachers, n_classes, (0, 1, 9)) == (0.0, 0.0, 0.0)
        assert asked.pop() == (ballot, [votes], [0, 1, 9])


# Bounds and safety


def test_thousands_of_everything_is_a_page_like_any_other():
    many = overview(
        clients=tuple(client(f"client-{n}", spent=n / 1e6) for n in range(2_000)),
        refusals=tuple(refusal(f"client-{n}", "too_fast", n) for n in range(2_000)),
        costs=tuple(CostView(mechanism=f"GNMax(sigma={n})", epsilon=0.1, answers=1) for n in range(2_000)),
        latest=tuple(answer(n) for n in range(2_000)),
        history=tuple((n, n / 1e6, None) for n in range(1, 10_000)),
    )
    page = render(many)
    assert len(page) < 150_000
    assert "And 1,950 more, who spent less each" in str(Text(page))
    assert page.count("<bdi>client-1999<") == 3


def test_text_of_others_stays_text():
    page = render(alarming())
    tags = Text(page).tags
    assert [tag for tag, _ in tags if tag in ("script", "img", "iframe", "object")] == []
    assert [name for _, attrs in tags for name in attrs if name.startswith("on")] == []
    assert "document.title='owned'" in html.unescape(page)


def test_names_cannot_hide_what_they_are_and_one_of_any_length_takes_a_line():
    assert "a\\u202eb\\u200bc\\nd" in text(overview(clients=(client("a\u202eb\u200bc\nd"),)))
    assert "w" * 79 + "…" in text(alarming())
    assert "w" * 80 not in text(alarming())


def test_headings_captions_and_regions_are_there_for_those_who_listen():
    tags = Text(render(overview())).tags
    names = [tag for tag, _ in tags]
    assert names.count("h1") == names.count("main") == names.count("header") == names.count("footer") == 1
    assert names.count("table") == names.count("caption") == 7
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in tags if tag == "th")
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    pointed = " ".join(attrs["aria-labelledby"] for _, attrs in tags if "aria-labelledby" in attrs).split()
    pointed += [attrs["href"][1:] for tag, attrs in tags if tag == "a" and attrs["href"][0] == "#"]
    assert set(pointed) <= set(ids)


def test_nothing_is_asked_of_anybody_else():
    tags = Text(render(overview())).tags
    links = [attrs.get(name) for _, attrs in tags for name in ("src", "href", "action") if name in attrs]
    assert {link for link in links if not link.startswith("#")} == {"data:,", "/", "/?every=60"}
    assert not re.search(r"url\(|@import", render(overview()))
