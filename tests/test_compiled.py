"""Kernels run as machine code of the wheel where it fits, and numba compiles them where it does not."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from ostraka import GNMax, PATEClassifier
from ostraka.core import compiled as _compiled
from ostraka.core.compiled import Kernel, kernel
from ostraka.core.kernels import draws
from ostraka.secure import comparison

ROOT = Path(__file__).resolve().parents[1]
KERNELS = [
    each
    for name in _compiled.MODULES
    for each in vars(importlib.import_module(f"ostraka.{name}")).values()
    if isinstance(each, Kernel) and each.function.__module__ == f"ostraka.{name}"
]


@kernel("f8[:,::1], i8")
def twice(values, n):
    return values.sum() * 2 * n


@pytest.fixture
def shipped(monkeypatch):
    """Machine code of ``twice`` that says that it was called."""
    code = SimpleNamespace(**dict.fromkeys(twice.symbols(), lambda *_: "shipped"))
    monkeypatch.setattr(_compiled, "machine_code", lambda: code)
    twice.__dict__.pop("_shipped", None)
    yield
    twice.__dict__.pop("_shipped", None)


@pytest.mark.usefixtures("shipped")
def test_machine_code_runs_for_the_types_of_its_signature_only():
    table = np.ones((2, 2))
    assert twice(table, 1) == "shipped"
    table.setflags(write=False)
    assert twice(table, np.int64(1)) == "shipped"
    for others in (table.astype(int), np.asfortranarray(np.ones((2, 3))), np.ones(2)):
        assert twice(others, 1) == 2 * others.sum()
    assert twice(table, 1.0) == 8.0


@pytest.mark.skipif(not _compiled.PROCESSOR, reason="machine code here is for any processor of its kind")
@pytest.mark.parametrize("lacking", [*_compiled._NEEDED, *_compiled._NEEDED_IF_KNOWN])
def test_machine_code_is_left_aside_where_the_processor_lacks_an_instruction(lacking, monkeypatch):
    from numpy._core import _multiarray_umath

    has = dict.fromkeys((*_compiled._NEEDED, *_compiled._NEEDED_IF_KNOWN), True)
    monkeypatch.setattr(_multiarray_umath, "__cpu_features__", has)
    assert _compiled._runs_here()
    monkeypatch.setattr(_multiarray_umath, "__cpu_features__", has | {lacking: False})
    assert not _compiled._runs_here()


def test_other_sources_have_other_machine_code(tmp_path, monkeypatch):
    here = Path(_compiled.__file__).parent
    there = shutil.copytree(here, tmp_path / "core", ignore=lambda *_: {"__pycache__", "ledger"})
    (tmp_path / "secure").mkdir()
    shutil.copy2(comparison.__file__, tmp_path / "secure")
    monkeypatch.setattr(_compiled, "__file__", str(there / "compiled.py"))
    before = _compiled.machine_name()
    source = there / "kernels" / "outcome.py"
    source.write_text(source.read_text("utf-8").replace("-16.0", "-15.0"), "utf-8")
    assert _compiled.machine_name() != before


def test_where_nothing_can_be_cached_kernels_are_compiled_all_the_same(monkeypatch):
    njit = numba.njit

    def nowhere(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", nowhere)
    assert Kernel(lambda x: x + 1.0, (), {})(1.0) == 2.0


@pytest.fixture
def called(monkeypatch):
    """The kernels that were called, by name and types of arguments; each call must be in the wheel."""
    called = {}
    run = Kernel.__call__

    def noted(self, *arguments):
        types = tuple(_compiled._type(each) for each in arguments)
        called.setdefault((self.function.__qualname__, types), self)
        return run(self, *arguments)

    monkeypatch.setattr(Kernel, "__call__", noted)
    yield called
    assert called
    for (name, types), each in called.items():
        assert types in {_compiled._types(signature) for signature in each.signatures}, (name, types)


def test_every_kernel_that_a_run_calls_is_in_the_wheel(called):
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(120, 2)), rng.normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(int)
    model = PATEClassifier(
        n_teachers=10, mechanism=GNMax(sigma=9.0), n_answers=12, way="argmax", random_state=0
    )
    model.fit(X, y, X_public=public)
    new = rng.normal(size=(20, 2))
    model.evaluate(new, (new[:, 0] > 0).astype(int), X_private=X, y_private=y)
    assert len(called) > 3


def test_every_kernel_of_a_secret_comparison_is_in_the_wheel(called):
    key, rng, n = bytes(16), np.random.default_rng(0), 9
    roots = np.stack([comparison.seeds(rng.integers(0, 2**64, 2 * n, dtype=np.uint64)) for _ in range(2)])
    points, alphas = rng.integers(0, 2**comparison.BITS, (2, n), dtype=np.uint64)
    betas = np.ones(n, dtype=np.uint64)
    words = comparison.deal(key, roots, alphas, betas)
    shares = [comparison.evaluate(key, roots[i], words, points, second=bool(i)) for i in range(2)]
    assert ((shares[0] + shares[1]) % comparison.MODULUS == (points < alphas)).all()
    matrix = rng.integers(0, 2**64, (3, 3), dtype=np.uint64)
    assert (comparison.multiply(matrix, matrix) == matrix @ matrix).all()
    assert len(called) == 5


def test_signatures_are_what_numba_compiles():
    assert KERNELS
    for each in KERNELS:
        for signature in each.signatures:
            types = numba.core.sigutils.normalize_signature(f"({signature},)")[0]
            spelled = _compiled._types(signature)
            assert len(types) == len(spelled)
            for name, said in zip(types, spelled, strict=True):
                if isinstance(name, numba.types.Array):
                    assert (f"{np.dtype(str(name.dtype)).str}{name.ndim}", name.layout) == (said, "C")
                else:
                    assert said in {"b1", "f8", "i8", "u8"}


@pytest.mark.skipif(_compiled.machine_code() is None, reason="no machine code: type make machine")
def test_machine_code_computes_what_numba_computes():
    code, rng = _compiled.machine_code(), np.random.default_rng(0)
    words = rng.integers(0, 2**64, 4000, dtype=np.uint64)
    counts = rng.integers(0, 9, (400, 10)).astype(float)
    noise = np.empty((2, 4000))
    for draw, sizes in zip((draws.sizes.jitted, code.ostraka_core_kernels_draws_sizes_0), noise, strict=True):
        draw(words, draws.table(0), sizes)
    np.testing.assert_array_equal(*noise)
    assert np.isfinite(noise).any()
    best, sure = np.empty((2, 400), np.int64), np.empty((2, 400), bool)
    largest = draws.largest.jitted, code.ostraka_core_kernels_draws_largest_0
    for draw, *places in zip(largest, best, sure, strict=True):
        draw(counts, noise[0].reshape(400, 10), 2.0, 2.0**-40, *places)
    np.testing.assert_array_equal(*best)
    np.testing.assert_array_equal(*sure)


WHOLE = """
import hashlib, sys
import numpy as np
from ostraka import Confident, GNMax, LNMax, Threshold, _compiled
from ostraka.core.kernels.steps import best_steps
rng = np.random.default_rng(0)
counts = rng.multinomial(250, rng.dirichlet(np.ones(10)), 60).astype(float)
said = []
for m in (GNMax(sigma=40.0), GNMax(sigma=0.5), LNMax(scale=20.0)):
    said.append(m.log_outcomes(counts))
    said.append(m.log_outcomes_gradient(counts[:9])[1])
