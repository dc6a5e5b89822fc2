"""Fixtures for every test, and how hypothesis searches.

``data_dir`` finds the shared data sets and skips when they are not there, so that a plain checkout passes.
Property tests repeat the same examples each run.
``pytest --hypothesis-profile nightly`` searches afresh, and longer.

No test may fail by chance or because the machine is busy. What a test draws from the operating system, by a
release or a deal, is the same in every run, in this process at least. Even so it is either not asserted on,
or only so that a correct draw fails with a chance below 1e-9, or drawn under ``same_draws``.
"""

import contextlib
import gc
import hashlib
import itertools
import multiprocessing
import os
import random
import re
import signal
import socket
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is loaded; workers share the cores

# What tests write is thrown away, and ledgers wait thousands of times until the disk has it: memory has it at
# once. Three workers leave less than half a gigabyte there, and some start programs that they wrote.
if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK):
    memory = os.statvfs("/dev/shm")
    if memory.f_bavail * memory.f_frsize > 4 << 30 and not memory.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("RAY_TMPDIR", tempfile.gettempdir())  # it keeps logs, and objects there itself
        tempfile.tempdir = os.environ["TMPDIR"] = "/dev/shm"

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a shell's background: what tests interrupt would be deaf
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parents[1]

# No deadlines: on shared cores the clock judges the neighbours, not the code.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile(
    "nightly",
    derandomize=False,
    deadline=None,
    max_examples=1_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Forget compiled kernels older than any kernel's source: numba looks at the caller's file only."""
    package = REPOSITORY / "src" / "ostraka"
    compiled_code = re.compile("njit|^@kernel", re.MULTILINE)
    kernels = [path for path in package.rglob("*.py") if compiled_code.search(path.read_text("utf-8"))]
    newest = max((path.stat().st_mtime for path in kernels), default=0.0)
    for compiled in (*package.rglob("*.nbi"), *package.rglob("*.nbc")):
        with contextlib.suppress(FileNotFoundError):  # another worker was quicker
            if compiled.stat().st_mtime < newest:
                compiled.unlink()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Nothing that is collected is garbage, and looking for some would take a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Examples stand in the package: nobody need look for some in the tests."""
    return [collector for collector in (yield) if not isinstance(collector, DoctestModule)]


_PACKAGES = {  # of modules that are named otherwise
    "torch": "'.[torch]'",
    "ostraka": "'.[torch]'",
    "matplotlib": "'.[plots]'",
    "openpyxl": "'.[excel]'",
    "onnx": "'.[onnx]'",
    "PIL": "pillow",
    "jax_privacy": "jax-privacy",
}


def _say_what_to_type(report):
    """A test that lacks a module says how to get it."""
    if report.skipped and isinstance(report.longrepr, tuple):
        file, line, reason = report.longrepr
        if (module := re.search(r"could not import '(\w+)", reason)) and "pip install" not in reason:
            package = _PACKAGES.get(module[1], module[1])
            report.longrepr = file, line, f"{reason}; to run it: pip install {package}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _say_what_to_type((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _say_what_to_type((yield))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the shared data sets: OSTRAKA_DATA, or ``shared/data`` beside the checkout."""
    named = os.environ.get("OSTRAKA_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the shared data sets are not at {folder}; set OSTRAKA_DATA to their folder")
    return folder


@contextlib.contextmanager
def _alike(name=""):
    """Each place in the code that asks the operating system gets a stream of its own, the same each time."""
    counters, process = {}, os.getpid()

    def drawn(size: int) -> bytes:
        code = sys._getframe(1).f_code
        place = f"{name}{Path(code.co_filename).name}:{code.co_qualname}"
        place += (
            "" if os.getpid() == process else f" of {os.getpid()}"
        )  # a fork must not draw what another does
        number = next(counters.setdefault(place, itertools.count(1)))
        return hashlib.shake_256(f"{place}/{number}".encode()).digest(size)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "urandom", drawn)
        patched.setattr(random, "_urandom", drawn)  # of secrets, and of numpy's generators without a seed
        yield


