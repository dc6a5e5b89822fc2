"""Quick imports of scikit-learn and skops give the same as the plain ones, and hide nothing for good."""

import gc
import importlib
import io
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest

from ostraka.core import imports as _imports
from ostraka.core.imports import _module_of, uncollected

QUICK = """
import sys
from ostraka.core.imports import skops_io
skops_io()
heavy = sorted({"torch", "dask", "pytest"} & sys.modules.keys())
import pytest
"""
PLAIN = "heavy = []\nimport skops.io\n"
LISTED = """
from skops.io import _trusted_types, _utils
from sklearn.utils import _testing
lists = {k: sorted(v) for k, v in vars(_trusted_types).items() if k.endswith("_TYPE_NAMES")}
print(heavy, len(lists), lists, _utils.whichmodule.__name__, sorted(vars(_testing)))
"""


def printed(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout


@pytest.mark.slow
def test_a_quick_skops_trusts_the_same_types_and_leaves_the_test_helpers_of_scikit_learn_whole():
    assert printed(QUICK + LISTED) == printed(PLAIN + LISTED)


def test_skops_is_imported_without_torch_dask_and_pytest_and_trusts_types_of_scikit_learn():
    output = printed(QUICK + LISTED)
    assert output.startswith("[] ")
    assert "'sklearn.linear_model._logistic.LogisticRegression'" in output
    assert "'assert_allclose'" in output


def test_a_skops_that_searches_by_other_arguments_gets_what_it_asks_for():
    def whole(*, obj, tops):
        return f"{obj} in {tops}"

    assert _module_of({id("abs"): "indexed"}, whole, obj="abs", tops=3) == "abs in 3"


def test_circles_among_objects_are_looked_for_again_after_libraries_have_loaded_or_failed_to():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


THREADS = """
import sys, threading
from ostraka.core.imports import _quick_search
finders, found = list(sys.meta_path), []
def other():
    import pytest
    found.append(pytest.__name__)
try:
    with _quick_search():
        try:
            import pytest
        except ModuleNotFoundError as refused:
            found.append(refused.name + " is hidden")
        thread = threading.Thread(target=other)
        thread.start(), thread.join()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print(found, sys.meta_path == finders)
"""


def test_other_threads_import_what_is_hidden_and_an_interruption_leaves_nothing_hidden():
    assert printed(THREADS) == "['pytest is hidden', 'pytest'] True\n"


def test_the_estimator_loads_neither_pandas_nor_numba_and_pandas_can_be_used_afterwards():
    code = """
import sys
from ostraka import PATEClassifier, TeacherEnsemble
print(sorted({"pandas", "numba", "matplotlib", "torch"} & sys.modules.keys()))
import pandas
from sklearn.preprocessing import StandardScaler
table = pandas.DataFrame({"age": [1.0, 2.0, 3.0]})
print(StandardScaler().set_output(transform="pandas").fit_transform(table).columns.tolist())
"""
    assert printed(code) == "[]\n['age']\n"


def test_what_is_hidden_is_not_installed_for_whoever_asks():
    before = list(sys.meta_path)
    with _imports.hidden("this"):  # a module that nobody has loaded
        assert find_spec("this") is None  # torch asks so for pandas
        assert find_spec("json.tool") is not None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("this")
        assert version("numpy")  # finders keep all that they can
    assert find_spec("this") is not None
    assert sys.meta_path == before


# Verbs as shells start them and, last, as a process calls that may need pandas later: forks of one process.
VERBS = """
import os, sys
from importlib.util import find_spec
from ostraka import cli
cli._run = lambda _: (0, "pandas" if find_spec("pandas") else "no pandas")
for words, called in ((["learn"], False), (["audit"], False), (["learn"], True)):
    if os.fork() == 0:
        sys.argv = ["ostraka", *words]
        cli.main(words) if called else cli.main()
    os.wait()
"""


def test_learn_hides_pandas_from_its_libraries_and_a_verb_that_opens_a_model_of_the_user_does_not():
    pytest.importorskip("pandas")
    run = subprocess.run([sys.executable, "-c", VERBS], capture_output=True, text=True, check=True)
    assert run.stderr == "ostraka: no pandas.\nostraka: pandas.\nostraka: pandas.\n"


def test_files_of_equal_models_are_equal_and_hold_no_address_of_memory():
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    rows = np.random.default_rng(0).normal(size=(40, 3))
    for estimator in (LogisticRegression(), DecisionTreeClassifier(random_state=0)):
        first, second = (
            _imports.model_bytes(type(estimator)(**estimator.get_params()).fit(rows, rows[:, 0] > 0))
            for _ in range(2)
        )
        assert first == second
        schema = zipfile.ZipFile(io.BytesIO(first)).read("schema.json").decode()
        assert max(map(int, re.findall(r'"__id__": (\d+)', schema))) < 1000
        again = _imports.skops_io().loads(first, trusted=["sklearn.tree._tree.Tree"])
        assert (again.predict(rows) == (rows[:, 0] > 0)).mean() > 0.9
