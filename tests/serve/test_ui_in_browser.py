"""The page of ``ostraka ui`` in Chromium: by mouse and keyboard, narrow and wide, light and dark.

axe-core looks at it if OSTRAKA_AXE names it (CONTRIBUTING.md).
"""

import itertools
import json
import os
import time
from pathlib import Path

import pytest

from ostraka.learn.ways.choose import Estimate, Forecast
from ostraka.serve.ui import EPSILONS, Outlook
from tests.serve.workbench import OWNER, PATIENCE, Bench, visits

_NAMES = """
(() => {  // what a screen reader says of everything that can be reached by keyboard
  const labels = node => [...(node.labels || [])].map(label => label.textContent).join(' ');
  const name = node => (node.getAttribute('aria-label') || labels(node) || node.textContent || '').trim();
  const reachable = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
    .filter(node => node.checkVisibility());
  return reachable.map(node => [node.tagName, name(node)]);
})()
"""


def forecasts(self):
    """Made-up accuracies of all ways: what is forecast has tests of its own."""
    self._basis = "public rows stand for the private rows"
    for k, method in enumerate(self.WAYS):
        for n, epsilon in enumerate(EPSILONS):
            hopeless = method == "argmax" and not n
            accuracy = None if hopeless else Estimate(*(0.5 + 0.03 * n - 0.02 * k,) * 3)
            self._forecasts.setdefault(method, {})[epsilon] = Forecast(plan=None, accuracy=accuracy)
    self.done = True


@pytest.fixture
def fresh(tmp_path_factory):
    """A bench to which nobody came yet, and the two tables that a person brings."""
    folder = tmp_path_factory.mktemp("ui")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Outlook, "run", forecasts)
        patched.setenv("STAND_IN_LOG", str(folder / "log"))
        workbench = Bench(folder)
        (folder / "visits.csv").write_bytes(visits(1500))
        (folder / "others.csv").write_bytes(visits(600, seed=1))
        yield workbench
        workbench.close()


@pytest.fixture
def bench(browser, fresh):
    """A bench at which the browser's owner has learned one model."""
    browser.open(fresh.link)
    cookies = browser.do("Network.getCookies", urls=[f"http://{fresh.host}/"])["cookies"]
    assert all(cookie["httpOnly"] and cookie["sameSite"] == "Strict" for cookie in cookies)
    fresh.cookie = "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in cookies)
    for role, name in (("private", "visits.csv"), ("public", "others.csv")):
        fresh.drop(role, name, (fresh.log.parent / name).read_bytes())
    fresh.say("/check", OWNER)
    fresh.wait(lambda state: state["outlook"] and state["outlook"]["done"])
    fresh.say("/spend", {"ticket": fresh.planned()})
    fresh.wait(lambda state: state["release"]["status"] == "done")
    return fresh


def until(browser, expression):
    end = time.monotonic() + PATIENCE
    while not browser.ask(f"Boolean({expression})"):
        assert time.monotonic() < end, browser.ask("JSON.stringify(state)")
        time.sleep(0.02)


