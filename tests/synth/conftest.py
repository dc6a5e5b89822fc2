"""Shared by tests of generators."""

import contextlib

import pytest

from ostraka import Budget, Ledger


@pytest.fixture
def book():
    """A ledger in memory with a budget of so much."""
    with contextlib.ExitStack() as stack:

        def opened(epsilon):
            budget = Budget(epsilon=epsilon, delta=1e-5, adaptive=False)
            return stack.enter_context(Ledger(":memory:", budget=budget))

        yield opened


@pytest.fixture
def uncharged(book):
    """A ledger for what is refused in these words before it is charged."""

    @contextlib.contextmanager
    def refusing(words):
        ledger = book(4.0)
        with pytest.raises(ValueError, match=words) as caught:
            yield ledger
        assert ledger.epsilon() == 0
        assert "secret" not in str(caught.value)

    return refusing
