"""
Images, with networks as teachers
=================================

Scikit-learn's digits play private images. Twenty-five small torch networks learn from 48 images each, all
trained together, and vote on public images. A support vector machine learns from the answers.

This tutorial needs ``pip install '.[torch]'``.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

from ostraka import GNMax, PATEClassifier
from ostraka.networks import TorchClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
private, public, new = slice(0, 1200), slice(1200, 1500), slice(1500, None)

# %%
# The network is an ordinary torch module. It gets rows of 64 numbers and returns ten logits.

network = TorchClassifier(
    nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    epochs=20,
    batch_size=8,
    learning_rate=0.005,
    n_threads=1,
)

# %%
# Fifty answers at a noise of 8 votes. Their price is known before anything is trained.

model = PATEClassifier(
    network,
    n_teachers=25,
    mechanism=GNMax(sigma=8.0),
    n_answers=50,
    epsilon=6.0,
    delta=1e-4,
    student="spreading",
    classes=range(10),
    random_state=0,
)
print(model.plan(n_units=1200, n_classes=10, n_public=300).epsilon)

# %%
model.fit(X[private], y[private], X_public=X[public])
print(
    "by answers of networks",
    model.score(X[new], y[new]),
    "at epsilon",
    round(model.result_.upper["epsilon"], 2),
)

# %%
# The same images by one table of noisy counts: a better student, for a much smaller ε.

from ostraka.voters import GraphCells

cells = GraphCells(image_shape=(8, 8), time=5.0)
counts = PATEClassifier(way="counts", cells=cells, epsilon=1.0, delta=1e-4, classes=range(10))
counts.fit(X[private], y[private], X_public=X[public])
print(
    "by noisy counts", counts.score(X[new], y[new]), "at epsilon", round(counts.result_.upper["epsilon"], 2)
)

# %%
# What the student of the counts says of images that nobody was asked about.

figure, axes = plt.subplots(2, 8, figsize=(8, 2.6))
for image, said, one in zip(X[new], counts.predict(X[new]), axes.ravel(), strict=False):
    one.imshow(image.reshape(8, 8), cmap="Greys")
    one.set_title(said)
    one.axis("off")
plt.show()
