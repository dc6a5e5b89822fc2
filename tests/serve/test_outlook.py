"""What the page of ``ostraka ui`` expects of each way: from public rows, and from no private label."""

import numpy as np
import pytest

from ostraka.data.task import Columns
from ostraka.learn.ways.choose import Estimate, Forecast, way_of_rows
from ostraka.serve import ui as outlook
from ostraka.serve.ui import Outlook
from tests.serve.workbench import visits


@pytest.fixture
def one_price(monkeypatch):
    monkeypatch.setattr(outlook, "EPSILONS", (1.0,))
    monkeypatch.setattr(Outlook, "WAYS", ("counts",))


@pytest.fixture
def tables(tmp_path):
    private, public = tmp_path / "private.csv", tmp_path / "public.csv"
    private.write_bytes(visits(1500))
    public.write_bytes(visits(600, seed=1))
    return private, public


def expected(*tables, **settings):
    usual = {"columns": Columns(label="ill", rows_are_people=True), "holdout": None}
    one = Outlook(*tables, **usual | settings)
    one.run()
    return one.to_dict()


def test_public_labels_stand_for_private_ones(one_price, tables):
    """The best rule for these visits is right about nine times in ten, the commonest class half of them."""
    forecast = expected(*tables)
    assert forecast["done"] is True
    assert forecast["basis"] == "public rows with their true labels stand for the private rows"
    [[epsilon, (low, best, high)]] = forecast["ways"]["counts"]
    assert epsilon == 1.0
    assert 0.75 < low <= best <= high < 0.97


def test_no_private_label_and_no_private_row_counts(one_price, tables):
    """Other private rows, as many and of the same classes: not a digit of the outlook changes."""
    private, public = tables
    first = expected(private, public)
    rng = np.random.default_rng(0)
    head, *rows = private.read_text().splitlines()
    changed = [f"{rng.integers(20, 90)},{rng.integers(1, 20)},heart,{row.rpartition(',')[2]}" for row in rows]
    order = rng.permutation(len(changed))
    private.write_text("\n".join([head, *(changed[place] for place in order)]) + "\n")
    assert expected(private, public) == first


def test_labels_of_rows_that_were_held_out_are_not_looked_at(one_price, tables):
    """Where public rows come from the private table, labels are made up: others there change nothing."""
    private, _ = tables
    first = expected(private, None, holdout=0.4)
    assert "made-up labels" in first["basis"]
    head, *rows = private.read_text().splitlines()
    labels = np.random.default_rng(0).permutation([row.rpartition(",")[2] for row in rows])
    rows = [f"{row.rpartition(',')[0]},{label}" for row, label in zip(rows, labels, strict=True)]
    private.write_text("\n".join([head, *rows]) + "\n")
    assert expected(private, None, holdout=0.4) == first


def test_rounds_are_not_for_people_and_what_has_no_hope_says_so(one_price, tables, monkeypatch):
    private, public = tables
    head, *rows = private.read_text().splitlines()
    lines = [f"who,{head}", *(f"p{n // 2:04},{row}" for n, row in enumerate(rows))]
    private.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(outlook, "EPSILONS", (0.001, 1.0))
    monkeypatch.setattr(Outlook, "WAYS", ("counts", "rounds"))
    forecast = expected(private, public, columns=Columns(label="ill", person="who"))
    assert set(forecast["ways"]) == {"counts"}
    assert forecast["ways"]["counts"][0] == [0.001, None]


def test_it_ends_where_it_is_stopped(one_price, tables):
    one = Outlook(*tables, columns=Columns(label="ill", rows_are_people=True), holdout=None)
    one.stop()
    one.run()
    assert one.to_dict()["done"] is False
    assert one.to_dict()["ways"] == {}


def test_the_default_of_learn_is_recommended_unless_another_way_is_clearly_better(tables, monkeypatch):
    monkeypatch.setattr(outlook, "EPSILONS", (1.0,))
    one = Outlook(*tables, columns=Columns(label="ill", rows_are_people=True), holdout=None)
    assert one.to_dict()["recommended"] == [way_of_rows(np.zeros((4, 3)))]
    for accuracy, expected_way in ((0.84, "filter"), (0.86, "counts")):
        for way, best in (("filter", 0.84), ("counts", accuracy)):
            one._forecasts[way] = {1.0: Forecast(plan=None, accuracy=Estimate(0.8, best, 0.9))}
        assert one.to_dict()["recommended"] == [expected_way]
