"""Without torch, every public name exists, and training a network says what to install."""

import subprocess
import sys

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'")

sys.meta_path.insert(0, Blocked())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_star_import_and_hasattr_work_and_training_a_network_names_the_install_command():
    code = """
import ostraka
from ostraka import *
print(all(hasattr(ostraka, name) for name in dir(ostraka)), PATEClassifier.__name__)
from ostraka.networks import TorchClassifier
try:
    TorchClassifier().fit([[0.0], [1.0]], [0, 1])
except ImportError as error:
    print(error)
"""
    assert run(code).startswith("True PATEClassifier\ntorch is not installed: pip install 'numba>=")
