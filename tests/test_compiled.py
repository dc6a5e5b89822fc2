"""Kernels run as machine code of the wheel where it fits, and numba compiles them where it does not."""

import copy
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
import scipy

from ostraka import Confident, GNMax, LNMax, PATEClassifier, Threshold
from ostraka.attacks import recover_votes
from ostraka.audit.attacks.sampler import tables
from ostraka.core import compiled as _compiled
from ostraka.core.compiled import Kernel, kernel
from ostraka.core.kernels import draws, perceptrons, recovery
from ostraka.core.kernels.outcome import GAUSSIAN
from ostraka.secure import comparison

ROOT = Path(__file__).resolve().parents[1]
KERNELS = [
    function
    for name in _compiled.MODULES
    for function in vars(importlib.import_module(f"ostraka.{name}")).values()
    if isinstance(function, Kernel) and function.function.__module__ == f"ostraka.{name}"
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
    copy = shutil.copytree(here, tmp_path / "core", ignore=lambda *_: {"__pycache__", "ledger"})
    (tmp_path / "secure").mkdir()
    shutil.copy2(comparison.__file__, tmp_path / "secure")
    monkeypatch.setattr(_compiled, "__file__", str(copy / "compiled.py"))
    before = _compiled.machine_name()
    source = copy / "kernels" / "outcome.py"
    source.write_text(source.read_text("utf-8").replace("-16.0", "-15.0"), "utf-8")
    assert _compiled.machine_name() != before


def test_scipy_with_integers_of_another_width_has_other_machine_code(monkeypatch):
    before, said = _compiled.machine_name(), copy.deepcopy(scipy.show_config(mode="dicts"))
    blas = said["Build Dependencies"]["blas"]
    blas["cython blas ilp64"] = not blas.get("cython blas ilp64", False)
    monkeypatch.setattr(scipy, "show_config", lambda mode: said)
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
        types = tuple(_compiled._type(argument) for argument in arguments)
        called.setdefault((self.function.__qualname__, types), self)
        return run(self, *arguments)

    monkeypatch.setattr(Kernel, "__call__", noted)
    yield called
    assert called
    for (name, types), calls in called.items():
        assert types in {_compiled._types(signature) for signature in calls.signatures}, (name, types)


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


@pytest.mark.parametrize("prior", ["leader", "alike"])
@pytest.mark.parametrize("noise", ["largest", "every"])
def test_every_kernel_of_a_recovery_is_in_the_wheel(called, prior, noise):
    screened = Confident(screen=Threshold(at=9.0, sigma=4.0, noise=noise), argmax=GNMax(sigma=2.0))
    for mechanism, answers in (
        (GNMax(sigma=2.0), [30, 20, 5]), (LNMax(scale=2.0), [30, 20, 5]), (screened, [30, 20, 5, 9]),
    ):  # fmt: skip
        recover_votes(np.array(answers), n_teachers=12, mechanism=mechanism, prior=prior)
    assert ("chain", _compiled._types(recovery.chain.signatures[0])) in called


@pytest.mark.parametrize(("patience", "kernels"), [(None, {"train"}), (1, {"train", "held_out_loss"})])
def test_every_kernel_of_a_perceptron_is_in_the_wheel(called, patience, kernels):
    pytest.importorskip("torch")
    from ostraka.nets.training import TrainingSet
    from ostraka.nets.vectorised import plan, train_stack
    from ostraka.networks import TorchClassifier

    network = TorchClassifier("perceptron", epochs=2, batch_size=4, device="cpu", patience=patience)
    rows = np.random.default_rng(0).random((9, 5), dtype=np.float32)
    planned = plan(network, n_features=5, n_classes=2)
    assert planned.compiled
    train_stack(planned, [TrainingSet(rows=rows, codes=np.arange(9) % 2, seed=0)])
    assert {name for name, _ in called} == kernels


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


def of_draws(run):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (400, 10)).astype(float)
    noise, best, sure = np.empty(4000), np.empty(400, np.int64), np.empty(400, bool)
    run(draws.sizes)(rng.integers(0, 2**64, 4000, dtype=np.uint64), draws.table(0), noise)
    run(draws.largest)(counts, noise.reshape(400, 10), 2.0, 2.0**-40, best, sure)
    assert np.isfinite(noise).any()
    return noise, best, sure


def of_chains(run):
    lookup = tables(
        np.array([50, 30, 9, 20]), 40, noise=(GAUSSIAN, 4.0), bar=(2, 9.0, 4.0), steps=40, prior="leader"
    )
    return run(recovery.chain)(np.array([20, 15, 5]), np.full((3, 3), 4.0), 5000, 7, *lookup)


def of_perceptrons(run):
    rng, widths = np.random.default_rng(0), np.array([30, 17, 9, 5])
    n_weights = int(((widths[:-1] + 1) * widths[1:]).sum())
    rows, weights = rng.random((60, 30), dtype=np.float32), np.float32(rng.normal(size=n_weights))
    moments, absent = np.zeros((2, n_weights), dtype=np.float32), np.arange(5) == 2
    row_weights = np.float32(rng.dirichlet(np.ones(7)))
    learned = rows, rng.choice([0, 1, 3, 4], 60), row_weights, absent, widths, weights
    order = rng.integers(0, 60, (20, 8, 7))
    rates, constants = np.linspace(0.02, 0.001, 160).reshape(20, 8), np.array([0.9, 0.999, 1e-8, 0.01])
    losses = run(perceptrons.train)(*learned, moments, constants, order, rates, 0)
    assert losses[-1] < losses[0]
    return losses, weights, moments, np.array(run(perceptrons.held_out_loss)(*learned, np.arange(23)))


@pytest.mark.skipif(_compiled.machine_code() is None, reason="no machine code: type make machine")
@pytest.mark.parametrize("of_kernels", [of_draws, of_chains, of_perceptrons])
def test_machine_code_computes_what_numba_computes(of_kernels):
    code = _compiled.machine_code()
    by_wheel = of_kernels(lambda each: getattr(code, *each.symbols()))
    for one, other in zip(by_wheel, of_kernels(lambda each: each.jitted), strict=True):
        np.testing.assert_array_equal(one, other)


WHOLE = """
import hashlib, sys
import numpy as np
from ostraka import Confident, GNMax, LNMax, Threshold, _compiled
from ostraka.core.kernels.recovery import best_steps
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
from ostraka.attacks import recover_votes
said.append(recover_votes(np.array([30, 20, 5]), n_teachers=12, mechanism=GNMax(sigma=2.0)).mean)
from ostraka.nets.vectorised import TrainingSet, plan, train_stack
from ostraka.networks import TorchClassifier
planned = plan(TorchClassifier(epochs=3, batch_size=8, device="cpu"), n_features=10, n_classes=3)
own = [TrainingSet(rows=np.float32(counts / 250), codes=np.arange(60) % 3, seed=seed) for seed in range(3)]
networks, _, losses = train_stack(planned, own)
said += [np.array(losses), *(part.numpy() for each in networks for part in each.values())]
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