def choose(browser, selector, path):
    """As a person chooses a file in the browser's own window."""
    root = browser.do("DOM.getDocument")["root"]["nodeId"]
    node = browser.do("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
    browser.do("DOM.setFileInputFiles", files=[str(path)], nodeId=node)


def focused(browser):
    return browser.ask(
        "document.activeElement.id || document.activeElement.value || document.activeElement.tagName"
    )


def tab_to(browser, wanted):
    """Press Tab until an element has the focus."""
    for _ in range(60):
        if focused(browser) == wanted:
            return
        browser.press("Tab")
    raise AssertionError(f"{wanted} cannot be reached by keyboard")


def test_a_model_is_learned_by_keyboard_alone(browser, fresh):
    browser.open(fresh.link)
    until(browser, "state")
    assert browser.ask("location.href") == f"http://{fresh.host}/"  # the key is not in the history
    choose(browser, "#input-private", fresh.log.parent / "visits.csv")
    until(browser, "state.check")
    choose(browser, "#input-public", fresh.log.parent / "others.csv")
    until(browser, "state.tables.public && !state.busy")
    assert browser.ask("$('pricing').checkVisibility()") is False
    tab_to(browser, "label")
    browser.press("i")  # the first column that begins so
    until(browser, "state.check.label === 'ill' && !state.busy")
    tab_to(browser, "rows")
    browser.press(" ")
    until(browser, "state.check.ready && state.outlook && state.outlook.done")
    tab_to(browser, "slider")
    reply = browser.ask("$('slider').getAttribute('aria-valuetext')")
    assert reply.startswith("epsilon 1. Whatever anyone believed about one row beforehand")
    browser.press("ArrowLeft")
    assert browser.ask("$('epsilon').textContent") == "0.5"
    assert "1.65" in browser.ask("$('words').textContent")  # e to the power of a half
    assert browser.ask("document.querySelector('input[name=way]:checked').value") == "filter"
    for _ in range(2):
        browser.press("ArrowLeft")
    assert browser.ask("document.querySelector('input[value=argmax]').disabled") is True  # at epsilon 0.1
    tab_to(browser, "plan")
    browser.press("Enter")
    until(browser, "state.release && state.release.status === 'planned'")
    plan = browser.ask("$('lines').textContent")
    assert "<b>counts</b>" in plan  # shown as it is, and not made bold
    assert focused(browser) == "progress"
    tab_to(browser, "pay")
    assert browser.ask("document.activeElement.textContent") == "Spend ε ≤ 0.1 of visits.csv"
    browser.press("Enter")
    until(browser, "state.release.status === 'done'")
    assert browser.ask("document.querySelectorAll('.run a').length") == 6
    assert browser.ask("$('status').textContent") == "Done"
    typed = [words for words in fresh.commands() if "--yes" in words]
    assert len(typed) == 1
    assert typed[0][typed[0].index("--epsilon") + 1] == "0.1"
    assert browser.complaints() == []
    sent = {url for url in browser.requests() if not url.startswith("data:")}
    assert {url.split("/")[2] for url in sent} == {fresh.host}


def test_the_whole_page_fits_and_can_be_read_and_heard(browser, bench):
    """With a model learned, so that everything is on the page."""
    for width, dark in itertools.product((320, 390, 1280), (False, True)):
        browser.open(f"http://{bench.host}/", width=width, dark=dark)
        until(browser, "state && state.runs.length")
        browser.ask("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert browser.ask("document.documentElement.scrollWidth") <= width
        contrasts = browser.contrasts()
        assert len(contrasts) > 60
        assert [contrast for contrast in contrasts if contrast[0] < 4.5] == [], (width, dark)
        names = browser.ask(_NAMES)
        assert len(names) > 20
        assert [kind for kind, name in names if not name] == []
        levels = browser.ask(
            "[...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))"
        )
        assert all(level <= above + 1 for above, level in itertools.pairwise(levels))
        ids = browser.ask("[...document.querySelectorAll('[id]')].map(node => node.id)")
        assert len(ids) == len(set(ids))
        if axe := os.environ.get("OSTRAKA_AXE"):
            browser.ask(Path(axe).read_text(encoding="utf-8"))
            violations = "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
            assert browser.ask(violations) == []


def test_a_second_tab_cannot_spend_the_same_plan(browser, bench):
    ticket = bench.planned()
    pages = [browser.tab(f"http://{bench.host}/") for _ in range(2)]
    spent = f"ask('/spend', {{ticket: {json.dumps(ticket)}}}).then(() => $('error').textContent)"
    texts = [browser.ask(spent, tab=page) for page in pages]
    assert texts == ["", "this plan was spent already, or another one was made since"]
    for page in pages:
        browser.close_tab(page)
    bench.wait(lambda state: state["release"]["status"] == "done")


def test_a_page_of_another_origin_can_neither_read_nor_send(browser, bench):
    browser.open("data:text/html,<title>elsewhere</title>")
    for how in (
        "{credentials: 'include'}",
        "{method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}'}",
    ):
        reply = browser.ask(
            f"fetch('http://{bench.host}/spend', {how}).then(r => r.type + r.status, e => e.name)"
        )
        assert reply in {"TypeError", "opaque0"}
    assert bench.state()["release"]["status"] == "done"
