"""Write every record of this folder anew, for a change that was meant; ``git diff`` then shows what changed.

``python -m tests.golden [TEST …]`` runs the tests that compare with a record, one after another. Each writes
what it sees. Read it: a record holds what the code says, right or wrong.
"""

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
READERS = [
    str(path)
    for path in sorted(TESTS.rglob("test_*.py"))
    if "from tests.golden import" in path.read_text("utf-8")
]

os.environ["OSTRAKA_RECORD"] = "1"  # before the tests are loaded
sys.exit(pytest.main(["-q", *(sys.argv[1:] or READERS)]))
