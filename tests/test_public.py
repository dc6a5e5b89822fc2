"""The public surface: what ``__all__`` says, documented, with a tested example, and hard to call wrongly."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import pytest

import ostraka
from ostraka.collect.messages import Roster
from ostraka.collect.validity import Form
from ostraka.learn.options import RunOptions
from ostraka.nets.private import PrivateTraining

ROOT = Path(ostraka.__file__).parent
# Public import paths: the modules that have a stub for type checkers, and these packages. Other rooms are how
# the house is built, and not for import.
PUBLIC_MODULES = [
    "ostraka",
    *sorted(f"ostraka.{path.stem}" for path in ROOT.glob("*.pyi")),
    *(
        f"ostraka.{name}"
        for name in ("cli", "collect", "networks", "report", "secure", "synth", "text", "voters")
    ),
]
MODULES_OF_BEFORE = {"ostraka.plots", "ostraka.report"}  # which keep other names, too
PACKAGES = [
    name
    for name in PUBLIC_MODULES
    if name not in MODULES_OF_BEFORE and hasattr(importlib.import_module(name), "__path__")
]
DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
MOST_NAMES = 142


def exported() -> list[tuple[str, str]]:
    """Module and name of everything in ``__all__`` of a public module."""
    return [(m, name) for m in PUBLIC_MODULES for name in getattr(importlib.import_module(m), "__all__", ())]


def documented() -> list[tuple[str, str]]:
    """What the reference documents beside: results, errors and what extensions need."""
    lines = re.findall(r"^\.\. auto(?:class|function|exception):: (\S+)\.(\w+)$", REFERENCE, re.MULTILINE)
    return [(module, name) for module, name in lines if "_diverged" not in module]


def callables():
    """Every function and class of the reference once, under the module that defines it."""
    by_name = {}
    for module, name in (*exported(), *documented()):
        value = getattr(importlib.import_module(module), name, None)
        if inspect.isfunction(value) or inspect.isclass(value):
            by_name[f"{value.__module__}.{value.__qualname__}"] = value
    return by_name


CALLABLES = callables()
every_module = pytest.mark.parametrize("module", PUBLIC_MODULES)


def public_methods(value):
    """Methods a class defines itself, by name."""
    if not inspect.isclass(value):
        return {}
    plain = {
        name: getattr(method, "__func__", method)
        for name, method in vars(value).items()
        if not name.startswith("_")
    }
    return {name: method for name, method in plain.items() if inspect.isfunction(method)}


def shown_elsewhere(value) -> bool:
    """Protocols have nothing to run; errors and plain records are shown by what raises or returns them."""
    if not inspect.isclass(value):
        return False
    record = dataclasses.is_dataclass(value) and not public_methods(value)
    return getattr(value, "_is_protocol", False) or issubclass(value, Exception) or record


# Callables without an example of their own, and what shows them.
MODELS = ("LlamaCpp", "ServedModel", "Transformers")
NEEDS_NO_EXAMPLE = {
    "ostraka.cli.main": "tests/test_docs.py: its help pages",
    **{f"ostraka.text.models.{name}": "tests/text/test_models.py: it needs a model" for name in MODELS},
    **{name: "what raises or returns it" for name, value in CALLABLES.items() if shown_elsewhere(value)},
    **{
        name: "figures(), which draws all"
        for name in CALLABLES
        if re.match(r"ostraka\.plots\.(?!figures)", name)
    },
}

# Numbers that may be given without their name, and why two cannot be swapped unseen. A callable's only
# argument needs no entry.
MAY_BE_POSITIONAL = {
    "ostraka.core.curve.Curve": "the fields of a record, which its constructors and the ledger fill",
    "ostraka.collect.encodings.Histogram": "two ends of a range, in this order; cells are named",
    "ostraka.collect.encodings.Sum": "two ends of a range, in this order; bits are named",
    "ostraka.collect.encodings.Sum.encode": "one value",
    "ostraka.collect.encodings.Tree": "two ends of a range, refused in the wrong order",
    "ostraka.audit.attacks.generators.TargetGenerator.sample": "how many rows, as there",
    "ostraka.synth.evolution.Evolution.sample": "how many rows: what a call to sample is about",
    "ostraka.synth.dpgm.DPGM": "the number of clusters, as PrivateKMeans",
    "ostraka.synth.dpgm.DPGM.sample": "how many rows: what a call to sample is about",
    "ostraka.synth.clusters.PrivateKMeans": "the number of clusters, as in scikit-learn's KMeans",
    "ostraka.synth.clusters.PrivateKMeans.sample": "how many rows: what a call to sample is about",
    "ostraka.synth.sequences.SequenceGenerator.sample": "how many persons: what a call to sample is about",
    "ostraka.synth.tables.TableGenerator.sample": "how many rows: what a call to sample is about",
    "ostraka.synth.tables.TableGenerator.sample_codes": "as sample",
    "ostraka.text.writer.Writer.write": "how many texts: what a call is about",
    "ostraka.core.ledger.ledger.Ledger.record": "an entry by the number that charge() gave it",
}


HOLD_STATE = {"Job", "Release", "Request", "SecretRound", "Session", "_Priors"}  # what goes on is in them
WITHOUT_SLOTS = {Form, PrivateTraining, Roster, RunOptions}  # which keep what they compute, or mix in


def is_scalar(annotation: object) -> bool:
    """Whether an annotation admits a bare number."""
    words = re.split(r"\s*\|\s*", getattr(annotation, "__name__", str(annotation)))
    return bool({"float", "int"} & set(words))


def positional_scalars(value) -> list[str]:
    """Parameters that take a bare number without its name, beside other parameters."""
    try:
        parameters = [p for p in inspect.signature(value).parameters.values() if p.name != "self"]
    except ValueError:  # a class without a signature of its own
        return []
    loose = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in loose and is_scalar(p.annotation)]
    return names if len(parameters) > 1 else []


def in_source_order(name: str) -> tuple[int, str]:
    """Ruff's order of ``__all__``: CONSTANTS, Classes, functions, each alphabetical."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_lists_its_public_names(package):
    home = importlib.import_module(package)
    ours = {
        name
        for name, value in vars(home).items()
        if not name.startswith("_")
        and name != "face"  # by which a package loads its names
        and not inspect.ismodule(value)
        and str(getattr(value, "__module__", "")).startswith("ostraka")
    }
    assert ours <= {*home.__all__, *ostraka.__all__}


