"""Old import paths are aliases of present modules: for pickles, imports of every form, and threads."""

import importlib
import importlib.util
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ostraka import _paths

FILES = {
    "house/__init__.py": "",
    "house/learn/__init__.py": "ROOM = 'learn'",
    "house/learn/ways.py": "import time; time.sleep(0.05)\nclass Run:\n    at = 1",
    "house/learn/kept.py": "class Kept: pass",
    "house/core/__init__.py": "",
    "house/core/ledger.py": "class Entry: pass",
    "house/report.py": "class Row: pass",
    "house/same.py": "",
    "house/torn/__pycache__/left": "",
}
OLD = {
    "house.pate": "house.learn",
    "house.pate._run": "house.learn.ways",
    "house.pate._counts": "house.learn.ways",
    "house.ledger": "house.core.ledger",  # a package became a file
    "house.ledger.chain": "house.core.ledger",
    "house.report.rows": "house.report",  # as well, and it kept its name
    "house._torch.deep.stacks": "house.core.ledger",  # parents that are gone, without lines of their own
    "house.torn": "house.learn",  # a folder is left with its cache
    "house.same": "house.same",
}


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A package whose modules have moved."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [_paths.Aliases(OLD), *sys.meta_path])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]


@pytest.mark.usefixtures("house")
class TestAliases:
    @pytest.mark.parametrize("name", OLD)
    def test_an_old_path_is_the_present_module_whose_facts_stay(self, name):
        module = importlib.import_module(name)
        assert module is importlib.import_module(OLD[name]) is sys.modules[name]
        assert module.__name__ == module.__spec__.name == OLD[name]
        parent, _, child = name.rpartition(".")
        assert getattr(sys.modules[parent], child) is module
        assert importlib.reload(module) is module

    def test_every_form_of_import(self):
        import house.pate._run
        from house._torch.deep import stacks
        from house.learn.ways import Run
        from house.ledger.chain import Entry
        from house.pate import ROOM, _counts
        from house.report.rows import Row

        assert house.pate._run.Run is _counts.Run is Run
        assert (ROOM, stacks.Entry, house.report.Row) == ("learn", Entry, Row)

    def test_a_module_that_kept_its_name_in_a_moved_package_is_no_second_copy(self):
        from house.learn.kept import Kept
        from house.pate import kept

        assert kept.Kept is Kept
        assert importlib.import_module("house.pate.kept") is kept

    def test_a_pickle_of_before_loads(self):
        stored = b"\x80\x03chouse.pate._run\nRun\n)\x81}X\x02\x00\x00\x00atK\x02sb."
        run = pickle.loads(stored)
        assert (run.at, type(run).__module__) == (2, "house.learn.ways")
        assert type(pickle.loads(pickle.dumps(run))) is type(run)

    def test_what_is_nowhere_is_missing(self):
        assert importlib.util.find_spec("house.pate.nothing") is None
        for name in ("house.pate.nothing", "house._torch.nothing", "house.nothing"):
            with pytest.raises(ModuleNotFoundError, match="nothing"):
                importlib.import_module(name)

    def test_threads_meet_no_empty_module(self):
        names = ["house.pate._run", "house.pate._counts", "house.learn.ways"] * 8

        def imported(name):
            return importlib.import_module(name).Run

        with ThreadPoolExecutor(len(names)) as threads:
            assert len(set(threads.map(imported, names))) == 1
        assert sys.modules["house.pate._run"].__spec__.name == "house.learn.ways"


@pytest.mark.parametrize("name", _paths.OLD)
def test_an_old_path_of_this_library_leads_to_a_module_and_hides_no_name(name):
    parent, _, child = name.rpartition(".")
    package = importlib.import_module(parent)
    before = getattr(package, child, None)
    module = importlib.import_module(name)
    assert module is importlib.import_module(_paths.OLD[name])
    assert before in (None, module), f"{parent}.{child} was {before!r}: a module would take its place"
