"""Report: one table, one sentence, one label and one page, none of which says more than the record allows."""

import dataclasses
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from ostraka import GNMax
from ostraka.core.curve import Curve
from ostraka.core.laws import tables
from ostraka.core.result import Result
from ostraka.learn.cli import show_result
from ostraka.report import render_html
from ostraka.report.page import (
    Figure,
    at_most,
    attack_drawing,
    fair_guess,
    most_detected,
    of_table,
    privacy_label,
    summary_table,
)
from tests.golden import blocks, pages

OWNER_CANARY = "0.7654321"
RECORDED = blocks.read(pages.RECORD)


@pytest.mark.parametrize("name", sorted({*RECORDED, *pages.CASES}))
def test_a_page_says_what_was_read_and_agreed_to(name):
    blocks.hold(pages.RECORD, name, pages.CASES[name]())


def example(**changes) -> Result:
    fields = {
        "kind": "learn",
        "settings": {"n_units": 1297, "unit": "person", "relation": "replace-one"}
        | {"mechanism": "GNMax(sigma=18.0)"},
        "upper": {"epsilon": 3.6499, "delta": 1e-4, "accountant": "tight Rényi curves", "simulation": False}
        | {"noise": "ChaCha20 keyed by the operating system", "horizon": "200 answers"}
        | {"not_protected": ["the number of rows"]},
        "utility": {"student": 0.893, "answered": 200, "abstained": 12},
        "owner": {
            "epsilon_these_votes": 2.7431,
            "utility": {"plurality": 0.7654321},
            "consensus": [0.7654321],
        },
        "notes": ("A note.",),
    }
    return Result(**{**fields, **changes})


class Page(HTMLParser):
    """Tags, attributes and text of a page, and whether every tag is closed in order."""

    VOID = ("meta", "br", "hr", "img", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += " ".join(data.split()) + " "


def rows(result: Result) -> dict[str, str]:
    return {row.name: row.value for row in summary_table(result)}


def test_an_upper_bound_is_never_printed_smaller_than_it_is_nor_a_lower_one_larger():
    for value in [*np.random.default_rng(0).exponential(size=500), 2.743, 0.1 + 0.2, 1e-9, 400.0]:
        printed = float(at_most(float(value)))
        assert value <= printed < value + 0.001 + 1e-12
    assert at_most(math.inf) == "infinite"
    lower = {"epsilon": 0.12399, "confidence": 0.95}
    assert rows(example(lower=lower))["Epsilon, lower bound"] == "0.123 (confidence 95.0 %)"
    assert rows(example(lower={}))["Epsilon, lower bound"] == "0"


def test_the_table_marks_what_only_the_owner_may_see():
    marked = {row.name for row in summary_table(example()) if row.owner_only}
    assert marked == {"Epsilon for these votes, at most", "Accuracy of the plurality, no noise"}
    assert not any(row.owner_only for row in summary_table(example().public()))
    assert OWNER_CANARY[:4] not in str(summary_table(example().public()))


def test_the_terminal_marks_the_same_lines(capsys):
    show_result(example())
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("[owner only]") == 3  # two lines, and what the mark means
    assert "do not pass them on" in out
    show_result(example().public())
    assert "[owner only]" not in capsys.readouterr().out


@pytest.mark.parametrize("relation", ["zero-out", "add-or-remove", "something new", None])
def test_only_replaced_data_is_claimed_to_hide_which_of_two_versions_it_was(relation):
    kept = {name: value for name, value in example().settings.items() if name != "relation"}
    settings = kept if relation is None else {**kept, "relation": relation}
    result = example(settings=settings)
    page = render_html(result)
    claim = privacy_label(result)["claim"]
    assert "between any version of that person's data and none at all by at most" in claim
    assert "whether one person was left out" in page
    assert "two versions" not in page
    assert "between any two versions of that person's data" in privacy_label(example())["claim"]


def test_bounds_of_different_meaning_never_share_a_heading():
    # of 1,000,000 rows, the bound for these votes was below what an attack on the worst votes finds
    result = example(
        upper={"epsilon": 1.0, "delta": 1e-7},
        lower={"epsilon": 0.6},
        owner={"epsilon_these_votes": 0.489},
    )
    headings = {row.name: row.heading for row in summary_table(result) if row.name.startswith("Epsilon")}
    assert len(headings) == len(set(headings.values())) == 3
    assert "worst votes" in headings["Epsilon, lower bound"]
    assert "votes of this run" in headings["Epsilon for these votes, at most"]


def test_a_delta_that_rounding_made_a_little_larger_is_said_in_round_numbers():
    for delta, words in ((0.1 / 10**6 * (1 + 2e-16), "1 in 10,000,000)"), (1 / 9_999_900, "1 in 9,999,900)")):
        assert words in rows(example(upper={"epsilon": 1.0, "delta": delta}))["Delta"]


def most_caught(epsilon: float, delta: float, alarm: float) -> float:
    """The best test against the worst (epsilon, delta) pair of distributions, by linear programming."""
    odds = math.exp(epsilon)
    law = np.array([delta, (1 - delta) * odds / (1 + odds), (1 - delta) / (1 + odds), 0.0])
    return -linprog(-law, A_ub=[law[::-1]], b_ub=[alarm], bounds=(0, 1)).fun


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.04])
def test_the_page_states_what_the_best_attack_catches(epsilon, delta):
    page = Page(render_html(example(upper={"epsilon": epsilon, "delta": delta, "simulation": False})))
    caught = int(re.search(r"in at most (\d+) of 100 cases", page.text)[1])
    assert caught - 1 < 100 * most_caught(epsilon, delta, 0.05) + 1e-9 <= caught + 1e-6


