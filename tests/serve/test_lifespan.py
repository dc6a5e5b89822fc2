"""Start and end of the service: the owner's page is drawn first, and the ledger is closed in the end."""

import asyncio
import logging
import threading
from types import SimpleNamespace

import pytest

from ostraka.ledger import LedgerError
from ostraka.serve import app
from ostraka.serve.app import Application
from ostraka.serve.deployment import Settings
from ostraka.serve.requests import Rows

WHOLE = ["drawn", "started", "closed"]


@pytest.fixture
def events():
    return []


@pytest.fixture
def served(events):
    """An application whose ledger says when it is closed."""

    async def close():
        events.append("closed")

    rows = Rows(("a",), (True,), most=1)
    deployment = SimpleNamespace(
        start=lambda: None, close=close, rows=rows, classes=["yes", "no"], settings=Settings(), keys=None
    )
    return Application(deployment)


def live(served, events, *, draw=lambda: None):
    """Start and stop an application as its server does; its first page ends after the start, or in 0.2 s."""

    async def both():
        await served.start()
        events.append("started")
        released.set()
        await served.close()

    def overview(_):
        released.wait(0.2)
        events.append("drawn")
        draw()

    released = threading.Event()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "overview", overview)
        patched.setattr(app, "render", lambda _: None)
        asyncio.run(both())


def test_the_first_page_is_drawn_before_clients_are_let_in(served, events):
    live(served, events)
    assert events == WHOLE


def test_a_page_that_takes_long_does_not_hold_up_the_start(served, events, monkeypatch):
    monkeypatch.setattr(app, "_FIRST_PAGE", 0.01)
    live(served, events)
    assert events == ["started", "drawn", "closed"]


@pytest.mark.parametrize(
    ("error", "logged"),
    [(ValueError("canary7391"), "unexpected ValueError in drawn"), (LedgerError("canary7391"), "")],
    ids=["of the page", "of the ledger"],
)
def test_the_ledger_is_closed_in_the_end_though_no_page_can_be_drawn(served, events, caplog, error, logged):
    def drawn():
        raise error

    with caplog.at_level(logging.INFO, "ostraka.service"):
        live(served, events, draw=drawn)
    assert events == WHOLE
    assert "canary7391" not in caplog.text
    assert (logged in caplog.text) if logged else not caplog.text
