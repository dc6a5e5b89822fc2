"""Import scikit-learn and ``skops.io`` without libraries that they load and do not need here."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

__all__ = ["hidden", "skops_io", "without_pandas"]

# skops lists scikit-learn's estimators. That search imports every package of scikit-learn: its adapters for
# other array libraries load torch and dask, its test helpers load pytest. They take 2 s and 250 MB, and the
# list is the same without them: the search skips what cannot be imported.
_NOT_NEEDED = (
    "pytest",
    "sklearn.externals.array_api_compat.cupy",
    "sklearn.externals.array_api_compat.dask",
    "sklearn.externals.array_api_compat.torch",
)
_HELPERS = "_testing"  # of sklearn.utils: without pytest it loads, but lacks some of its names
_LOCK = threading.Lock()


class _Absent(MetaPathFinder):
    """Make one thread's imports of these modules fail; other threads import them as ever."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._thread, self._names = threading.get_ident(), names

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        if fullname in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)


def skops_io() -> ModuleType:
    """Return the module ``skops.io``."""
    with _LOCK:
        if "skops.io" not in sys.modules:
            with _quick_search():
                importlib.import_module("skops.io")
    return importlib.import_module("skops.io")


@contextlib.contextmanager
def _quick_search() -> Iterator[None]:
    """Hide what is not needed from this thread; afterwards everything can be imported whole."""
    name = f"sklearn.utils.{_HELPERS}"
    whole = name in sys.modules or "pytest" in sys.modules
    try:
        with hidden(*_NOT_NEEDED):
            yield
    finally:
        if not whole and sys.modules.pop(name, None) is not None:
            vars(sys.modules["sklearn.utils"]).pop(_HELPERS, None)


def without_pandas() -> None:
    """Import scikit-learn without pandas, which it would load for a helper that is never called."""
    with _LOCK:
        if not {"pandas", "sklearn.utils.fixes"} & sys.modules.keys():
            with hidden("pandas"):
                importlib.import_module("sklearn.utils.fixes")


@contextlib.contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Make this thread's imports of these modules fail, as if they were not installed."""
    absent = _Absent(names)
    sys.meta_path = [absent, *sys.meta_path]  # a new list: another thread may be going through the old one
    try:
        yield
    finally:
        sys.meta_path = [finder for finder in sys.meta_path if finder is not absent]
