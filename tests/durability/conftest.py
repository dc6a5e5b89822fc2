"""The rigs live beside the benchmarks, where they also run for hours: ``python -m benchmarks soak``."""

import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.append(str(REPOSITORY))

from benchmarks.rigs import disk  # noqa: E402  (only now can it be found)


@pytest.fixture(scope="session")
def recorder(tmp_path_factory):
    """Skip where a disk cannot be recorded."""
    try:
        return disk.preload(tmp_path_factory.mktemp("disk"))
    except disk.UnavailableError as missing:
        pytest.skip(str(missing))
