"""A question to one linear model of two computing parties, in CrypTen: nobody sees question, model or scores.

::

    python -m venv /tmp/crypten && /tmp/crypten/bin/pip install torch==2.13.0 omegaconf onnx
    /tmp/crypten/bin/pip install --no-deps crypten==0.4.1
    /tmp/crypten/bin/python bench/peers/crypten_question.py

Party 0 brings the 64 numbers of a question, party 1 a model of 64 x 10 numbers; the index of the largest
score is opened. That is the question "linear, 64 features, 10 classes" of ``python -m bench parties``. Two
parties compute, and party 0 deals triples, which is CrypTen's default and for trials: a dealer of their own
costs more. Its reader of ONNX, which no question needs, imports what torch has no more: an empty module
stands for that.
"""

import json
import sys
import time
import types
from importlib.metadata import version

import torch

_GONE = types.ModuleType("torch.onnx._internal.registration")
_GONE.registry = None
sys.modules.setdefault(_GONE.__name__, _GONE)

import crypten  # noqa: E402  (after the module above)
from crypten import mpc  # noqa: E402

FEATURES, CLASSES, QUESTIONS = 64, 10, 5


@mpc.run_multiprocess(world_size=2)
def question() -> tuple[float, float, int]:
    """Seconds by the clock and of one party's processor, of one question; and the last label."""
    torch.manual_seed(0)
    numbers = torch.randint(0, 17, (1, FEATURES)).float()
    weights = torch.randn(FEATURES, CLASSES)
    model = crypten.cryptensor(weights, src=1)
    start, clock = time.perf_counter(), time.process_time()
    for _ in range(QUESTIONS):
        scores = crypten.cryptensor(numbers, src=0).matmul(model)
        label = int(scores.argmax(dim=1, one_hot=False).get_plain_text())
    wall, processor = time.perf_counter() - start, time.process_time() - clock
    assert label == int((numbers @ weights).argmax())
    return wall / QUESTIONS, processor / QUESTIONS, label


def main() -> None:
    """Print milliseconds by the clock and of one party's processor, of one question."""
    wall, processor, _ = question()[0]
    figures = {"by the clock": round(1e3 * wall, 1), "processor of one party": round(1e3 * processor, 1)}
    print(json.dumps({"crypten": version("crypten"), "torch": torch.__version__, "milliseconds": figures}))


if __name__ == "__main__":
    main()
