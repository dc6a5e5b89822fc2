"""The browser's client: byte for byte that of Python, in Node and in a real browser."""

import socket

import numpy as np

from ostraka.collect import Client, CountMin, CountSketch, Grid, Histogram, Pairs, Tree
from ostraka.secure.keys import exchange_key
from ostraka.secure.wire import PartyServer, Remote
from tests.collect.test_page_among_clients import node

KEY = "5a" * 32
VALUES = [
    (Histogram(-1.5, 2.25, cells=7), [-9, -1.5, 0, 0.1, 2.2499999, 2.25, 1e300]),
    (Histogram(0.1, 0.7, cells=6), [0.1, 0.2, 0.3, 0.30000000000000004, 0.6, 0.7]),
    (Tree(-3, 100, fanout=4), [-7, -3, 0, 17.9, 99, 100]),
    (Grid(x=(0, 1), y=(0, 2), shape=(3, 4), at_most=2), [[0.5, 0.5], [[0.1, 1.9], [0.1, 1.8], [0.9, 0]], []]),
    (Pairs(items=9, at_most=3), [[8, 0, 8, 3, 5], [], [4]]),
    (CountMin(width=11, depth=4, key=KEY, at_most=2), [[2**31 - 2, 0], [77, 77, 5, 6]]),
    (CountSketch(width=11, depth=4, key=KEY, at_most=2), [[2**31 - 2, 0], [77, 77, 5, 6]]),
]
SECRET = bytes(range(32))
FILLED = """
new Promise(done => {
  const look = () => {
    const said = document.getElementById("%s")?.textContent;
    said && said !== "…" ? done(said) : setTimeout(look, 20);
  };
  look();
})
"""


def test_reports_of_javascript_are_those_of_python_byte_for_byte(keeper_round):
    cases, expected, key = [], [], exchange_key(SECRET)
    for encoding, values in VALUES:
        task = keeper_round(encoding, n_keepers=3).task
        for value in values:
            client = Client(task)
            client._secret, client.key = SECRET, key
            cases.append({"task": task.to_json(), "value": value})
            expected.append(client.report(value).hex())
    script = """const main = async ({ secret, key, cases }) => {
      const own = { secret: await collect.secretOf(collect.fromHex(secret)), key: collect.fromHex(key) };
      const reports = cases.map(({ task, value }) => collect.report(task, value, { own }));
      return (await Promise.all(reports)).map(collect.toHex);
    };\n"""
    assert node(script, {"secret": SECRET.hex(), "key": key, "cases": cases}) == expected


def test_the_page_of_the_tally_sends_a_report_from_a_browser(keeper_round, browser):
    collection = keeper_round(Tree(0, 20, fanout=5))
    with PartyServer(collection.tally, pages=collection.tally.pages) as server:
        for value in (3, 19):
            browser.open(server.url)
            assert browser.ask(FILLED % "sha") == collection.task.sha256
            browser.ask(f"document.getElementById('value').value = '{value}'")
            browser.ask("document.getElementById('form').requestSubmit()")
            text = browser.ask(FILLED % "said")
            assert text == "Received. It will be counted once."
            assert {url.partition(server.url)[2] for url in browser.requests()} <= {
                "/", "/collect.css", "/collect.js", "/question.js", "/similar.js", "/task.json", "/v1/report",
                "/v1/notice",
                "/favicon.ico"
            }  # fmt: skip
    collection.send(7)
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain([3, 19, 7]))


def test_a_report_that_breaks_off_counts_nothing_and_can_be_sent_again(keeper_round):
    collection = keeper_round()
    messages = [Client(collection.task).report(value) for value in (3, 4, 5)]
    with PartyServer(collection.tally, pages=collection.tally.pages) as server:
        host, port = server.url.removeprefix("http://").split(":")
        head = f"POST /v1/report HTTP/1.1\r\nHost: x\r\nContent-Length: {len(messages[0])}\r\n\r\n".encode()
        for part in (0, 1, len(messages[0]) - 1):
            with socket.create_connection((host, int(port)), timeout=60) as stream:
                stream.sendall(head + messages[0][:part])
                stream.shutdown(socket.SHUT_WR)
                assert b" 400 " in stream.recv(4096)
        assert collection.tally.n_clients == 0
        for message in messages:
            with socket.create_connection((host, int(port)), timeout=60) as stream:
                stream.sendall(head + message)  # nobody waits for the acknowledgement
                stream.shutdown(socket.SHUT_WR)
                stream.recv(1)
            Remote("the tally", server.url, timeout=60.0).ask("report", message, 1024)
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain([3, 4, 5]))


def test_pages_are_public_and_nothing_else_is_found(keeper_round):
    collection = keeper_round()
    pages = collection.tally.pages
    scripts = {"/collect.js", "/question.js", "/similar.js"}
    assert set(pages) == scripts | {"/", "/index.html", "/collect.css", "/task.json"}
    assert pages["/task.json"][1].decode() == collection.task.to_json()
    assert b"http" not in pages["/collect.js"][1] + pages["/"][1]
