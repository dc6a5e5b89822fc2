"""Compiled kernels: machine code that came with the package, or else numba's, compiled at the first call.

A wheel that was built for this platform holds machine code for the kernels that state their signatures
(``hatch_build.py`` makes it). Its file name has a hash of the kernels' sources, so that other code is never
run in their place. Arguments of other types, installations without machine code, and x86-64 processors
without AVX2 go to numba (extra ``compile``), which is imported then. Kernels run without the GIL, and what
numba compiles is cached on disk.

Compiling costs about as much as the code is long, counted once more wherever it is called from another
kernel. So: Python calls kernels one after the other where a call per query is cheap; loops rather than array
functions; and no literal, or variable that starts as one, goes into a call, as numba would compile the callee
for that value, too.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

# modules whose kernels the wheel holds as machine code
MODULES = (
    "core.kernels.recursion",
    "core.kernels.draws",
    "core.kernels.neighbours",
    "core.kernels.outcome",
    "core.kernels.particles",
    "core.kernels.recovery",
    "core.kernels.perceptrons",
    "secure.comparison",
)
# the processor, in LLVM's spelling, for which machine code is made; "" is any of its architecture
PROCESSOR = "x86-64-v3" if platform.machine().lower() in {"x86_64", "amd64"} else ""
# what x86-64-v3 has beyond any x86-64, in NumPy's spelling; the others are not known to every NumPy
_NEEDED, _NEEDED_IF_KNOWN = ("AVX2", "FMA3"), ("BMI", "BMI2", "F16C", "LZCNT", "MOVBE")
_SCALARS = {bool: "b1", float: "f8", int: "i8", np.float64: "f8", np.int64: "i8", np.uint64: "u8"}


def machine_name() -> str:
    """Name of the extension module that fits these sources and this scipy."""
    package = Path(__file__).parents[1]
    sources = (Path(__file__), *(package / f"{name.replace('.', '/')}.py" for name in MODULES))
    # matrices are multiplied by scipy's BLAS: called with integers of another width than its own, it crashes
    blas = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    said = hashlib.sha256(b"64" if blas.get("cython blas ilp64") else b"32")
    for source in sources:
        said.update(hashlib.sha256(source.read_bytes()).digest())
    return f"_machine_{said.hexdigest()[:16]}"


@functools.cache
def machine_code() -> ModuleType | None:
    """Return the machine code of these sources, or None. OSTRAKA_MACHINE_CODE=off leaves it aside."""
    if os.environ.get("OSTRAKA_MACHINE_CODE") == "off" or not _runs_here():
        return None
    try:
        return importlib.import_module(f"ostraka.{machine_name()}")
    except (ImportError, OSError):  # none was built; or sources cannot be read
        return None


def _runs_here() -> bool:
    """Whether this processor has the instructions of the machine code."""
    if not PROCESSOR:
        return True
    try:
        # NumPy knows what the processor has, but has no public name for it
        has = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    except (AttributeError, ImportError):  # it has moved: numba compiles for whatever processor this is
        return False
    return all(has.get(each, False) for each in _NEEDED) and all(
        has.get(each, True) for each in _NEEDED_IF_KNOWN
    )


class Kernel:
    """A function that runs as machine code; other kernels may call it, too."""

    def __init__(
        self, function: Callable[..., Any], signatures: tuple[str, ...], options: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.signatures, self.options = function, signatures, options

    def __call__(self, *arguments: Any) -> Any:
        """Run what came with the package for arguments of these types, else what numba compiles."""
        shipped = self._shipped
        if shipped:
            found = shipped.get(tuple([_type(each) for each in arguments]))
            if found is not None:
                return found(*arguments)
        return self.jitted(*arguments)

    def symbols(self) -> dict[str, str]:
        """Return the names in the extension module, with their signatures."""
        name = f"{self.function.__module__}.{self.function.__name__}".replace(".", "_")
        return {f"{name}_{place}": signature for place, signature in enumerate(self.signatures)}

    @functools.cached_property
    def _shipped(self) -> dict[tuple[str, ...], Callable[..., Any]]:
        code = machine_code() if self.signatures else None
        if code is None:
            return {}
        return {_types(signature): getattr(code, name) for name, signature in self.symbols().items()}

    @functools.cached_property
    def jitted(self) -> Any:
        """Numba's dispatcher of the function."""
        # a third of a second, and not needed where machine code came along
        numba = check.require("numba", extra="compile")
        options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **self.options}
        try:
            return numba.njit(**options, cache=True)(self.function)
        except RuntimeError:  # neither the package's folder nor the user's can be written
            return numba.njit(**options)(self.function)

    @property
    def _numba_type_(self) -> Any:
        return self.jitted._numba_type_


def kernel(*signatures: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile the function; ``signatures`` are those that the wheel has as machine code.

    A signature names the types of all arguments in numba's spelling, as in ``"i8, f8[:,::1]"``.
    """
    return lambda function: Kernel(function, signatures, options)


def _type(value: Any) -> str:
    """Type of an argument; machine code takes arrays that lie in one piece, row by row."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        return f"{value.dtype.str}{value.ndim}" if flags.c_contiguous and flags.aligned else ""
    return _SCALARS.get(type(value), "")


def _types(signature: str) -> tuple[str, ...]:
    """Types of a signature, as :func:`_type` spells them."""
    found = []
    for each in signature.split(", "):
        scalar, _, shape = each.partition("[")
        found.append(f"{np.dtype(scalar).str}{shape.count(':') - 1}" if shape else scalar)
    return tuple(found)
