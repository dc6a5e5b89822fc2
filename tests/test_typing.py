"""The public names work as their types say: the README's code passes mypy strictly, and runs."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ostraka

REPOSITORY = Path(__file__).resolve().parents[1]
# pyright reads scikit-learn's source instead, and finds types there that it knows in part
SKLEARN_HAS_NO_TYPES = {
    "reportMissingTypeStubs": False,
    "reportUnknownVariableType": False,
    "reportUnknownArgumentType": False,
    "reportUnknownMemberType": False,
}
API = REPOSITORY / "tests" / "typing" / "api.py"


def mypy(path):
    command = [sys.executable, "-m", "mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), str(path)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def pyright(folder):
    """Errors of pyright in strict mode for the files of a folder; skips where it is not installed."""
    program = os.environ.get("OSTRAKA_PYRIGHT") or shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed: npm install pyright")
    source = str(Path(ostraka.__file__).parents[1])
    settings = {"typeCheckingMode": "strict", "extraPaths": [source], **SKLEARN_HAS_NO_TYPES}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [program, "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    diagnostics = json.loads(run.stdout)["generalDiagnostics"]
    return [f"{diagnostic['range']['start']['line']}: {diagnostic['message']}" for diagnostic in diagnostics]


def readme(folder):
    """The Python of the README as one file."""
    code = re.findall(
        r"^```python\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert code
    path = folder / "readme.py"
    path.write_text("\n".join(code))
    return path


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

    def test_the_readmes_code_is_typed(self, tmp_path):
        run = mypy(readme(tmp_path))
        assert run.returncode == 0, run.stdout

    def test_pyright_accepts_the_same_strictly(self, tmp_path):
        shutil.copy(API, tmp_path)
        readme(tmp_path)
        assert pyright(tmp_path) == []

    def test_pyright_notices_a_wrong_call(self, tmp_path):
        (tmp_path / "wrong.py").write_text("from ostraka import GNMax\nGNMax(sigma='much')\n")
        assert len(pyright(tmp_path)) == 1

    def test_a_wrong_call_is_noticed(self, tmp_path):
        wrong = tmp_path / "wrong.py"
        wrong.write_text("from ostraka import GNMax\nGNMax(40.0).curve().epsilon(delta='small')\n")
        output = mypy(wrong).stdout
        assert "Too many positional arguments" in output
        assert 'Argument "delta"' in output
