"""Late imports: names of a package on first use, and libraries without what they do not need here."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

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


def face(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are imported when they are first used.

    The names and their modules are those that ``file`` imports for type checkers, so each stands there once:
    ``from package.module import Name as Name`` under ``if TYPE_CHECKING``.
    """

    @functools.cache
    def homes() -> dict[str, tuple[str, str]]:
        import ast  # noqa: PLC0415  (only where a name is asked for)

        blocks = [
            node
            for node in ast.parse(Path(file).read_text(encoding="utf-8")).body
            if isinstance(node, ast.If)
        ]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in imports
            if (node.module or "").startswith("ostraka")
            for alias in node.names
        }

    def load(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, label = homes()[name]
        if module.startswith(("ostraka.learn", "ostraka.voters")):
            without_pandas()
        home = importlib.import_module(f"{module}.{label}" if module == package else module)
        value = home if module == package else getattr(home, label)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes()})

    return load, names


class _Without:
    """A finder that does not find these modules for one thread; other threads import them as ever."""

    def __init__(self, finder: Any, names: tuple[str, ...]) -> None:
        self.finder, self._names, self._thread = finder, names, threading.get_ident()

    def find_spec(self, fullname: str, *arguments: Any) -> Any:
        if fullname in self._names and threading.get_ident() == self._thread:
            return None  # and no error: torch asks whether pandas is there, and takes an error for a crash
        return self.finder.find_spec(fullname, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


class _Indexed:
    """Before skops lists array functions, let its search look them up in one index of all modules."""

    def __init__(self) -> None:
        self._whole: Any = None

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        if fullname == _TRUSTED and self._whole is None:
            search: Any = importlib.import_module(_SEARCH)
            self._whole = getattr(search, "whichmodule", None)
            if self._whole is None:
                return
            from numpy import ufunc  # noqa: PLC0415  (the command prints its first line before NumPy is there)

            # the first module that has each of NumPy's kind of array functions under its own name
            homes: dict[int, str] = {}
            for name, module in sys.modules.copy().items():
                names = {} if name in {"__main__", "__mp_main__"} else getattr(module, "__dict__", {}).copy()
                for label, value in names.items():
                    # isinstance may wake what loads late
                    if type(value) is ufunc and label == value.__name__:
                        homes.setdefault(id(value), name)
            search.whichmodule = functools.partial(_module_of, homes, self._whole)

    def close(self) -> None:
        if self._whole is not None:
            vars(sys.modules[_SEARCH])["whichmodule"] = self._whole


def _module_of(homes: dict[int, str], search: Callable[..., str], *arguments: Any, **named: Any) -> str:
    """Find the module of a value in the index; ask the ``search`` of skops where the index has none."""
    value = next(iter(arguments), None)
    if getattr(value, "__module__", None) is None and id(value) in homes:
        return homes[id(value)]
    return search(*arguments, **named)


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
            with _quick_search():
                finder = _Indexed()
                sys.meta_path = [finder, *sys.meta_path]
                try:
                    importlib.import_module("skops.io")
                finally:
                    sys.meta_path = [entry for entry in sys.meta_path if entry is not finder]
                    finder.close()
    return importlib.import_module("skops.io")


@contextlib.contextmanager
def _quick_search() -> Iterator[None]:
    """Hide what is not needed from this thread; afterwards everything can be imported whole."""
    name = f"sklearn.utils.{_HELPERS}"
    full = name in sys.modules or "pytest" in sys.modules
    try:
        with hidden(*_NOT_NEEDED):
            yield
    finally:
        if not full and sys.modules.pop(name, None) is not None:
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
    ours = [_Without(finder, names) for finder in sys.meta_path]
    sys.meta_path = list(ours)  # a new list: another thread may be going through the old one
    try:
        yield
    finally:
        sys.meta_path = [entry.finder if entry in ours else entry for entry in sys.meta_path]


def model_bytes(model: Any) -> bytes:
    """The bytes that skops writes of a model, without addresses and the time: equal for equal models."""
    import zipfile  # noqa: PLC0415  (`import ostraka` stays quick)

    with zipfile.ZipFile(io.BytesIO(skops_io().dumps(model))) as written:
        parts = {name: written.read(name) for name in written.namelist()}
    schema = parts.pop("schema.json").decode()
    numbers: dict[str, str] = {}

    def numbered(address: re.Match[str]) -> str:
        return numbers.setdefault(address[0], str(len(numbers) + 1))

    schema = re.sub(r'(?<="__id__": )\d+|(?<="file": ")\d+(?=\.)', numbered, schema)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as canonical:
        named = {numbers.get(name.partition(".")[0], name): (name, part) for name, part in parts.items()}
        for number, (name, part) in sorted(named.items()):
            canonical.writestr(zipfile.ZipInfo(f"{number}.{name.partition('.')[2]}"), part)
        canonical.writestr(zipfile.ZipInfo("schema.json"), schema)
    return out.getvalue()
