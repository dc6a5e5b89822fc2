"""Errors: one sentence and an exit code, and never a message that this package did not write itself."""

import sys
import warnings
from contextlib import nullcontext

import click
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import ostraka.cli
from ostraka import console as _errors
from ostraka.ledger import LedgerError

CANARY = "canary-7391"


def caught(source: str, module: str = "ostraka.somewhere") -> BaseException:
    """What a piece of code raises, as if it stood in a module of that name."""
    try:
        exec(compile(source, f"/src/{module.replace('.', '/')}.py", "exec"), {"__name__": module})
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is what is tested)
        return error
    raise AssertionError("nothing was raised")


def test_messages_raised_in_this_package_are_told():
    error = caught("raise ValueError('sigma must be finite and > 0, got nan')")
    assert _errors.failure(error) == (1, "sigma must be finite and > 0, got nan")
    assert _errors.failure(LedgerError("never raised"))[0] == 1


@pytest.mark.parametrize(
    "source",
    [
        f"float('{CANARY}')",
        f"{{}}['{CANARY}']",
        f"try:\n    float('{CANARY}')\nexcept ValueError:\n    raise",
        f"import contextlib\nwith contextlib.ExitStack():\n    int('{CANARY}')",
        f"try:\n    float('{CANARY}')\nfinally:\n    x = 1",
        f"import warnings\nwarnings.simplefilter('error')\nwarnings.warn('{CANARY}')",
        f"import numpy\nnumpy.array(['{CANARY}']).astype(float)",
    ],
)
def test_messages_of_built_in_and_foreign_code_are_not_told(source):
    with warnings.catch_warnings():
        code, words = _errors.failure(caught(source))
    assert code == 1
    assert CANARY not in words
    assert "please report it" in words
    assert "ostraka/somewhere.py:" in words


def test_messages_raised_by_other_packages_are_not_told():
    assert CANARY not in _errors.failure(caught(f"raise ValueError('{CANARY}')", module="sklearn.base"))[1]
    assert CANARY not in _errors.failure(caught(f"raise ValueError('{CANARY}')", module="ostraka_addon"))[1]
    with pytest.raises(ValueError, match=CANARY) as foreign:
        LogisticRegression().fit([[CANARY]], [0])
    assert CANARY not in _errors.failure(foreign.value)[1]


def test_an_error_about_an_option_is_usage():
    with pytest.raises(click.UsageError, match=r"--sigma: sigma must be"), _errors.usage("--sigma"):
        raise ValueError("sigma must be finite and > 0, got nan")


def run(monkeypatch, command, *arguments: str) -> int:
    """The exit code of ``ostraka probe`` where the probe is ours."""
    app = _errors.Group("Probes.")
    _errors.verb(app)(command)
    monkeypatch.setattr(ostraka.cli._verbs, "command", lambda _: app)
    with pytest.raises(SystemExit) as ending:
        ostraka.cli.main(["probe", *arguments])
    return ending.value.code


def test_no_traceback_reaches_the_terminal(monkeypatch, capfd):
    def probe() -> None:
        secret = CANARY
        np.array([secret]).astype(float)

    assert run(monkeypatch, probe) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert CANARY not in err
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_an_interrupt_is_told_once_and_what_a_command_returns_by_exit_is_its_code(monkeypatch, capfd):
    def probe() -> None:
        raise KeyboardInterrupt

    def leaves() -> None:
        raise click.exceptions.Exit(3)

    assert run(monkeypatch, probe) == 130
    assert capfd.readouterr().err.startswith("ostraka: interrupted: ")
    leaves.__name__ = "probe"
    assert run(monkeypatch, leaves) == 3


def test_foreign_warnings_are_not_shown_and_ours_are_one_line(monkeypatch, capfd):
    def probe() -> None:
        warnings.simplefilter("always")
        warnings.warn_explicit(CANARY, UserWarning, "/site-packages/sklearn/base.py", 1)
        warnings.warn_explicit("3 teachers failed", UserWarning, ostraka.cli.__file__, 1)

    assert run(monkeypatch, probe) == 0
    assert capfd.readouterr().err == "note: 3 teachers failed\n"


def test_wrong_usage_has_code_two(monkeypatch, capfd):
    def probe(*, n: int = _errors.option(0)) -> None:
        raise AssertionError(n)

    assert run(monkeypatch, probe, "--n", "x") == 2
    assert "probe --help" in capfd.readouterr().err


def test_pandas_is_hidden_from_verbs_that_do_without_it_where_the_process_ends_with_them(monkeypatch):
    names = []
    monkeypatch.setattr(ostraka.cli._imports, "hidden", lambda *hidden: names.append(hidden) or nullcontext())
    monkeypatch.setattr(ostraka.cli._verbs, "command", lambda _: _errors.Group("No verbs."))
    monkeypatch.setattr(sys, "argv", ["ostraka", "learn"])
    for arguments in (None, ["learn"]):
        with pytest.raises(SystemExit):
            ostraka.cli.main(arguments)
    monkeypatch.setattr(sys, "argv", ["ostraka", "account"])
    with pytest.raises(SystemExit):
        ostraka.cli.main()
    assert names == [("pandas",), (), ()]