def test_few_names_are_exported_and_each_in_one_place():
    """What ``ostraka`` exports can be imported from its package, too, which does not list it again."""
    names = exported()
    assert len(names) <= MOST_NAMES
    twice = [f"{module}.{name}" for module, name in names if module != "ostraka" and name in ostraka.__all__]
    assert twice == []


def test_the_reference_names_every_export():
    listed = dict(re.findall(r"automodule:: (\S+)\n   :members: (.+)", REFERENCE))
    missing = [
        f"{module}.{name}"
        for module, name in exported()
        if name not in listed.get(module, name).split(", ") and module != "ostraka"
    ]
    assert missing == []


@every_module
def test_public_names_exist_once_and_in_order(module):
    home = importlib.import_module(module)
    names = list(getattr(home, "__all__", ()))
    assert names == sorted(set(names), key=in_source_order)
    assert [name for name in names if not hasattr(home, name)] == []


def test_the_front_door_offers_what_the_design_promises():
    promised = (
        "GNMax LNMax Threshold Private Adjacency Curve Budget Ledger BudgetExceeded release confident "
        "interactive TeacherEnsemble PATEClassifier count_votes ABSTAIN"
    )
    assert set(promised.split()) <= set(ostraka.__all__) <= set(dir(ostraka))
    assert ostraka.ABSTAIN == -1


def test_an_unknown_name_is_refused_by_name():
    with pytest.raises(AttributeError, match="no attribute 'GMax'"):
        _ = ostraka.GMax


def undocumented(value) -> list[str]:
    """What a docstring lacks: text, parameters, the section about an array that is returned."""
    text = inspect.getdoc(value) or ""
    if not text:
        return ["text"]
    if inspect.isclass(value) and (issubclass(value, Exception) or getattr(value, "_is_protocol", False)):
        return []
    signature = inspect.signature(value)
    lacking = []
    if len(signature.parameters) > 1 and "arameters as" not in text:
        lacking += [p for p in signature.parameters if not re.search(rf"\b{p}\b", text)]
    if "ndarray" in str(signature.return_annotation) and "arameters as" not in text:
        lacking += [] if re.search(r"^Returns\n-+$", text, flags=re.MULTILINE) else ["Returns"]
    return lacking


