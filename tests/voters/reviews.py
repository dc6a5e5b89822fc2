"""Small reviews for tests of prompts, a function that plays an endpoint, and ensembles of both."""

import traceback

import numpy as np

from ostraka.voters import Endpoint, PromptEnsemble, partition

CANARY = "canary-51c9"
GOOD = ["joy", "delight", "wonderful", "moving", "warm", "funny", "clever", "bright", "tender", "superb"]
BAD = ["dull", "tedious", "awful", "clumsy", "cold", "bleak", "boring", "stale", "lifeless", "dreadful"]
FRAMES = ("a {} film", "this was {}", "what a {} evening at the cinema", "{} from start to end")
PUBLIC = [frame.format(word) for frame in FRAMES[:2] for word in GOOD + BAD]
TEXTS = [f"{frame.format(word)} {CANARY}" for frame in FRAMES[2:] for word in GOOD + BAD]
LABELS = np.array([0] * 10 + [1] * 10 + [0] * 10 + [1] * 10)
QUERIES = ["such joy", "so dull", "a superb and tender film", "bleak, stale", "warm", "awful"]
MANIFEST = partition(len(TEXTS), n_teachers=8, key=b"a key of thirty-two bytes, or so")
WORDS = ("A", "B")  # which the model cannot know


class Function:
    """A function in place of an endpoint, which remembers what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked, self.threads = answer, [], set()

    def __call__(self, prompts):
        self.asked += prompts
        return [self.answer(prompt) for prompt in prompts]


def ensemble(endpoint, **options):
    options = {"model": "small", "classes": [0, 1], "words": WORDS, "n_teachers": 8, **options}
    return PromptEnsemble(endpoint, **options)


def fitted(endpoint, texts=TEXTS, labels=LABELS, **options):
    return ensemble(endpoint, **options).fit(texts, labels, manifest=MANIFEST)


def quick(url, **options):
    return Endpoint(url, **{"pause": 0.01, "retries": 1, "concurrency": 4, **options})


def everything(error):
    """All that anybody may print of an exception."""
    texts_seen, text = set(), ""
    waiting = [error]
    while waiting:
        state = waiting.pop()
        if state is not None and id(state) not in texts_seen:
            texts_seen.add(id(state))
            text += repr(state) + str(state) + "".join(traceback.format_exception(state))
            waiting += [state.__cause__, state.__context__]
    return text
