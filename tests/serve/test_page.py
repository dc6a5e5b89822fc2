"""The owner's page: what it says, and that it says no more."""

import difflib
import html
import itertools
import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ostraka import GNMax
from ostraka.attacks import leakage_meter
from ostraka.serve import owner as _page
from ostraka.serve.owner import CostView, Overview, render
from tests.golden import blocks, pages
from tests.serve.examples import LABEL, alarming, answer, client, nothing_yet, overview, refusal, spent

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


@pytest.mark.parametrize("name", VIEWS)
def test_the_page_says_what_it_knows_and_no_more(name):
    """Whole, then what differs; where sums of two units or relations would be wrong, none is said."""
    lines, busy = (pages.text(render(view)).splitlines() for view in (VIEWS[name], VIEWS["busy"]))
    if name != "busy":
        lines = [line for line in difflib.ndiff(busy, lines) if line[:2] in {"- ", "+ "}]
    blocks.hold(Path(blocks.__file__).with_name("owners.txt"), name, "\n".join(lines) + "\n")


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


def test_a_history_that_is_half_counted_is_drawn_as_far_as_it_goes():
    view = overview(history=((10, 1.0, None), (2_000, 1.5, None)), ledger={"counted": 2_000})
    assert re.search(r"H1000\.0V[\d.]+H1000\"", render(view))


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


def test_no_point_lies_above_what_is_spent_by_now():
    view = overview(history=((2, 1.0, None), (4_000, 2.25, None), (5_000, 2.3, None)), spent=2.2, left=2.8)
    assert [epsilon for _, epsilon in drawn(view)] == pytest.approx([1.0, 2.2, 2.2], abs=0.01)
    assert "2.3" not in text(view)


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


@pytest.mark.parametrize("epsilon", [0.003, 0.5, 1.0, 3.7, 5.0, 10.0, 64.0, 99.0])
def test_the_numbers_beside_the_drawing_are_few_and_end_at_the_budget(epsilon):
    margin = re.search(r'<div class="beside"[^>]*>(.*?)</div>', render(overview(epsilon=epsilon)))[1]
    values = [float(value) for value in re.findall(r">([\d.]+)</span>", margin)]
    assert values[0] == 0.0
    assert values[-1] == epsilon
    assert 3 <= len(values) <= 7
    gaps = [b - a for a, b in itertools.pairwise(values)]
    assert all(gap > 0 for gap in gaps)
    assert min(gaps) > 0.4 * max(gaps)


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
