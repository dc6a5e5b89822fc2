"""Defaults and limits that users rely on: of every public function, method and class, and of every option.

``python -m tests.golden`` writes them to ``surface.txt``, for a change that was meant.
"""

import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

from tests.test_docs import COMMANDS
from tests.test_public import CALLABLES, public_methods

RECORD = Path(__file__).with_name("surface.txt")
NAMELESS, MANY = re.compile(r"<.*>|.* at 0x.*"), 12


def shown(default: object) -> str:
    """A value as it is typed; of what has no such form, its type."""
    if isinstance(default, enum.Enum | PurePath):
        return str(getattr(default, "value", default))
    if isinstance(default, tuple) and len(default) > MANY:
        return f"{default[0]} to {default[-1]}, {len(default)} in all"
    return type(default).__name__ if NAMELESS.fullmatch(repr(default)) else repr(default)


def functions() -> Iterator[str]:
    """One line for each public callable, wherever it lives: its parameters in order, and their defaults."""
    for value in CALLABLES.values():
        name = value.__qualname__
        methods = {f"{name}.{method}": function for method, function in public_methods(value).items()}
        for who, function in {name: value, **methods}.items():
            try:
                parameters = inspect.signature(function).parameters.values()
            except (TypeError, ValueError):  # a class without a signature of its own
                continue
            words = [p.name if p.default is p.empty else f"{p.name}={shown(p.default)}" for p in parameters]
            yield f"{who}({', '.join(words)})"


def options() -> Iterator[str]:
    """One line for each option and argument of every command."""
    for name, command in COMMANDS.items():
        for parameter in command.params:
            words = "/".join((*parameter.opts, *parameter.secondary_opts))
            kind = parameter.type
            limits = f", {kind.least} to {kind.most}" if hasattr(kind, "least") else ""
            unset = getattr(parameter.default, "name", "") == "UNSET"
            default = (
                ", required" if parameter.required else "" if unset else f" = {shown(parameter.default)}"
            )
            yield f"ostraka {name} {words}{limits}{default}"


def surface() -> str:
    """All lines, in order."""
    return "".join(f"{line}\n" for line in sorted({*functions(), *options()}))