def gaussian(mu: float) -> Result:
    """A record of a Gaussian mechanism, whose trade-off curve is known in closed form."""
    curve = Curve.gaussian(sensitivity=mu, sigma=1.0)
    return example(upper={"epsilon": curve.epsilon(1e-5), "delta": 1e-5, "curve": curve.to_dict()})


@pytest.mark.parametrize("mu", [0.2, 0.5, 1.0, 2.0])
def test_the_attack_is_that_of_the_exact_trade_off_curve(mu):
    upper = gaussian(mu).upper
    detected, right = norm.cdf(norm.ppf(0.05) + mu), norm.cdf(mu / 2)
    assert detected <= most_detected(upper) <= detected + 1e-9
    for alarm in (1e-4, 0.3, 0.9):
        power = norm.cdf(norm.ppf(alarm) + mu)
        assert power <= most_detected(upper, false_alarm=alarm) <= power + 1e-9
    assert right <= fair_guess(upper) <= right + 1e-6
    alone = {name: upper[name] for name in ("epsilon", "delta")}
    assert most_detected(alone) > most_detected(upper)


def test_the_attack_on_many_answers_is_that_of_their_exact_composition():
    """From the table of the exact composition, whatever the votes: below every Gaussian bound of the same."""
    answers = 100 * GNMax(sigma=40.0).curve(bound="exact")
    upper = {"epsilon": answers.epsilon(1e-5), "delta": 1e-5, "curve": answers.to_dict()}
    [table] = tables.of(answers.laws).each
    odds = np.exp(table.step * (table.start + np.arange(len(table.values))))
    by_table = float((odds * 0.05 + table.values).min())  # on the grid: a little above the chords between
    assert by_table - 1e-4 < most_detected(upper) <= by_table + 1e-12
    assert fair_guess(upper) == pytest.approx((1 + float(table.values[-table.start])) / 2, abs=1e-9)
    gaussian_dp = norm.cdf(norm.ppf(0.05) + math.sqrt(answers.mu_squared))
    renyi = {**upper, "curve": dataclasses.replace(answers, laws=None, mu_squared=math.inf).to_dict()}
    assert most_detected(upper) < 0.93 * gaussian_dp < most_detected(renyi)
    alone = {name: upper[name] for name in ("epsilon", "delta")}
    assert most_detected(upper) < 0.6 * most_detected(alone)


def test_an_attacker_is_drawn_unless_nothing_is_promised():
    page = render_html(gaussian(1.0))
    assert 'class="attack"' in page
    assert "at most 70 with all that was released" in page
    assert "at most 26 of 100 cases" in Page(page).text
    simulated = {**gaussian(1.0).upper, "simulation": True}
    assert 'class="attack"' not in render_html(example(upper=simulated))
    for detected in (None, 0.2):
        drawing = attack_drawing(example().upper, what="who", detected=detected)
        assert (drawing is None) == (detected is None)


@pytest.mark.parametrize(("releases", "many"), [(0, "0 releases"), (1, "1 release"), (2, "2 releases")])
def test_all_releases_of_a_table_are_added_up_in_one_line(releases, many):
    table = {"epsilon": 2.0004, "delta": 1e-5, "releases": releases, "others": 0}
    assert of_table(table) == f"epsilon at most 2.001 at delta 1e-05 (1 in 100,000), by {many}"


FIGURES = (
    Figure(title="Open", caption="c", alt='a "quoted" line', svg="<svg><path/></svg>"),
    Figure(title="Closed", caption="c", alt="b", svg=f"<svg>{OWNER_CANARY}</svg>", owner_only=True),
)


def test_the_page_fences_the_owner_part_and_can_leave_it_out():
    page = render_html(example(), figures=FIGURES)
    before, fence, after = page.partition('<section class="owner"')
    assert fence
    assert "Closed" not in before
    assert "2.744" not in before
    assert "2.744" in after
    public = render_html(example().public(), figures=FIGURES)
    for private in ("Closed", OWNER_CANARY, "2.744", "76.5", "For the owner of the data only"):
        assert private not in public


def test_the_page_stands_alone_and_reads_aloud():
    page = Page(render_html(example(), figures=FIGURES))
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not [value for _, attrs in page.tags for value in attrs.values() if value and "//" in value]
    assert ("html", {"lang": "en"}) in page.tags
    pictures = [attrs["aria-label"] for _, attrs in page.tags if attrs.get("role") == "img"]
    assert pictures[1:] == ['a "quoted" line', "b"]
    assert pictures[0].startswith("Of 100 guesses")
    names = [tag for tag, _ in page.tags]
    assert names.count("table") == names.count("caption") == names.count("thead")
    assert all("scope" in attrs for tag, attrs in page.tags if tag == "th")


def test_text_of_the_record_cannot_become_markup():
    page = render_html(example(settings={"label": "<script>alert(1)</script>"}, notes=("<b>",)))
    assert "<script>" not in page
    assert "<b>" not in page