def _seed_generators() -> None:
    """Those of a process that estimators and modules draw from where nobody seeds them."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """What a fixture draws is the same in every run, whichever test needs it first."""
    _seed_generators()
    with _alike(f"{fixturedef.baseid}/{fixturedef.argname}/{getattr(request, 'param_index', 0)}/"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """What a test draws in this process is the same in every run: what passes once goes on passing."""
    _seed_generators()
    with _alike(f"{item.nodeid}/"):
        return (yield)


@pytest.fixture
def same_draws():
    """Noise, samples and deals without a key come out the same in every run of this test."""
    with _alike():
        yield


@pytest.fixture(scope="session")
def with_same_draws():
    """The same for a part of a test or for a fixture of a wider scope: ``with with_same_draws(): …``."""
    return _alike


def _told(code, folder, output):
    for name in [name for name in sys.modules if name.partition(".")[0] == "ostraka"]:
        del sys.modules[name]
    sys.modules["ostraka"] = None  # importing it fails
    os.chdir(folder)
    with output.open("w") as file, contextlib.redirect_stdout(file):
        exec(code, {"__name__": "__main__"})


@pytest.fixture(scope="session")
def without_the_library(tmp_path_factory):
    """Run Python code where ostraka cannot be imported, in a folder, and return what it prints.

    In a fork of this process, which has the libraries of others already: loading them takes seconds.
    """

    def run(code, folder):
        output = tmp_path_factory.mktemp("said") / "out"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it does not use the threads that it lacks
            child = multiprocessing.get_context("fork").Process(target=_told, args=(code, folder, output))
            child.start()
        child.join(120)
        assert child.exitcode == 0
        return output.read_text()

    return run


@pytest.fixture
def free_port():
    """A port of this machine that nobody else is given meanwhile: held, but not listened at."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


@pytest.fixture(scope="session")
def postgresql():
    """The address of one PostgreSQL for all tests of this process; skips where there is none."""
    from rigs import postgres
    from rigs.disk import UnavailableError

    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[service]'")
    try:
        with postgres.server() as address:
            yield address
    except UnavailableError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def new_schema(postgresql):
    """Call it for the address of a schema of its own, in which there is nothing yet."""
    import psycopg

    def new_schema():
        with psycopg.connect(postgresql, autocommit=True) as db:
            (n,) = db.execute("SELECT count(*) FROM pg_namespace").fetchone()
            db.execute(f"CREATE SCHEMA s{n}")
        return f"{postgresql}&options=-csearch_path%3Ds{n}"

    return new_schema


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """One Chromium for all tests of this process; skips where there is none."""
    from tests.serve.chromium import Chromium

    try:
        browser_process = Chromium(tmp_path_factory.mktemp("profile"))
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    yield browser_process
    browser_process.close()


@pytest.fixture(scope="module")
def browser(chromium):
    """It, for the tests of a file: nothing of theirs stays open or is remembered after them."""
    yield chromium
    chromium.forget()


class Wire:
    """A party's link that keeps what went over it, and may change it."""

    def __init__(self, link, *, sent=None, received=None):
        self.link, self.log = link, {}
        self.sent, self.received = sent or {}, received or {}

    def ask(self, verb, sealed, most, *, again=False):
        self.log[f"{verb} request"] = sealed = self.sent.get(verb, lambda x: x)(sealed)
        answer = self.received.get(verb, lambda x: x)(self.link.ask(verb, sealed, most, again=again))
        self.log[f"{verb} answer"] = answer
        return answer


@pytest.fixture(scope="session")
def ensemble():
    """Make parties that always vote for their one class: number modulo ``n_classes`` unless told."""

    def make(n_parties: int = 3, *, n_classes: int = 3, votes=None, **options):
        from sklearn.naive_bayes import GaussianNB

        from ostraka.parties.parties import PartyEnsemble

        votes = [number % n_classes for number in range(n_parties)] if votes is None else votes
        data = [([[0.0, 1.0]], [vote]) for vote in votes]
        return PartyEnsemble.in_process(
            GaussianNB(), data, classes=range(n_classes), **({"sigma": 1.0} | options)
        )

    return make


@pytest.fixture(scope="session")
def tap():
    """Put such a wire between the ensemble and one party."""

    def put(parties, name: str = "party-1", **changes) -> Wire:
        parties._links[name] = Wire(parties._links[name], **changes)
        return parties._links[name]

    return put
