"""A question to one linear model of three computing parties, in MPyC: nobody sees question, model or scores.

::

    python -m venv /tmp/mpyc && /tmp/mpyc/bin/pip install mpyc==0.11 numpy
    /tmp/mpyc/bin/python bench/peers/mpyc_question.py -M3

Party 0 brings the 64 numbers of a question, party 1 a model of 64 x 10 numbers; the index of the largest
score is opened. That is the question "linear, 64 features, 10 classes" of ``python -m bench parties``. MPyC
shares among three parties of which no two collude; ostraka computes between two and takes a dealer. Both run
on one machine here.
"""

import json
import random
import resource
import time
from importlib.metadata import version

from mpyc.runtime import mpc

FEATURES, CLASSES, QUESTIONS = 64, 10, 5


async def main() -> None:
    """Print milliseconds by the clock and of this party's processor, of one question."""
    number = mpc.SecFxp(48, 16)
    draw = random.Random(0)
    question = [draw.randint(0, 16) for _ in range(FEATURES)]
    model = [[round(draw.gauss(0, 1), 3) for _ in range(CLASSES)] for _ in range(FEATURES)]
    await mpc.start()
    weights = [mpc.input([number(value) for value in row], senders=1) for row in model]
    start, clock = time.perf_counter(), time.process_time()
    for _ in range(QUESTIONS):
        shares = mpc.input([number(value) for value in question], senders=0)
        (scores,) = mpc.matrix_prod([shares], weights)
        place, _ = mpc.argmax(scores)
        label = int(await mpc.output(place))
    wall, processor = time.perf_counter() - start, time.process_time() - clock
    await mpc.shutdown()
    exact = [sum(x * row[k] for x, row in zip(question, model, strict=True)) for k in range(CLASSES)]
    assert label == exact.index(max(exact))
    if mpc.pid == 0:
        figures = {
            "peer": f"MPyC {version('mpyc')}",
            "parties": len(mpc.parties),
            "milliseconds a question": round(1e3 * wall / QUESTIONS, 1),
            "of one party's processor": round(1e3 * processor / QUESTIONS, 1),
            "MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
        print(json.dumps(figures))


mpc.run(main())
