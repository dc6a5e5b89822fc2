"""Every test here starts without tables, in memory and on disk."""

import pytest

from ostraka.core.laws import adaptive, answers, limit, ranges, tables


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for cached in (tables.of, tables._gaussian_of, limit.one, adaptive._plan, limit.levels, ranges.followed):
        cached.cache_clear()
    answers._runs.clear()
