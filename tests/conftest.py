"""Fixtures for every test, and how hypothesis searches.

``data_dir`` finds the shared data sets and skips when they are not there, so that a plain checkout passes.
Property tests repeat the same examples each run.
``pytest --hypothesis-profile nightly`` searches afresh, and longer.
"""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

# No deadlines: on shared cores the clock judges the neighbours, not the code.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile(
    "nightly",
    derandomize=False,
    deadline=None,
    max_examples=1_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Forget compiled kernels older than any kernel's source: numba looks at the caller's file only."""
    package = REPOSITORY / "src" / "ostraka"
    kernels = [path for path in package.rglob("*.py") if "njit" in path.read_text(encoding="utf-8")]
    newest = max((path.stat().st_mtime for path in kernels), default=0.0)
    for compiled in (*package.rglob("*.nbi"), *package.rglob("*.nbc")):
        with contextlib.suppress(FileNotFoundError):  # another worker was quicker
            if compiled.stat().st_mtime < newest:
                compiled.unlink()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the shared data sets: OSTRAKA_DATA, or ``shared/data`` beside the checkout."""
    named = os.environ.get("OSTRAKA_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the shared data sets are not at {folder}; set OSTRAKA_DATA to their folder")
    return folder
