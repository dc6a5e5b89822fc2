"""Commands with many options: a frozen dataclass defines them, and Typer reads its fields."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["options"]

Options = TypeVar("Options")


def options(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Turn a function of one ``kind`` into a command whose parameters are the fields of ``kind``."""

    def wrap(command: Callable[[Options], None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            command(kind(**given))

        hints = get_type_hints(kind, include_extras=True)
        fields = inspect.signature(kind).parameters.values()
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [field.replace(annotation=hints[field.name]) for field in fields]
        )
        run.__annotations__ = hints
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        return run

    return wrap
