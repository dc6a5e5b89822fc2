"""Shared by tests of voters.

A small real classifier behind an OpenAI-compatible server on this machine: bench/_language.py.
Small parties, and a wire between them that keeps and changes messages.
"""

import importlib
from pathlib import Path

import pytest
from sklearn.naive_bayes import GaussianNB

from ostraka.voters.parties import PartyEnsemble

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


class Wire:
    """A party's link that keeps what went over it, and may change it."""

    def __init__(self, link, *, sent=None, received=None):
        self.link, self.log = link, {}
        self.sent, self.received = sent or {}, received or {}

    def __getattr__(self, verb):
        def ask(sealed, most):
            self.log[f"{verb} request"] = sealed = self.sent.get(verb, lambda x: x)(sealed)
            answer = self.received.get(verb, lambda x: x)(getattr(self.link, verb)(sealed, most))
            self.log[f"{verb} answer"] = answer
            return answer

        return ask


@pytest.fixture(scope="session")
def ensemble():
    """Make parties that always vote for their one class: number modulo ``n_classes`` unless told."""

    def make(n_parties: int = 3, *, n_classes: int = 3, votes=None, **options) -> PartyEnsemble:
        votes = [number % n_classes for number in range(n_parties)] if votes is None else votes
        data = [([[0.0, 1.0]], [vote]) for vote in votes]
        return PartyEnsemble.in_process(
            GaussianNB(), data, classes=range(n_classes), **({"sigma": 1.0} | options)
        )

    return make


@pytest.fixture(scope="session")
def tap():
    """Put such a wire between the ensemble and one party."""

    def put(parties: PartyEnsemble, name: str = "party-1", **changes) -> Wire:
        parties._links[name] = Wire(parties._links[name], **changes)
        return parties._links[name]

    return put
