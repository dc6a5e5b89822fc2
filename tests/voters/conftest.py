"""Shared by tests of voters.

A small real classifier behind an OpenAI-compatible server on this machine: bench/_language.py.
"""

import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GOOD = ["joy", "delight", "wonderful", "moving", "warm", "funny", "clever", "bright", "tender", "superb"]
BAD = ["dull", "tedious", "awful", "clumsy", "cold", "bleak", "boring", "stale", "lifeless", "dreadful"]
PUBLIC = [frame.format(word) for frame in ("a {} film", "this was {}") for word in GOOD + BAD]


@pytest.fixture(scope="session")
def language():
    return importlib.import_module("bench._language")


@pytest.fixture(scope="session")
def model(language):
    """A real classifier of public texts, which learns from demonstrations what the words mean."""
    return language.Matcher(PUBLIC, (["good"] * 10 + ["bad"] * 10) * 2)


@pytest.fixture
def server(language, model):
    with language.LocalEndpoint(model.answer) as running:
        yield running
