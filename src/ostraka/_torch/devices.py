"""Where torch computes, and with how many threads."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import torch

from ostraka import _check

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["device", "threads"]


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


@contextlib.contextmanager
def threads(number: int | None) -> Iterator[int]:
    """Compute with that many threads inside, and as before outside; None: every core of this process.

    More threads than cores make small networks many times slower.
    """
    wanted = len(os.sched_getaffinity(0)) if number is None and hasattr(os, "sched_getaffinity") else number
    wanted = wanted or os.cpu_count() or 1
    _check.integer(threads=wanted, least=1)
    before = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        yield wanted
    finally:
        torch.set_num_threads(before)
