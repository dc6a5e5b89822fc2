"""Files, written whole and durably, readable by their owner alone where they are secret; and HTML pages.

:func:`environment` makes the pages from the templates of this package.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2 import Environment

_OWNER_ONLY, _OWNERS_FOLDER, _USUAL = 0o600, 0o700, 0o666


def write(
    path: str | os.PathLike[str], content: str | bytes | Callable[[Path], object], *, private: bool = False
) -> None:
    """Replace a file atomically and durably. A reader finds the old content or the new one.

    Of several processes that write one file at once, the last one's content counts. A process that is killed
    may leave a hidden file beside it, whose name ends with ``.new``.

    Parameters
    ----------
    path : path
    content : str, bytes, or a function that writes to the path it is given
    private : bool
        Only the owner may read the file. The other permissions follow the process's umask.
    """
    path = Path(path)
    with _draft(path, content, _OWNER_ONLY if private else _USUAL) as draft:
        draft.replace(path)
    sync_folder(path.parent)


def create(path: str | os.PathLike[str], content: str | bytes) -> bytes:
    """Create a private file durably, unless it exists. Return what the file holds.

    Of several processes that create one file at once, the first one's content counts for all.
    """
    path = Path(path)
    if not path.exists():
        with _draft(path, content, _OWNER_ONLY) as draft, contextlib.suppress(FileExistsError):
            os.link(draft, path)
        sync_folder(path.parent)
    return path.read_bytes()


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write files into. After the block it is at ``path``: whole, durable, its owner's alone.

    Of several processes that write one folder at once, the first one's counts. One that is killed may leave a
    hidden folder beside it, whose name ends with ``.new``.

    Raises
    ------
    FileExistsError
        There is something at ``path``.
    """
    path = Path(path)
    draft = _draft_of(path)
    if path.exists():
        raise FileExistsError(path)
    draft.mkdir(mode=_OWNERS_FOLDER, parents=True)
    try:
        yield draft
        for file in draft.iterdir():
            file.chmod(_OWNER_ONLY)
            with file.open("r+b") as handle:
                os.fsync(handle.fileno())
        sync_folder(draft)
        try:
            draft.rename(path)
        except OSError as error:  # of another process, which was quicker: a folder that has files stays
            raise FileExistsError(path) if path.exists() else error from None
        sync_folder(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on stable storage."""
    if hasattr(os, "O_DIRECTORY"):  # pragma: no branch  (Windows opens no folders)
        handle = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def environment() -> Environment:
    """Return the settings of every HTML page: values are escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (only pages need it)

    return Environment(
        loader=PackageLoader("ostraka"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _draft_of(path: Path) -> Path:
    """A name beside ``path`` that nobody else has."""
    return path.with_name(f".{secrets.token_hex(8)}.new")


def is_draft(name: str) -> bool:
    """Whether a name is that of a draft, which a process that was killed has left."""
    return name.startswith(".") and name.endswith(".new")


@contextlib.contextmanager
def _draft(path: Path, content: str | bytes | Callable[[Path], object], mode: int) -> Iterator[Path]:
    """A durable file beside ``path``, under a name of its own: of two writers, none touches the other's."""
    draft = _draft_of(path)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            if callable(content):
                content(draft)
            else:
                draft.write_bytes(content.encode() if isinstance(content, str) else content)
            os.fsync(handle)  # of the file, whoever wrote it
        finally:
            os.close(handle)
        yield draft
    finally:
        draft.unlink(missing_ok=True)
