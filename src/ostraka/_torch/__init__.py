"""What needs torch: the only training loop, networks, and a classifier made of one.

``loop`` trains, ``devices`` says where and with how many threads, ``networks`` are the small nets
that stand for a name, ``classifier`` is a network as a scikit-learn classifier. Teachers train together:
``planning`` looks whether they can, ``stacks`` are many networks as one, ``lessons`` their rows, ``slopes``
their gradients, ``lockstep`` their training, ``perceptrons`` and ``compiled`` that of the plainest on a CPU,
``answers`` what they vote.
``augment`` is what FixMatch makes of rows, ``adversarial`` the game of a GAN.
"""

from ostraka import _check

_check.require("torch", extra="torch")  # here once, so that every module below may import it plainly
