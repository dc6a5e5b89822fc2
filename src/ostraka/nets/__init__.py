"""Everything that needs torch: the training loop, architectures, and vectorised training of many networks.

*In* come arrays of rows, codes of classes, and settings. *Out* go modules, losses and predictions.

``training`` has the one training loop, its checkpoints and batches, and chooses device and threads;
``generative`` defines all networks, classifiers and generators; ``adversarial`` trains GANs, BEGANs and VAEs
without privacy. Teachers train together: ``vectorised`` tests on made-up rows whether that is possible, and
trains a stack, or plain perceptrons on a CPU by ``compiled``; ``stacks`` holds many networks in shared
tensors, and computes their losses and their votes. ``private`` trains with clipped
and noisy gradients.

The promise: **a training repeats bit for bit from its seed, interrupted or not, and no network of a stack
changes another.** Under ``private``, no row changes another row's gradient either.
"""

from ostraka.core import check as _check

_check.require("torch", extra="torch")  # here once: the modules of this package import torch plainly
