"""Pack ``@ostraka/collect`` for npm: the files of the page, their types, and known answers.

``python packaging/npm.py FOLDER`` writes the package there, and beside it the archive that ``npm install``
and ``npm publish`` take. The same sources give the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "src" / "ostraka" / "collect" / "page"
NAME = "@ostraka/collect"


def manifest() -> dict[str, object]:
    """Return the contents of package.json; the version is that of the Python package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = {".": "collect", "./question": "question", "./similar": "similar"}
    return {
        "name": NAME,
        "version": project["version"],
        "description": "Private statistics: answer a question so that only a noisy sum is learned.",
        "license": "Apache-2.0",
        "type": "module",
        "engines": {"node": ">=20"},
        "sideEffects": ["./question.js"],
        "types": "./collect.d.ts",
        "exports": {
            **{
                way: {"types": f"./{part}.d.ts", "default": f"./{part}.js"}
                for way, part in sorted(parts.items())
            },
            "./vectors.json": "./vectors.json",
            "./collect.css": "./collect.css",
        },
    }


def contents() -> dict[str, bytes]:
    """Return every file of the package by name."""
    files = {file.name: file.read_bytes() for file in PAGE.iterdir() if file.suffix in {".js", ".css"}}
    files |= {file.name: file.read_bytes() for file in (HERE / "npm").iterdir()}
    files["vectors.json"] = json.dumps(
        json.loads((ROOT / "tests" / "collect" / "vectors.json").read_text(encoding="utf-8"))
    ).encode()
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files["package.json"] = (json.dumps(manifest(), indent=2) + "\n").encode()
    return dict(sorted(files.items()))


def packed(folder: Path) -> Path:
    """Write the package into a folder, and its archive beside it; return the archive."""
    files = contents()
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder.with_name(f"ostraka-collect-{manifest()['version']}.tgz")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, body in files.items():
            (folder / name).write_bytes(body)
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(body), 0o644
            tar.addfile(entry, io.BytesIO(body))
    archive.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return archive


if __name__ == "__main__":
    path = packed(Path(sys.argv[1]))
    sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")
