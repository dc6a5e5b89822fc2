"""What Python refuses the page refuses, and a message of the page that got lost is counted once."""

import pytest

from ostraka.collect import CountMin, Grid, Histogram, Histograms, Pairs, Sum, Tree, Vector, Visits
from ostraka.collect import plan as _plan
from ostraka.secure.wire import PartyServer
from tests.collect.test_page_among_clients import node

REFUSED = [
    (Histogram(0, 1, cells=3), ["x", None, [], {}, True]),
    (Tree(0, 9), ["3", [3], None, False]),
    (
        Grid(x=(0, 1), y=(0, 1), shape=(2, 2)),
        [5, {}, "ab", None, [1], [[1, 2, 3]], [[0.5, "x"]], [[0, 0], 3]],
    ),
    (Visits(x=(0, 1), y=(0, 1), shape=(2, 2)), [5, None, [1], [[0.5, "x"]]]),
    (Histograms(((0, 1, 3), (0, 1, 3))), [0.5, [0.5], ["x", 1], [0.5, None], [0.1, 0.2, 0.3]]),
    (Sum(0, 1), ["x", None, [], True]),
    (Vector(cells=2, clip=1.0, grid=16), [0.5, [0.5], [0.5, None], None, [0.1, 0.2, 0.3]]),
    (Pairs(items=4, at_most=2), [4, [-1], [4], [1.5], ["1"], None]),
    (CountMin(width=5, depth=2, key="5a" * 32), [[2**31 - 1], [-1], 3, [None]]),
]


def test_a_value_that_python_refuses_is_refused_by_the_page(keeper_round):
    reports = []
    for encoding, values in REFUSED:
        task = keeper_round(encoding).task.to_json()
        for value in values:
            with pytest.raises(ValueError, match=r"must|number"):
                encoding.encode(value)
            reports.append({"task": task, "value": value})
    script = """const main = (all) => Promise.all(all.map(({ task, value }) =>
      collect.report(task, value).then(() => "taken", () => "refused")));\n"""
    answers = zip(reports, node(script, reports), strict=True)
    assert [report for report, answer in answers if answer != "refused"] == []


LOST = """
const main = async ({ url, value }) => {
  const fetched = globalThis.fetch;
  let lost = 0;
  globalThis.fetch = async (address, options) => {
    const answer = await fetched(address, options);
    if (options?.method === "POST" && lost++ < 2) throw new TypeError("the acknowledgement got lost");
    return answer;
  };
  return collect.send(url, value);
};
"""


def test_a_message_whose_acknowledgement_got_lost_is_repeated_and_counted_once(keeper_round):
    collection = keeper_round()
    with PartyServer(collection.tally, pages=collection.tally.pages) as server:
        assert node(LOST, {"url": server.url, "value": 3}) == collection.task.sha256
    assert collection.tally.n_clients == 1


@pytest.mark.parametrize(
    "high", [16, *(pytest.param(high, marks=pytest.mark.slow) for high in (100, 240, 1000, 1024, 70_000))]
)
def test_the_chosen_fanout_has_nearly_the_least_noise_of_ranks(high, monkeypatch):
    prices, errors, calibrated = {}, {}, _plan.sigma_for

    def sigma_for(tree, **goal):  # trees of equally many levels have one price
        if len(tree.sizes) not in prices:
            prices[len(tree.sizes)] = calibrated(tree, **goal)
        return prices[len(tree.sizes)]

    monkeypatch.setattr(_plan, "sigma_for", sigma_for)
    chosen = _plan.parsed(f"tree:0:{high}")
    for fanout in (chosen.fanout, 2, 4, 7, 10, 16, 32):
        planned = _plan.plan(Tree(0, high, fanout=fanout), n_clients=1000, epsilon=1.0, delta=1e-6)
        errors[fanout] = planned["error of a rank"]
    assert errors[chosen.fanout] <= 1.08 * min(errors.values())
