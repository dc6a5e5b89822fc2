"""Build hook: machine code of the kernels for this platform, so that a first run does not wait for numba.

A wheel that is built where there is a C compiler gets an extension module of the kernels that state their
signatures (``ostraka/core/compiled.py``). Without a compiler, or with ``OSTRAKA_MACHINE_CODE=off``, the wheel
is the same without it, and numba compiles at the first call. ``OSTRAKA_MACHINE_CODE=require`` fails instead.

``python hatch_build.py`` puts the module beside the sources of a checkout, where it is not there yet.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # a checkout, in which this file is run by hand
    BuildHookInterface = object


class MachineCode(BuildHookInterface):
    """Adds the extension module to a wheel, if one can be made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is packed."""
        wanted = os.environ.get("OSTRAKA_MACHINE_CODE", "auto")
        if version != "standard" or wanted == "off":
            return
        folder = tempfile.mkdtemp(prefix="ostraka-machine-")
        try:
            made = build(Path(folder))
        except (Exception, SystemExit) as error:
            if wanted == "require":
                raise
            self.app.display_warning(f"no machine code in this wheel: {type(error).__name__}: {error}")
            return
        build_data["force_include"][str(made)] = f"ostraka/{made.name}"
        build_data["pure_python"], build_data["infer_tag"] = False, True


def build(folder: Path) -> Path:
    """Compile all kernels with signatures into an extension module in ``folder``, and return its file."""
    sys.path.insert(0, str(HERE / "src"))
    from numba.core.compiler import Flags
    from numba.pycc import CC, compiler

    from ostraka.core import compiled as _compiled

    def flags() -> Any:
        chosen = Flags()
        chosen.release_gil, chosen.error_model = True, "numpy"
        return chosen

    compiler.Flags = flags  # numba's own ones hold the GIL and raise where floats are divided by zero
    package = CC(_compiled.machine_name())
    package.output_dir = str(folder)
    package.target_cpu = _compiled.PROCESSOR
    for name in _compiled.MODULES:
        for each in vars(importlib.import_module(f"ostraka.{name}")).values():
            if isinstance(each, _compiled.Kernel) and each.function.__module__ == f"ostraka.{name}":
                if each.signatures and each.options:
                    raise ValueError(f"{each.function.__name__} has signatures and must have no options")
                for symbol, signature in each.symbols().items():
                    package.export(symbol, f"({signature},)")(each.jitted)
    package.compile()
    return folder / package.output_file


def beside_sources() -> Path:
    """Compile for this checkout, unless that was done since; what was compiled from other sources goes."""
    sys.path.insert(0, str(HERE / "src"))
    from ostraka.core import compiled as _compiled

    package, kind = HERE / "src" / "ostraka", sysconfig.get_config_var("EXT_SUFFIX")
    made = package / f"{_compiled.machine_name()}{kind}"
    for old in package.glob(f"_machine_*{kind}"):
        if old != made or old.stat().st_mtime < Path(__file__).stat().st_mtime:
            old.unlink()
    return made if made.exists() else build(package)


if __name__ == "__main__":
    print(beside_sources())
