"""Fixtures for the tests of commands."""

import pytest

from tests.cli.learning import tables


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Tables, in the directory where all commands run."""
    monkeypatch.chdir(tmp_path)
    return tables(tmp_path)
