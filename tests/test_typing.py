"""The public names work as their types say: the README's code passes mypy strictly, and runs."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
API = REPOSITORY / "tests" / "typing" / "api.py"


def mypy(path):
    command = [sys.executable, "-m", "mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), str(path)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_the_public_code_runs():
    spec = importlib.util.spec_from_file_location("api", API)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
class TestTypes:
    def test_the_public_code_is_typed(self):
        run = mypy(API)
        assert run.returncode == 0, run.stdout

    def test_a_wrong_call_is_noticed(self, tmp_path):
        wrong = tmp_path / "wrong.py"
        wrong.write_text("from ostraka import GNMax\nGNMax(40.0).curve().epsilon(delta='small')\n")
        said = mypy(wrong).stdout
        assert "Too many positional arguments" in said
        assert 'Argument "delta"' in said
