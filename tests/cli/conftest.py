"""Fixtures for the tests of commands."""

import pytest

import ostraka.report.figures
from tests.cli.learning import tables

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