def test_public_callables_have_numpy_docstrings():
    assert {name: lacks for name, value in CALLABLES.items() if (lacks := undocumented(value))} == {}


def test_public_callables_have_an_example_that_runs():
    without = {name for name, value in CALLABLES.items() if ">>> " not in (inspect.getdoc(value) or "")}
    assert without - NEEDS_NO_EXAMPLE.keys() == set()


def test_public_methods_say_what_they_do():
    silent = [
        f"{name}.{method}"
        for name, value in CALLABLES.items()
        for method, function in public_methods(value).items()
        if not inspect.getdoc(getattr(value, method)) and function.__qualname__.count(".") == 1
    ]
    assert silent == []


def test_numbers_are_given_by_name():
    loose = {name: positional_scalars(value) for name, value in CALLABLES.items()}
    for name, value in CALLABLES.items():
        for method, function in public_methods(value).items():
            loose[f"{name}.{method}"] = positional_scalars(function)
    assert {who: what for who, what in loose.items() if what and who not in MAY_BE_POSITIONAL} == {}


def test_every_exception_to_the_rule_is_still_needed():
    unused = []
    for who in MAY_BE_POSITIONAL:
        owner, _, method = who.rpartition(".")
        value = CALLABLES.get(who) or public_methods(CALLABLES[owner])[method]
        unused += [] if positional_scalars(value) else [who]
    assert unused == []


def test_public_parameters_are_annotated():
    bare = [
        f"{who}({p.name})"
        for name, value in CALLABLES.items()
        for who, function in {name: value, **public_methods(value)}.items()
        if inspect.isfunction(function)
        for p in inspect.signature(function).parameters.values()
        if p.annotation is p.empty and p.name not in {"self", "cls"}
    ]
    assert bare == []


def all_dataclasses():
    """Those of the whole package, public or not."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(("ostraka", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for kind in vars(importlib.import_module(module)).values():
            if isinstance(kind, type) and kind.__module__ == module and "__dataclass_params__" in vars(kind):
                yield kind


def test_dataclasses_are_frozen_values_and_estimators_are_only_themselves():
    """Who holds a value can rely on it, and two equal estimators are still two."""
    loose, equal = set(), set()
    for kind in all_dataclasses():
        if hasattr(kind, "get_params"):  # scikit-learn sets the parameters of estimators
            equal |= set() if kind.__eq__ is object.__eq__ else {kind.__name__}
        elif not (kind.__dataclass_params__.frozen and ("__slots__" in vars(kind) or kind in WITHOUT_SLOTS)):
            loose.add(kind.__name__)
    assert (loose, equal) == (HOLD_STATE, set())


def test_no_dataclass_prints_a_secret():
    printed = {
        f"{kind.__name__}.{field.name}"
        for kind in all_dataclasses()
        if "__repr__" in vars(kind) and kind.__dataclass_params__.repr
        for field in dataclasses.fields(kind)
        if field.repr and "secret" in field.name and "bytes" in str(field.type)
    }
    assert printed == set()


def sources() -> list[tuple[str, str]]:
    """Every ``Source:`` statement, up to the end of its paragraph, with the file it stands in."""
    paragraph = re.compile(r"Source:(?:[^\n]|\n(?!\s*\n|\s*\"\"\"))*")
    return [
        (path.relative_to(ROOT).as_posix(), match[0])
        for path in sorted(ROOT.rglob("*.py"))
        for match in paragraph.finditer(path.read_text())
    ]


def test_every_source_can_be_looked_up():
    pattern = re.compile(r"arXiv:(\d{4}\.\d{4,5}|[a-z-]+/\d{7})|doi:10\.\d{4,}/\S+")
    assert len(sources()) > 0
    assert [where for where, text in sources() if not pattern.search(text)] == []


@pytest.mark.parametrize(
    ("annotation", "answer"),
    [
        ("float", True),
        ("int | None", True),
        (int, True),
        ("np.ndarray", False),
        ("str", False),
        ("Point", False),
    ],
)
def test_the_rule_about_numbers_recognises_a_number(annotation, answer):
    assert is_scalar(annotation) is answer
