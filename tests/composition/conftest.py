"""Every test here starts without tables, in memory and on disk."""

import pytest

from ostraka.core.laws import adaptive, answers, equivalents, limit, tables


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for cached in (
        tables.of,
        tables._gaussian_of,
        limit.one,
        adaptive._plan,
        limit.levels,
        answers.followed_range,
    ):
        cached.cache_clear()
    answers._runs.clear()


@pytest.fixture(autouse=True)
def _by_the_recursion(request, monkeypatch):
    """What the recursion gives is tested here, and what was tabulated from it in a file of its own."""
    if request.path.name != "test_equivalents.py":
        monkeypatch.setattr(equivalents, "table", lambda _law: None)