A = rng.normal(size=(6, 6))
said.append(best_steps(np.full(6, 5.0), rng.normal(size=(9, 6)), A @ A.T + np.eye(6)))
screened = Confident(screen=Threshold(at=150.0, sigma=60.0), argmax=GNMax(sigma=40.0))
from ostraka.accounting import exact_curve
said.append(np.round(exact_curve(screened, counts.astype(int)).rdp, 12))
print(_compiled.machine_code() is not None, "numba" in sys.modules)
print(hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in said)).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_package_with_machine_code_computes_the_same_and_does_not_load_numba(tmp_path):
    # what `make test` compiled beside the sources is taken along; numba's cache is that of the checkout
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=lambda *_: {"__pycache__"})
    shutil.copy2(ROOT / "hatch_build.py", tmp_path)
    subprocess.run([sys.executable, "hatch_build.py"], check=True, cwd=tmp_path)
    runs = [
        subprocess.run(
            [sys.executable, "-c", WHOLE], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(folder / "src"), "OSTRAKA_MACHINE_CODE": wanted},
        ).stdout.split("\n")
        for folder, wanted in ((tmp_path, "auto"), (ROOT, "off"))
    ]  # fmt: skip
    assert [run[0] for run in runs] == ["True False", "False True"]
    assert runs[0][1] == runs[1][1]
