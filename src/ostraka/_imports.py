"""Import scikit-learn and ``skops.io`` without libraries that they load and do not need here."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
import threading
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

__all__ = ["hidden", "skops_io", "uncollected", "without_pandas"]

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
# For each of 330 array functions without a module skops looks through all modules: 0.35 s.
_TRUSTED, _SEARCH = "skops.io._trusted_types", "skops.io._utils"
_LOCK = threading.Lock()


class _Absent(MetaPathFinder):
    """Make one thread's imports of these modules fail; other threads import them as ever."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._thread, self._names = threading.get_ident(), names

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        if fullname in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)


class _Indexed(MetaPathFinder):
    """Before skops lists array functions, let its search look them up in one index of all modules."""

    def __init__(self) -> None:
        self._whole: Any = None

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        if fullname == _TRUSTED and self._whole is None:
            search: Any = importlib.import_module(_SEARCH)
            self._whole = getattr(search, "whichmodule", None)
            if self._whole is not None:
                search.whichmodule = functools.partial(_module_of, _homes(), self._whole)

    def close(self) -> None:
        if self._whole is not None:
            vars(sys.modules[_SEARCH])["whichmodule"] = self._whole


def _homes() -> dict[int, str]:
    """The first module that has each of NumPy's kind of array functions under its own name."""
    from numpy import ufunc  # noqa: PLC0415  (the command prints its first line before NumPy is there)

    found: dict[int, str] = {}
    for name, module in sys.modules.copy().items():
        names = {} if name in {"__main__", "__mp_main__"} else getattr(module, "__dict__", {}).copy()
        for label, value in names.items():
            if type(value) is ufunc and label == value.__name__:  # isinstance may wake what loads late
                found.setdefault(id(value), name)
    return found


def _module_of(homes: dict[int, str], whole: Callable[..., str], *asked: Any, **named: Any) -> str:
    """What skops' ``whole`` search finds, from the index where the value is there; all else goes to it."""
    value = next(iter(asked), None)
    if getattr(value, "__module__", None) is None and id(value) in homes:
        return homes[id(value)]
    return whole(*asked, **named)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Look for no circles among objects while libraries load, nor later among those of libraries: 0.3 s."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def skops_io() -> ModuleType:
    """Return the module ``skops.io``."""
    with _LOCK:
        if "skops.io" not in sys.modules:
            with _quick_search(), _indexed():
                importlib.import_module("skops.io")
    return importlib.import_module("skops.io")


@contextlib.contextmanager
def _indexed() -> Iterator[None]:
    finder = _Indexed()
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [each for each in sys.meta_path if each is not finder]
        finder.close()


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
