"""The tests of a file begin without tables, in memory and on disk, and share those that they make."""

import pytest

from ostraka.core.laws import adaptive, answers, equivalents, limit, tables

CACHED = (tables.of, tables._gaussian_of, limit.one, adaptive._plan, limit.levels, answers.followed_range)


def forget():
    for cached in CACHED:
        cached.cache_clear()
    answers._runs.clear()


@pytest.fixture(scope="module", autouse=True)
def _own_tables(request, tmp_path_factory):
    """Made by the recursion, which is tested here: what was tabulated from it has a file of its own."""
    forget()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("tables")))
        if request.path.name != "test_equivalents.py":
            patched.setattr(equivalents, "table", lambda _law: None)
        yield
    forget()


@pytest.fixture(autouse=True)
def _none_of_others(request, tmp_path):
    """A test that changes how tables are made finds none and leaves none."""
    if "monkeypatch" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("monkeypatch").setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    yield
    forget()
