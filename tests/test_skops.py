"""The quick import of skops trusts the same types as the plain one, and hides nothing for good."""

import subprocess
import sys

QUICK = """
import sys
from ostraka._skops import skops_io
skops_io()
heavy = sorted({"torch", "dask", "pytest"} & sys.modules.keys())
import pytest
"""
LISTED = """
from skops.io import _trusted_types
print(heavy, sorted(_trusted_types.SKLEARN_ESTIMATOR_TYPE_NAMES))
"""


def printed(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout


def test_skops_is_imported_without_torch_dask_and_pytest_and_trusts_the_same_types():
    assert printed(QUICK + LISTED) == printed("heavy = []\nimport skops.io\n" + LISTED)
