"""The source distribution holds the whole repository, so that its `make demo` and `make test` work."""

import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ALWAYS = {".gitignore", "pyproject.toml"}  # hatchling takes them along by itself


def test_every_file_of_the_repository_is_in_the_source_distribution():
    if not (REPOSITORY / ".git").exists():
        pytest.skip("an unpacked source distribution is no checkout")
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    patterns = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    files = listed.stdout.split()
    assert {"Makefile", "constraints.txt", ".ci/run"} <= set(files)
    lost = [
        file
        for file in files
        if file not in ALWAYS
        and not any(fnmatch(file, pattern) or file.startswith(f"{pattern}/") for pattern in patterns)
    ]
    assert lost == []
