"""Where torch computes, and with how many threads."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from ostraka import _check

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["device", "own_chance", "reseed", "threads"]


def device(name: str) -> torch.device:
    """The device of that name; "auto" is the GPU if there is one.

    Raises
    ------
    ValueError
        A device that this machine, or this build of torch, does not have.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:  # torch raises either where there is no CUDA
        raise ValueError(
            f"device {name!r} is not there: this torch ({torch.__version__}) sees "
            f"{torch.cuda.device_count()} GPUs. Type device='cpu', or 'auto' for whatever there is"
        ) from error
    return chosen


def reseed(seed: int) -> None:
    """As torch.manual_seed does, in a three hundredth of the time: that one writes down who called."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


@contextlib.contextmanager
def own_chance() -> Iterator[None]:
    """Every global generator comes back as it was: what is drawn inside stays inside."""
    before = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            yield
    finally:
        np.random.set_state(before[0])  # noqa: NPY002
        random.setstate(before[1])


@contextlib.contextmanager
def threads(number: int | None) -> Iterator[int]:
    """Compute with that many threads inside, and as before outside.

    None: as many as torch uses, which are the cores or ``OMP_NUM_THREADS``, but no more than this process
    may run on: more threads than cores make small networks many times slower.
    """
    if number is not None:
        _check.integer(n_threads=number, least=1)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = min(torch.get_num_threads(), allowed) if number is None else number
    before = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        yield wanted
    finally:
        torch.set_num_threads(before)
