"""Old import paths: each is an alias of a present module, so that pickles and scripts of before still load.

``old_paths.txt`` has a line for each module that has moved, packages included.
"""

from __future__ import annotations

import importlib
import sys
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.abc import Loader
    from types import ModuleType

# Old dotted module -> present dotted module. A package that was divided needs no line of its own.
OLD: dict[str, str] = dict(
    line.split()
    for line in Path(__file__).with_name("old_paths.txt").read_text(encoding="ascii").splitlines()
)


class Aliases:  # no base class: importlib.abc takes longer to import than all of this
    """Imports the present module under its old name: one module under two names, no second copy of a class.

    It must come first in ``sys.meta_path``: an old folder that holds nothing but a cache would be taken for a
    package.

    Parameters
    ----------
    old : mapping of str to str
        Old dotted module to present dotted module.
    """

    def __init__(self, old: Mapping[str, str]) -> None:
        self._old = old

    @cached_property
    def _present(self) -> dict[str, str]:
        """The old names, also under the present parent, for which ``from ostraka.old import name`` asks."""
        moved = {name: home for name, home in self._old.items() if name != home}
        for name, home in list(moved.items()):
            parent, _, child = name.rpartition(".")
            if parent in moved:
                moved.setdefault(f"{moved[parent]}.{child}", home)
        return moved

    @cached_property
    def _parents(self) -> set[str]:
        """Packages in which an old module was: they must be packages still, or none of it is looked for."""
        parts = [name.split(".") for name in self._present]
        return {".".join(part[:end]) for part in parts for end in range(1, len(part))}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002  (the import system's signature)
    ) -> ModuleSpec | None:
        """The alias of an old name; a package for its parents, whatever is left of them; else None."""
        home = self._present.get(fullname)
        parent, _, child = fullname.rpartition(".")
        if home is None and parent in self._old and (above := self._present.get(parent)):
            import importlib.util  # noqa: PLC0415  (rarely needed)

            home = f"{above}.{child}"  # a module that kept its name in a package that did not: no second copy
            return self._alias(fullname, home) if importlib.util.find_spec(home) else None
        if home is not None and fullname in self._old:
            return self._alias(fullname, home)
        if home is None and fullname not in self._parents:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None and home is None:
            return ModuleSpec(fullname, None, is_package=True)
        if spec is None:
            return self._alias(fullname, str(home))
        if fullname in self._parents and spec.submodule_search_locations is None:
            spec.submodule_search_locations = []
        return spec

    def _alias(self, name: str, home: str) -> ModuleSpec:
        loader = cast("Loader", self)  # it has the methods of one
        return ModuleSpec(name, loader, origin=home, is_package=name in self._parents)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The present module itself, so that no thread ever meets an empty one."""
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = _own(module.__spec__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own ``__spec__``, which the import system has just replaced."""
        module.__spec__ = _own(module.__spec__)


def _own(spec: Any) -> Any:
    return spec.loader_state if isinstance(spec.loader, Aliases) else spec


if not any(isinstance(finder, Aliases) for finder in sys.meta_path):
    sys.meta_path.insert(0, Aliases(OLD))
