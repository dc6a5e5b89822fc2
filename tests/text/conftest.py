"""Shared by tests of private text: documents that agree, and a model that remembers what it was asked."""

import pytest

from ostraka.text import WordModel, Writer

WORDS = ["the", "plot", "acting", "is", "was", "dull", "fine", "warm", "zebra", "quartz"]


class Asked(WordModel):
    """A WordModel that writes down what it is asked, and fails after so many calls."""

    def __init__(self, *, fails_after=None, refuses=""):
        super().__init__(WORDS, weight=30.0)
        self.calls, self.fails_after, self.refuses = [], fails_after, refuses

    def next_tokens(self, prompts, tokens, *, shown):
        if self.fails_after is not None and len(self.calls) >= self.fails_after:
            raise KeyboardInterrupt
        self.calls.append((list(prompts), list(tokens)))
        answers = super().next_tokens(prompts, tokens, shown=shown)
        refused = [bool(self.refuses) and self.refuses in prompt for prompt in prompts]
        return [None if none else answer for none, answer in zip(refused, answers, strict=True)]


def documents(n=48):
    """Two classes that differ in one word."""
    texts = [f"the {'acting' if i % 3 else 'plot'} is {'warm' if i % 2 else 'dull'}" for i in range(n)]
    return texts, ["good" if i % 2 else "bad" for i in range(n)]


@pytest.fixture
def asked():
    return Asked


@pytest.fixture
def written():
    """A writer with its documents: written(model, n_documents=..., ...)."""

    def make(model=None, *, texts=None, labels=None, groups=None, **settings):
        corpus = documents() if texts is None else (texts, labels)
        settings = {"classes": ["bad", "good"], "n_documents": 12, "n_tokens": 5, "epsilon": 30.0} | settings
        return Writer(model or Asked(), **settings).fit(*corpus, groups=groups)

    return make
