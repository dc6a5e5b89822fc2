"""One conversation with a service: statuses, headers, messages, pages, and what was charged."""

import dataclasses
import html
import json
import re
import textwrap
import time
from pathlib import Path
from unittest import mock

from ostraka import GNMax
from ostraka.serve.keys import Keyring
from ostraka.serve.requests import Buckets
from tests.golden import blocks
from tests.serve.conftest import PATIENCE, PEPPER, client, deploy, serving

RECORD = Path(blocks.__file__).with_name("conversation.txt")
SURE, OTHER = [90.0, 0.0, 0.0], [0.0, 90.0, 1]  # rows far inside a class
HEADERS = (
    "allow", "content-type", "ostraka-answers-left", "ostraka-left", "ostraka-seconds-to-empty", "refresh",
    "retry-after", "www-authenticate",
)  # fmt: skip
LABEL, KEYED = "POST /v1/label", {"content-type": "application/json"}
QUESTIONS = [  # who asks, what, with which key of its own, and which body
    ("alice", LABEL, "one", {"row": SURE}),
    ("alice", LABEL, "one", {"row": SURE}),
    ("alice", LABEL, "one", {"row": OTHER}),
    ("alice", LABEL, "k" * 100, {"row": SURE}),
    ("alice", LABEL, "k" * 101, {"row": SURE}),
    ("bob", LABEL, "two", {"rows": [SURE, OTHER]}),
    ("bob", LABEL, "two", {"rows": [OTHER, SURE]}),
    ("bob", LABEL, "three", {"rows": [OTHER] * 3}),
    ("bob", LABEL, "four", {"rows": [OTHER] * 4}),
    ("bob", LABEL, "", {"row": SURE}),
    ("bob", LABEL, "k", {}),
    ("bob", LABEL, "k", {"rows": []}),
    ("bob", LABEL, "k", {"rows": 3}),
    ("bob", LABEL, "k", {"rows": [SURE, 3]}),
    ("bob", LABEL, "k", {"row": [1, 2]}),
    ("bob", LABEL, "k", {"row": [1, 2, 3, 4]}),
    ("bob", LABEL, "k", {"rows": [SURE, ["canary", 1, 2]]}),
    ("bob", LABEL, "k", {"row": [1, 2, 1e9]}),
    ("bob", LABEL, "k", b'{"row": [1, 2, NaN]}'),
    ("bob", LABEL, "k", b'{"row": [1, 2, 3], "row": [1, 2, 3]}'),
    ("bob", LABEL, "k", b"canary"),
    ("bob", LABEL, "k", b"[" * 30_000),
    ("olga", LABEL, "k", {"row": SURE}),
    ("", LABEL, "k", {"row": SURE}),
    ("poor", LABEL, "k", {"row": SURE}),
    ("new", LABEL, "k", {"row": SURE}),
    ("alice", "GET /v1/label", "", None),
    ("alice", "GET /v1/ledger/receipt/14", "", None),
    ("bob", "GET /v1/ledger/receipt/14", "", None),
    ("olga", "GET /v1/ledger/receipt/14", "", None),
    ("olga", "GET /v1/ledger/receipt/014", "", None),
    ("olga", "GET /v1/ledger/receipt/1", "", None),
    ("olga", "GET /v1/ledger/receipt/0", "", None),
    ("olga", "GET /v1/ledger/receipt/", "", None),
    ("olga", "POST /v1/grants", "", {"client": "alice", "epsilon": 20}),
    ("olga", "POST /v1/grants", "", {"client": "alice"}),
    ("olga", "POST /v1/grants", "", {"client": "alice", "epsilon": 0}),
    ("olga", "POST /v1/grants", "", {"client": "alice", "epsilon": True}),
    ("olga", "POST /v1/grants", "", {"client": 3, "epsilon": 1.5}),
    ("olga", "POST /v1/grants", "", {"client": "olga", "epsilon": 1.5}),
    ("alice", "POST /v1/grants", "", {"client": "alice", "epsilon": 1.5}),
    ("olga", "POST /v1/grants/PROPOSAL", "", {}),
    ("petra", "POST /v1/grants/PROPOSAL", "", {}),
    ("petra", "POST /v1/grants/PROPOSAL", "", {}),
    ("quinn", "POST /v1/grants/PROPOSAL", "", {}),
    ("petra", "POST /v1/grants/1", "", {}),
    ("alice", "GET /v1/budget", "", None),
    ("new", "GET /v1/budget", "", None),
    ("olga", "GET /v1/budget", "", None),
    ("", "GET /v1/budget", "", None),
    ("", "GET /health", "", None),
    ("", "GET /ready", "", None),
    ("", "GET /nope", "", None),
    ("", "GET /", "", None),
    ("alice", "GET /", "", None),
    ("olga", "GET /?every=60", "", None),
    ("olga", "GET /metrics", "", None),
]  # fmt: skip


