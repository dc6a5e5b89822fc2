"""A small local language model for one kind of prompt, and an OpenAI-compatible server in front of it.

It is not a large model and does not pretend to be one: a classifier that learned its kinds of text
from public rows and reads prompts of :class:`ostraka.voters.Template`. What it does not know is
which word of the prompt stands for which kind. That it infers from the demonstrations, exactly, by
Bayes' rule over all ways to match words with kinds. So a wrong or an odd demonstration misleads it.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from functools import cached_property, lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WORDS = re.compile(r"one of: (.+?)\. Do not")
_SHOT = re.compile(r"Text: (.*?)\nAnswer:(.*?)(?:\n\n|\Z)", re.DOTALL)
_SURE = 0.95  # that a word which names a kind means that kind


class Matcher:
    """Knows kinds of text from public rows, and guesses what a prompt's words mean by its demonstrations."""

    def __init__(self, texts: Sequence[str], kinds: Sequence[str]) -> None:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[?!]")
        self._model = make_pipeline(words, LogisticRegression(C=30.0, max_iter=500)).fit(texts, kinds)
        self.kinds = tuple(self._model.classes_)
        self._look = lru_cache(maxsize=None)(self._looked)

    def answer(self, prompt: str) -> str:
        """Return the likeliest word, the first of equals."""
        listed = _WORDS.search(prompt)
        assert listed, "a prompt of voters.Template lists its words"
        words = listed[1].split(", ")
        *shots, (query, _) = _SHOT.findall(prompt)
        matches = list(itertools.permutations(range(len(self.kinds)), len(words)))  # kind of each word
        weight = np.array([self._prior(words, match) for match in matches])
        for text, word in shots:
            place = words.index(word.strip())
            weight *= [self._look(text)[match[place]] for match in matches]
        score = weight @ np.array([self._look(query)[list(match)] for match in matches])
        return words[int(np.argmax(score > score.max() * (1 - 1e-9)))]

    def _prior(self, words: list[str], match: tuple[int, ...]) -> float:
        mask = [kind in words for kind in self.kinds]
        if not all(mask):
            return 1.0
        right = all(self.kinds[kind] == word for word, kind in zip(words, match, strict=True))
        return _SURE if right else 1 - _SURE

    def _looked(self, text: str) -> np.ndarray:
        return self._model.predict_proba([text])[0]


class LocalEndpoint:
    """``/v1/chat/completions`` and ``/v1/completions`` on this machine, answered by a function.

    ``seen`` keeps every request's body, in order of arrival. ``intercept(handler, body)`` may answer
    a request in its own way, or drop it, and says so by returning True.
    """

    def __init__(
        self,
        answer: Callable[[str], str],
        *,
        intercept: Callable[[Any, dict[str, Any]], bool] = lambda _handler, _body: False,
    ) -> None:
        self.seen: list[dict[str, Any]] = []
        self.intercept = intercept
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet an answer
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append(body)
                if outer.intercept(self, body):
                    return
                if self.path == "/v1/chat/completions":
                    text = answer(body["messages"][0]["content"])
                    self.reply(200, {"choices": [{"message": {"role": "assistant", "content": text}}]})
                elif self.path == "/v1/completions":
                    self.reply(200, {"choices": [{"text": answer(body["prompt"])}]})
                else:
                    self.reply(404, {"error": {"code": "not_found"}})

            def reply(self, status: int, record: object, **headers: str) -> None:
                content = record if isinstance(record, bytes) else json.dumps(record).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                pass  # a client that went away

        self._server = Server(("127.0.0.1", 0), Handler)

    @cached_property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
