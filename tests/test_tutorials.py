"""The tutorials: nine, each ends with a picture; the quick ones run here, all of them in ``make docs``."""

import ast
import runpy
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("plot_*.py"))
SLOW = {"plot_images", "plot_service"}  # they compile, or train a hundred teachers


def test_there_are_nine_tutorials():
    assert len(TUTORIALS) == 9


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_has_a_title_and_cells_and_ends_with_a_picture(path):
    text = path.read_text(encoding="utf8")
    title, line, *_ = ast.get_docstring(ast.parse(text)).splitlines()
    assert len(line) >= len(title)
    assert set(line) == {"="}
    assert text.count("# %%") >= 2
    assert text.rstrip().endswith("plt.show()")


@pytest.mark.parametrize(
    "path", [path for path in TUTORIALS if path.stem not in SLOW], ids=lambda path: path.stem
)
@pytest.mark.usefixtures("same_draws")
def test_a_quick_tutorial_runs(path, monkeypatch, capsys):
    plt = pytest.importorskip("matplotlib.pyplot")
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.get_fignums()))
    try:
        runpy.run_path(str(path))
    finally:
        plt.close("all")
    assert len(figures) == 1
    assert figures[0]
    assert "Traceback" not in capsys.readouterr().out