def readable(page):
    """What a page says, piece by piece, and how its drawing goes."""
    page = re.sub(r"<style.*?</style>|<head>.*?</head>", "", page, flags=re.DOTALL)
    page = re.sub(r'<path[^>]*? d="([^"]*)"[^>]*>|style="([^"]*)"', r">\1\2<", page)
    pieces = [" ".join(html.unescape(piece).split()) for piece in re.split(r"<[^>]*>|>", page)]
    return textwrap.wrap(" | ".join(filter(None, pieces)), 110)


def said(reply):
    """A reply as lines."""
    lines = [f"{name}: {reply.headers[name]}" for name in HEADERS if name in reply.headers]
    if reply.headers["content-type"].startswith("text/html"):
        lines += readable(reply.text)
    elif reply.headers["content-type"].startswith("application/json") and len(reply.text) > 1000:
        lines += textwrap.wrap(json.dumps(reply.json()), 110)
    else:
        lines += reply.text.splitlines()
    return [f"    {line}" for line in [f"{reply.status_code} {reply.reason_phrase}", *lines]]


def conversation(folder, saved):
    """All questions and replies, and what then stands in the ledger."""
    saved = dataclasses.replace(saved, mechanism=GNMax(sigma=3.0))  # of 40 votes: changes a label in 1e-19
    caps = {"alice": 9.0, "bob": 9.0, "poor": 0.5}
    with (
        mock.patch.object(time, "time", return_value=1_800_000_000.0),
        mock.patch("ostraka.serve.deployment.PATIENCE", PATIENCE),  # what is left is waited for
    ):
        service = deploy(folder, saved, epsilon=12.0, clients=caps, most_rows=4)
        ring = Keyring(folder / "service" / "keys.json", PEPPER)
        service.keys |= {name: ring.add(name, role="owner") for name in ("petra", "quinn")}
        service.keys["new"] = ring.add("new", role="client", epsilon=1.0)  # whom the ledger does not know yet
        service.there.keys.refresh()
        lines, proposal = [], 0
        with serving(service), client(service.url) as http:
            for who, what, key, body in QUESTIONS:
                method, path = what.replace("PROPOSAL", str(proposal)).split()
                headers = {"authorization": f"Bearer {service.keys[who]}"} if who else {}
                headers |= ({"idempotency-key": key} if key else {}) | (KEYED if method == "POST" else {})
                content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
                reply = http.request(method, path, headers=headers, content=content)
                proposal = reply.json()["proposal"] if reply.status_code == 202 else proposal
                asked = "" if body is None else content[:60].decode()
                lines += [
                    " ".join(filter(None, (who or "anyone", method, path, key[:9], asked))),
                    *said(reply),
                ]
            service.there.buckets = Buckets(rate=0.01, burst=2, clock=lambda: 0.0)
            for n_rows in (1, 1, 1, 4):
                authorization = {
                    "authorization": f"Bearer {service.keys['alice']}",
                    "idempotency-key": f"{n_rows}",
                }
                reply = http.post("/v1/label", headers=authorization | KEYED, json={"rows": [SURE] * n_rows})
                lines += [f"alice at 0.01 rows a second, {n_rows} rows", *said(reply)]
            lines.append("the ledger")
            for entry in service.there.ledger.entries():
                words = (entry.seq, entry.kind, entry.account, entry.key, entry.mechanism, entry.answer)
                lines.append("    " + " ".join(map(str, words)))
    return "\n".join(lines)


def test_a_conversation_is_word_for_word_what_it_was(tmp_path, saved):
    words = conversation(tmp_path, saved)
    words = re.sub(r'(answer_seconds_(?:sum|bucket\{le="[0-9.]+"\})) [0-9.]+', r"\1 N", words)
    words = re.sub(r"(answers_per_second|\"age\":) [0-9.e-]+", r"\1 N", words)
    blocks.hold(RECORD, "a service of teachers", blocks.normal_form(words, digits=4))
