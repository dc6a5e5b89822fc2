"""Plots: drawn from the record alone, readable on any background, told in words too."""

import re
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from ostraka import Budget, GNMax, Ledger, plots
from ostraka.core.result import Result
from ostraka.report.figures import receiver_operating_curves
from ostraka.scores import Scores
from tests.golden import blocks
from tests.golden import drawings as recorded

SVG = "{http://www.w3.org/2000/svg}"


def example(**changes) -> Result:
    rng = np.random.default_rng(0)
    epsilon = 3.65 * np.sqrt(np.arange(1, 201) / 200)
    student = {"epsilon": [1.0, 2.0, 3.65], "accuracy": [0.5, 0.8, 0.893]}
    fields = {
        "kind": "learn",
        "settings": {"epsilon": 3.7},
        "upper": {"epsilon": 3.65, "delta": 1e-4},
        "series": {"epsilon": epsilon, "student": student},
        "owner": {"consensus": rng.beta(5, 2, 200), "cost": rng.gamma(0.5, 0.002, 200)}
        | {"cost_order": 8.0, "price": 0.012},
    }
    return Result(**{**fields, **changes})


RECORDED = blocks.read(recorded.RECORD)


@pytest.mark.parametrize("name", sorted({*RECORDED, *recorded.CASES}))
def test_what_is_drawn_is_what_was_looked_at(name):
    pytest.importorskip("matplotlib")
    blocks.hold(recorded.RECORD, name, recorded.CASES[name]())


@pytest.fixture(scope="module")
def drawings():
    """Its figures, drawn once, and the tree of each."""
    figures = plots.figures(example())
    return figures, [ET.fromstring(figure.svg) for figure in figures]


def test_every_figure_is_drawn_public_ones_first_from_the_record_alone(drawings):
    figures, _ = drawings
    assert [(figure.title, figure.owner_only) for figure in figures] == [
        ("Budget over time", False),
        ("Accuracy against ε", False),
        ("Consensus of the teachers", True),
        ("What each answer cost", True),
    ]
    assert plots.figures(example()) == figures
    assert not any(figure.owner_only for figure in plots.figures(example().public()))
    assert plots.figures(Result(kind="learn")) == ()


def test_the_ink_is_the_pages_and_there_is_no_background(drawings):
    for figure, root in zip(*drawings, strict=True):
        assert root.tag == f"{SVG}svg"
        assert "currentColor" in figure.svg
        for colour in ("#000000", "#ffffff", "#010203", "fill: white"):
            assert colour not in figure.svg


def test_text_stays_text_and_axes_have_units(drawings):
    words = [" ".join(text.text or "" for text in root.iter(f"{SVG}text")) for root in drawings[1]]
    for number, label in enumerate(("budget 3.7", "accuracy, %", "commonest class, %", "nats")):
        assert label in words[number]
    assert "questions answered" in words[0]
    assert "price whatever the votes" in words[3]


def test_one_page_can_hold_all_figures_and_their_references_lead_somewhere(drawings):
    identifiers = []
    for root in drawings[1]:
        ids = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
        links = {
            value.rstrip(")").rpartition("#")[2]
            for node in root.iter()
            for name, value in node.attrib.items()
            if name.endswith("href") or "url(#" in value
        }
        assert links <= set(ids)
        identifiers += ids
    assert len(identifiers) == len(set(identifiers))


def test_more_curves_than_colours_are_drawn_and_the_first_ones_differ():
    scores = Scores.of(members=[0.3, 0.9], others=[0.1, 0.5])
    drawing = receiver_operating_curves({f"attack {k}": scores for k in range(5)})
    words = [text.text for text in ET.fromstring(drawing).iter(f"{SVG}text")]
    assert {f"attack {k}" for k in range(5)} < set(words)
    colours = re.findall(r"stroke: (#[0-9a-f]{6}|currentColor)", drawing)
    assert len(set(colours)) >= 4


def audited(n_findings, *, exact=0.5):
    orders = [{"what": f"order {o}", "upper": 0.1 * o, "exact": exact, "lower": 0.01 * o} for o in (2, 8, 32)]
    line = {"what": "epsilon at delta 1e-05", "upper": "inf", "exact": exact, "lower": 0.25}
    findings = [
        {"name": f"PATE × {n}", "confidence": 0.95, "measures": [*orders, line]} for n in range(n_findings)
    ]
    return Result(kind="audit", owner={"audit": findings})


def test_audits_of_different_kinds_are_not_put_side_by_side():
    record = audited(2).owner["audit"]
    record[0]["measures"].pop()
    record[0]["measures"][-1]["what"] = "something else"
    assert plots.figures(Result(kind="audit", owner={"audit": record})) == ()


def things():
    ledger = Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5))
    ledger.charge(GNMax(sigma=40.0), uses=100, unit="row", simulation=False)
    result = Result(kind="learn", upper={"epsilon": 2.0, "delta": 1e-5}, lower={"epsilon": 1.1})
    return [100 * GNMax(sigma=40.0).curve(), ledger, result, Scores.of(members=[0.3, 0.9], others=[0.1, 0.5])]


def test_a_value_draws_itself_on_new_axes_or_on_those_given():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for value in things():
        first = value.plot()
        assert first.get_xlabel()
        assert value.plot(first) is first
        pyplot.close(first.figure)


def test_drawings_show_the_numbers_that_are_printed():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    curve, ledger, result, _ = things()
    delta, epsilon = curve.plot().lines[0].get_data()
    assert epsilon.tolist() == [curve.epsilon(delta=level) for level in delta]
    assert ledger.plot().lines[0].get_ydata()[-1] == pytest.approx(ledger.epsilon())
    assert [bar.get_width() for bar in result.plot().patches] == [2.0, 1.1]
    simulated = Result(kind="learn", upper={"epsilon": 2.0, "simulation": True})
    axes = simulated.plot()
    assert [bar.get_width() for bar in axes.patches] == [0.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["not audited yet"]
    pyplot.close("all")


def test_without_matplotlib_a_drawing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (lambda: plots.figures(example()), *(value.plot for value in things())):
        with pytest.raises(ImportError, match=r"pip install 'matplotlib>=[\d.]+'"):
            draw()
