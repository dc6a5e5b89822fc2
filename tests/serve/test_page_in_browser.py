"""The owner's page in a real browser: read in light and dark, on narrow screens, by keyboard, by an owner."""

import os
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import pytest

from ostraka.secure.server import Reply
from ostraka.serve.owner import render
from tests.serve.examples import PAGES
from tests.threads import Handler, http_server


@pytest.fixture(scope="module")
def pages():
    """The example pages on a port of this machine, with the headers that the service gives them."""
    replies = {f"/{name}": Reply.html(render(make_view())) for name, make_view in PAGES.items()}

    class Pages(Handler):
        def reply(self):
            self.wfile.write(replies[self.path].raw())

    with http_server(Pages) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_fits_and_asks_nobody(browser, pages, name, tmp_path):
    """axe-core looks at it if OSTRAKA_AXE names it: ``npm pack axe-core`` brings the file."""
    for width, dark in ((320, False), (390, True), (768, False), (1280, True)):
        browser.open(f"{pages}/{name}", width=width, dark=dark)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        contrasts = browser.contrasts()
        assert len(contrasts) > 50
        assert [contrast for contrast in contrasts if contrast[0] < 4.5] == [], (width, dark)
        paper = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")
        assert [url for url in browser.requests() if not url.startswith("data:")] == [f"{pages}/{name}"]
        assert browser.complaints() == []
        assert browser.ask("document.title") == "Budget and answers: ostraka"
        assert browser.ask("document.images.length + document.scripts.length") == 0
        if axe := os.environ.get("OSTRAKA_AXE"):
            browser.ask("document.querySelectorAll('details').forEach(each => { each.open = true })")
            browser.ask(Path(axe).read_text(encoding="utf-8") + "; true")
            violations = "axe.run().then(seen => [seen.passes.length, seen.violations.map(v => v.id)])"
            passes, rules = browser.ask(violations)
            assert (passes > 20, rules) == (True, [])
    if name == "busy":  # a picture of a whole page takes as long as all else here
        browser.picture(tmp_path / "page.png")
        assert (tmp_path / "page.png").read_bytes()[:4] == b"\x89PNG"


def test_the_measure_of_contrast_sees_text_that_cannot_be_read(browser, pages):
    browser.open(f"{pages}/busy")
    browser.ask("document.querySelector('h1').style.color = '#aaa'")
    assert browser.contrasts()[1] == [pytest.approx(2.32, abs=0.01), "Budget and answers"]


def test_the_drawing_and_its_numbers_agree_on_the_screen(browser, pages):
    browser.open(f"{pages}/busy", width=390)
    cap, number = browser.box(".plot .cap"), browser.box(".beside span:last-child")
    assert cap["top"] == pytest.approx((number["top"] + number["bottom"]) / 2, abs=1.5)
    assert number["right"] <= browser.box(".plot svg")["left"]
    assert browser.box(".plot svg")["right"] <= 390
    assert browser.ask("document.querySelector('.beside span:last-child').innerText") == "5"


def test_everything_is_within_reach_of_a_keyboard(browser, pages):
    browser.open(f"{pages}/busy", width=390)
    reached = []
    focused = "(e => e.getAttribute('href') || e.getAttribute('role') || e.localName)(document.activeElement)"
    for _ in range(19):
        browser.press("Tab")
        reached.append(browser.ask(focused))
        assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached[0] == "#content"
    assert reached.count("region") == 7
    assert reached.count("summary") == 2
    assert browser.ask("document.activeElement.getBoundingClientRect().left") >= 0


def test_a_client_opens_by_keyboard_and_fits_a_phone(browser, pages):
    browser.open(f"{pages}/busy", width=390)
    browser.ask("document.querySelectorAll('summary')[1].focus()")
    browser.press("Enter")
    assert "entry 4,998" in browser.ask("document.querySelectorAll('details')[1].innerText")
    assert browser.ask("document.documentElement.scrollWidth") <= 390


# Behind the service's door


def as_owner(service) -> str:
    """The address with a key in it, as a person types it."""
    return service.url.replace("//", f"//olga:{service.keys['olga']}@") + "/"


def rounded(value: float, direction: str) -> str:
    return str(Decimal(repr(value)).quantize(Decimal("0.001"), rounding=direction))


def test_an_owner_sees_budgets_and_answers_of_a_living_service(browser, service):
    for number in range(3):
        assert service.label([1.0, 2.0, 3.0], key=f"same-{number}").status_code == 200
    service.label([3.0, 0.0, 0.0], key="other", who="bob")
    assert service.label([0.0, 0.0, 9.0], key="other", who="bob").status_code == 409
    browser.open(as_owner(service))
    assert {url.split("@")[-1] for url in browser.requests() if not url.startswith("data:")} == {
        service.url.removeprefix("http://") + "/"
    }
    assert browser.complaints() == []
    description = " ".join(browser.ask("document.body.innerText").split())
    accounts = {account.name: account for account in service.there.accounts()}
    assert f"{rounded(service.there.ledger.left(), ROUND_FLOOR)} left of 50" in description
    assert f"alice {rounded(accounts['alice'].spent, ROUND_CEILING)} 20" in description
    assert "bob key_conflict" in description
    assert f"{service.entries()[0].digest[:12]} 3 1" in description
    assert service.there.ledger.head in description


def test_the_page_runs_nothing_is_kept_nowhere_and_has_no_vote_label_or_row(shared):
    shared.label([1.2345, 6.789, -4.321], key="canary")
    with shared.http("olga") as http:
        reply = http.get("/")
    policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert "script-src" not in policy
    assert reply.headers["cache-control"] == "no-store"
    words = set(re.findall(r"[\w.-]+", re.sub(r"<style>.*?</style>", "", reply.text, flags=re.DOTALL)))
    assert {"alice", "answered", "1"} <= words
    rows, labels = {"1.2345", "6.789", "-4.321", "4.321"}, {"green", "red", "blue"}
    assert words & {*rows, *labels, *shared.keys.values()} == set()
