"""Devices, threads and global random generators of torch."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Iterator


def device(name: str) -> torch.device:
    """The device of that name. "auto" is the GPU if there is one, otherwise the CPU.

    Raises
    ------
    ValueError
        This machine, or this build of torch, does not have the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:  # torch raises either where there is no CUDA
        raise ValueError(
            f"device {name!r} is not available: this torch ({torch.__version__}) sees "
            f"{torch.cuda.device_count()} GPUs. Type device='cpu', or device='auto'"
        ) from error
    return chosen


def reseed(seed: int) -> None:
    """Seed torch's generators, in 1/300 of the time of torch.manual_seed, which records its caller."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


@contextlib.contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the global generators of NumPy, Python and torch on exit."""
    before = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            yield
    finally:
        np.random.set_state(before[0])  # noqa: NPY002
        random.setstate(before[1])


@contextlib.contextmanager
def threads(number: int | None) -> Iterator[int]:
    """Let torch compute with this many threads inside the context.

    None: torch's own number, which is that of the cores or ``OMP_NUM_THREADS``, but at most the number of
    cores that this process may use: more threads than cores slow small networks down several times.
    """
    if number is not None:
        check.integer(n_threads=number, least=1)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    targets = min(torch.get_num_threads(), allowed) if number is None else number
    before = torch.get_num_threads()
    torch.set_num_threads(targets)
    try:
        yield targets
    finally:
        torch.set_num_threads(before)
