"""Fixtures for the tests of commands."""

import threading

import click
import pytest

import ostraka.report.figures
from ostraka.secure.wire import PartyServer
from tests.cli.learning import tables
from tests.cli.terminal import Role

drawing = ostraka.report.figures.svg


@pytest.fixture(scope="module", autouse=True)
def _frames_without_drawings():
    """Drawings take more than half of a small run, and tests/report/test_plots.py looks at each of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ostraka.report.figures, "svg", lambda _: "<svg></svg>")
        yield


@pytest.fixture
def drawn(monkeypatch):
    """A test that is drawn for all the same."""
    monkeypatch.setattr(ostraka.report.figures, "svg", drawing)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Tables, in the directory where all commands run."""
    monkeypatch.chdir(tmp_path)
    return tables(tmp_path)


@pytest.fixture
def start(monkeypatch):
    """Start a role; those that serve until an interrupt are closed after the test."""
    servers, echo = [], click.echo

    class Recorded(PartyServer):
        def __init__(self, *role, **how):
            super().__init__(*role, **how)
            servers.append(self)

        def __exit__(self, *why):
            super().__exit__(*why)
            servers.remove(self)  # so that its role, and the lock of its log, can go

    def spoken(message=None, **how):
        said = Role.speaking.get(threading.get_ident())
        return echo(message, **how) if said is None else said.put(str(message))

    monkeypatch.setattr(click, "echo", spoken)
    monkeypatch.setattr("ostraka.secure.wire.PartyServer", Recorded)
    monkeypatch.setattr(Role, "speaking", {})
    yield Role
    for server in servers:
        server.close()
