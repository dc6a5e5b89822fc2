"""Every test here starts without tables, in memory and on disk."""

import pytest

from ostraka._composition import answers, limit, tables


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for cached in (tables.of, tables._gaussian_of, limit._one):
        cached.cache_clear()
    answers._runs.clear()
