"""The report on a phone, a screen and paper, in a browser; axe-core looks at it if OSTRAKA_AXE names it."""

import base64
import os
import re
from pathlib import Path

import numpy as np
import pytest

from ostraka.core.result import Result
from ostraka.plots import figures
from ostraka.report import render_html
from ostraka.synth import Schema
from ostraka.synth import cli as _synth_report
from ostraka.synth.compare import compared
from tests.report.test_report import example

LEAST_TEXT = 9.0  # pixels
_SIZES = """
[...document.querySelectorAll('svg text')].filter(text => text.textContent.trim()).map(text => {
  const matrix = text.getScreenCTM();
  return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.a, matrix.b);
})
"""


def learned() -> Result:
    """A record with everything that a page can show: ten classes, bounds, series, an owner's part."""
    bound = {"answers": [1, 10, 100], "epsilon": [0.2, 0.7, 2.4], "says": "holds whatever the votes"}
    bounds = {name: bound | {"both_directions": True} for name in ("classic", "tight", "exact")}
    repeats = {"repeats": [1, 10], "share_wrong": [0.3, 0.1], "share_wrong_least": [0.2, 0.1]}
    record, epsilon = example(), [0.2, 0.4, 0.6]
    return example(
        settings={
            **record.settings,
            "data": "visits.csv",
            "epsilon": 4.0,
            "manifest": "0123456789abcdef" * 4,
        },
        upper={**record.upper, "bounds": bounds},
        utility={**record.utility, "recall": {f"class {n}": 0.9 for n in range(10)}, "balanced": 0.9},
        series={"epsilon": epsilon, "confusion": (1000 * np.eye(10, dtype=int)).tolist()}
        | {"student": {"epsilon": epsilon, "accuracy": [0.7, 0.8, 0.9]}},
        owner={**record.owner, "bounds": bounds, "repeats": repeats}
        | {"consensus": [0.5, 0.7, 0.9], "cost": [0.01, 0.02], "cost_order": 9.0},
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The owner's page and the public one, as files."""
    pytest.importorskip("matplotlib")
    folder, result = tmp_path_factory.mktemp("pages"), learned()
    pages_by_name = {}
    for name, record in (("owner", result), ("public", result.public())):
        path = folder / f"{name}.html"
        path.write_text(
            render_html(record, figures=figures(record), controller="St. Mary's", purpose="A test")
        )
        pages_by_name[name] = path.as_uri()
    return pages_by_name


@pytest.mark.parametrize("name", ["owner", "public"])
def test_the_report_fits_the_screen_has_contrast_and_is_accessible(browser, pages, name):
    for width, dark in ((320, False), (390, True), (390, False), (1280, False)):
        browser.open(pages[name], width=width, dark=dark)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        unreachable = (
            "[...document.querySelectorAll('.scroll')].filter(e => e.tabIndex !== 0 || !e.ariaLabel)"
        )
        assert browser.ask(f"{unreachable}.length") == 0
        contrasts = browser.contrasts()
        assert len(contrasts) > 50
        assert [contrast for contrast in contrasts if contrast[0] < 4.5] == [], (width, dark)
        if width == 390:  # the text of drawings can be read on a phone
            sizes = browser.ask(_SIZES)
            assert len(sizes) > 30
            assert min(sizes) >= LEAST_TEXT
        if axe := os.environ.get("OSTRAKA_AXE"):
            browser.ask(Path(axe).read_text(encoding="utf-8"))
            violations = "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
            assert browser.ask(violations) == []


@pytest.mark.parametrize("width", [320, 1280])
def test_the_page_of_a_synthetic_table_fits_the_screen_and_has_contrast(browser, tmp_path, width):
    columns = {name: {"categories": [f"{name} {k}" for k in range(12)]} for name in ("a_long_name" * 6, "b")}
    schema = Schema.from_dict(columns)
    codes = np.random.default_rng(0).integers(0, 12, (200, 2))
    comparison = compared(schema, codes, codes, target="b")
    record = Result(
        kind="synth",
        settings={"unit": "row", "n_rows": 200, "n_columns": 2, "target": "b"},
        upper={"epsilon": 1.0, "delta": 1e-5, "not_protected": ["the schema, which is public"]},
    )
    path = tmp_path / "synth.html"
    path.write_text(_synth_report.page(record, comparison, name="visits.csv"))
    for dark in (False, True):
        browser.open(path.as_uri(), width=width, dark=dark)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert [pair for pair in browser.contrasts() if pair[0] < 4.5] == []


def test_the_report_prints_on_two_pages_and_the_owners_part_on_a_third(browser, pages):
    printed = {}
    for name, url in pages.items():
        browser.open(url)
        pdf = base64.b64decode(browser.do("Page.printToPDF", preferCSSPageSize=True)["data"])
        printed[name] = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert printed == {"public": 2, "owner": 3}
