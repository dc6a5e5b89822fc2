"""Everything that needs torch: the training loop, architectures, and vectorised training of many networks.

``loop`` trains, ``checkpoints`` stores the state of a training, ``devices`` chooses device and threads, and
``architectures`` defines the named networks. Teachers train together: ``planning`` tests whether that is
possible, ``stacks`` holds many networks in shared tensors, ``batches`` holds their rows, ``gradients``
computes losses, ``vectorised`` trains a stack, ``perceptrons`` and ``compiled`` train plain perceptrons on a
CPU, and ``predictions`` computes the votes.
``augment`` has FixMatch's augmentations, ``adversarial`` the two losses of a GAN.
"""

from ostraka.core import check as _check

_check.require("torch", extra="torch")  # here once: the modules of this package import torch plainly
