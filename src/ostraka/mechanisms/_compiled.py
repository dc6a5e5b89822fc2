"""Numba settings of compiled kernels: they run without the GIL and are cached on disk.

Compiling is what a first run spends most of its time on, and costs about as much as the code is long,
counted once more wherever it is called from another kernel. So: Python calls kernels one after the
other where a call per query is cheap; loops rather than array functions; and no literal, or variable
that starts as one, goes into a call, as numba would compile the callee for that value, too.
"""

from __future__ import annotations

import functools

import numba as nb

__all__ = ["kernel"]

kernel = functools.partial(nb.njit, cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
