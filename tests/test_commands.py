"""Every command under bench/ and reproduce/ runs in its smallest form, so that none rots unseen."""

import importlib
import multiprocessing
import os
import sys
import warnings
from pathlib import Path

import pytest

from bench import _data, _tables

REPOSITORY = Path(__file__).resolve().parents[1]
# What a command needs beside the shared data, or more time than a test has.
NEEDS = {
    "bench.attacks": "torch",
    "bench.membership": "torch",
    "bench.membership_weights": "torch",
    "bench.dp_sgd": "opacus",
    "bench.dp_sgd_jax": "jax_privacy",
    "bench.service": "httptools",
    "bench.service_stages": "httptools",
    "bench.teachers": "torch",
    "reproduce.malek2021": "torch",
    "reproduce.malek2021_posteriors": "torch",
    "reproduce.melis2018_attacks": "torch",
    "reproduce.melis2018_membership": "torch",
    "bench.private_training": "torch",
}


def modules(folder):
    return [f"{folder}.{path.stem}" for path in sorted((REPOSITORY / folder).glob("[!_]*.py"))]


def test_every_command_has_a_smallest_form():
    lacking = [
        name
        for name in modules("bench") + modules("reproduce")
        if "QUICK" not in (REPOSITORY / f"{name.replace('.', '/')}.py").read_text()
    ]
    assert lacking == []


# A command runs in a process of its own, as a user's does: no other has changed a setting for it. These
# processes are forked from one that has imported what many commands need, so that a start costs little.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["bench._data", "ostraka.learn.classifier", "sklearn.neural_network", "torch"])

# Their smallest form takes two seconds of a processor or more: `make slow` runs it, `make test` starts them.
LONG = {
    *("bench.attacks", "bench.collect", "bench.collect_merge", "bench.collect_scale"),
    *("bench.composition", "bench.defences", "bench.devices", "bench.diabetes130"),
    *(
        "bench.digits",
        "bench.dp_sgd",
        "bench.false_claims",
        "bench.fashion",
        "bench.first_runs",
        "bench.forecasts",
        "bench.sureness",
    ),
    *("bench.generator_audits", "bench.generators", "bench.marginals", "bench.membership"),
    *("bench.membership_weights", "bench.neighbours", "bench.parties", "bench.pate_fm"),
    *("bench.private_training", "bench.prompts", "bench.recovery", "bench.rivals"),
    *("bench.scale_out", "bench.sequences", "bench.service", "bench.service_stages"),
    *("bench.slopes", "bench.synth", "bench.table_controls", "bench.tables", "bench.teachers"),
    *("bench.text", "bench.utility", "reproduce.malek2021", "reproduce.malek2021_posteriors"),
    "reproduce.melis2018_attacks",
    *("reproduce.melis2018_generators", "reproduce.melis2018_membership"),
    *("reproduce.papernot2017", "reproduce.papernot2017_students"),
}


def run_alone(folder, arguments, output):
    """Run a command in this process, with what it prints in a file."""
    with Path(output).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        warnings.simplefilter("ignore")
        sys.exit(importlib.import_module(f"{folder}.__main__").main(arguments))


def start_alone(name):
    """Load a command in this process, take its smallest form, and leave."""
    module = importlib.import_module(name)
    _data.shrink(module)
    sys.exit(0 if callable(module.main) else 1)


def exit_code(target, *arguments):
    """Of a function that runs in a process of its own."""
    process = SERVER.Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("name", sorted(LONG))
def test_a_long_command_starts(name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    assert exit_code(start_alone, name) == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in modules("bench") + modules("reproduce")
    ],
)
@pytest.mark.usefixtures("data_dir")
def test_a_command_runs_in_its_smallest_form(name, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if name == "bench.tables" and not any(_tables.folder().glob("*.whl")):
        pytest.skip("its tables are not in the cache: python -m bench._tables fetches them")
    folder, _, module = name.partition(".")
    output = tmp_path / "output.txt"
    code = exit_code(run_alone, folder, ["--quick", module], output)
    assert code == 0, output.read_text()
    assert output.read_text().strip()


@pytest.mark.parametrize("name", ["bench", "reproduce", *modules("reproduce")])
def test_help_works_everywhere(name, capsys):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    folder, *module = name.split(".")
    try:
        code = importlib.import_module(f"{folder}.__main__").main([*module, "--help"])
    except SystemExit as end:  # argparse
        code = end.code
    output = capsys.readouterr().out
    assert code == 0
    assert "python -m" in output or output.startswith("usage: ")


def test_the_smallest_form_of_a_named_part_is_that_part_alone(monkeypatch):
    monkeypatch.setattr(_data, "MOST_ROWS", None)  # put back after shrink() has set it
    from reproduce import melis2018_statistics as thesis

    calls = []

    def part(*, quick):
        """Stands for a figure."""
        calls.append(quick)

    monkeypatch.setitem(thesis.PARTS, "figure4.4", part)
    main = importlib.import_module("reproduce.__main__").main
    assert main(["--quick", "melis2018_statistics", "figure4.4"]) == 0
    assert main(["melis2018_statistics", "figure4.4"]) == 0
    assert calls == [True, False]


def test_words_in_as_many_reports_are_taken_by_the_alphabet(monkeypatch):
    pytest.importorskip("torch")
    from reproduce import _melis2018_worlds as worlds

    texts = [("world", ["b", "d", "a"]), ("sports", ["c", "a", "b", "reuters"])]
    monkeypatch.setattr(worlds, "_texts", lambda _: texts)
    X, y, has = worlds.news(n_words=3)
    assert X.tolist() == [[1, 1, 0], [1, 1, 1]]  # a, b, and c rather than d, which is met first
    assert (y.tolist(), has.tolist()) == ([1, 0], [False, True])


@pytest.mark.parametrize("folder", ["bench", "reproduce"])
def test_an_unknown_name_is_refused_with_those_there_are(folder, capsys):
    main = importlib.import_module(f"{folder}.__main__").main
    assert main(["nothing"]) == 2
    assert "collect" in capsys.readouterr().err or folder == "reproduce"
