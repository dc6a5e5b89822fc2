"""The rigs live at the top of the repository, where they also run for hours: ``python -m rigs``."""

import pytest

from rigs import disk


@pytest.fixture(scope="session")
def recorder(tmp_path_factory):
    """Skip where a disk cannot be recorded."""
    try:
        return disk.preload(tmp_path_factory.mktemp("disk"))
    except disk.UnavailableError as missing:
        pytest.skip(str(missing))
