"""Import ``skops.io`` without the libraries that only its search for scikit-learn's estimators would load."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["skops_io"]

# skops lists scikit-learn's estimators. That search imports every package of scikit-learn: its adapters for
# other array libraries load torch and dask, its test helpers load pytest. They take 2 s and 250 MB, and the
# list is the same without them: the search skips what cannot be imported.
_NOT_NEEDED = (
    "pytest",
    "sklearn.externals.array_api_compat.cupy",
    "sklearn.externals.array_api_compat.dask",
    "sklearn.externals.array_api_compat.torch",
)
_LOCK = threading.Lock()


def skops_io() -> ModuleType:
    """Return the module ``skops.io``."""
    with _LOCK:
        if "skops.io" not in sys.modules:
            hidden = [name for name in _NOT_NEEDED if name not in sys.modules]
            try:
                for name in hidden:
                    sys.modules[name] = None  # type: ignore[assignment]
                importlib.import_module("skops.io")
            finally:
                for name in hidden:
                    sys.modules.pop(name, None)
    return importlib.import_module("skops.io")
