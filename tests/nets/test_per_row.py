"""Norms and clipped sums of the gradients of rows, against gradients computed one row at a time."""

import math
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ostraka.nets import private as per_row  # noqa: E402
from ostraka.nets.generative import Autoencoder, BoltzmannMachine  # noqa: E402


def squares(module, rows):
    return module(rows).square().flatten(1).sum(dim=1)


def own_losses(module, rows):
    return module.losses(rows)


class Tokens(nn.Module):
    """Embedding with padding, then a linear layer at every place."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4, padding_idx=0)
        self.out = nn.Linear(4, 3)

    def forward(self, rows):
        return self.out(self.table(rows))


class Twice(nn.Module):
    """A layer which is called twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, rows):
        return self.layer(torch.tanh(self.layer(rows)))


class Scaled(nn.Module):
    """A parameter which belongs to no known layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))
        self.layer = nn.Linear(5, 2)

    def forward(self, rows):
        return self.layer(rows * self.scale)


def images():
    return nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)),
        nn.Conv2d(1, 3, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(3, 2, 2, bias=False),
        nn.Flatten(),
        nn.Linear(8, 2),
    )


CASES = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)), squares, (9, 5)),
    "places": (lambda: nn.Linear(5, 3), squares, (9, 4, 5)),
    "many places": (lambda: nn.Linear(2, 2), squares, (9, 40, 2)),
    "convolutions": (images, squares, (9, 36)),
    "in place": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 2)),
        squares,
        (9, 5),
    ),
    "twice": (Twice, squares, (9, 5)),
    "own parameter": (Scaled, squares, (9, 5)),
    "grouped": (lambda: nn.Conv1d(4, 4, 1, groups=2), squares, (9, 4, 3)),
    "boltzmann": (lambda: BoltzmannMachine(5, hidden=3, chains=2, seed=0), own_losses, (9, 5)),
}


def made(name):
    torch.manual_seed(0)
    module, losses, shape = CASES[name]
    return module(), losses, torch.randn(shape)


def one_at_a_time(module, losses, rows):
    alone = []
    for row in rows:
        module.zero_grad()
        losses(module, row[None]).sum().backward()
        alone.append({name: parameter.grad.clone() for name, parameter in module.named_parameters()})
    return alone


@pytest.mark.parametrize("name", CASES)
def test_norms_and_sums_are_those_of_rows_one_at_a_time(name):
    module, losses, rows = made(name)
    truth = one_at_a_time(module, losses, rows)
    norms = torch.stack([sum(g.square().sum() for g in row.values()).sqrt() for row in truth])
    gradients = per_row.row_gradients(module, losses, rows)
    torch.testing.assert_close(gradients.norms.float(), norms, rtol=1e-4, atol=1e-5)
    weights = torch.rand(len(rows))
    summed = gradients.weighted_sum(weights)
    for parameter, _ in module.named_parameters():
        expected = sum(w * row[parameter] for w, row in zip(weights, truth, strict=True))
        torch.testing.assert_close(summed[parameter].float(), expected, rtol=1e-4, atol=1e-4)


def test_embeddings_count_repeated_and_padded_places_right():
    torch.manual_seed(0)
    module, rows = Tokens(), torch.tensor([[1, 1, 0, 3], [2, 4, 4, 4], [0, 0, 0, 0]])
    truth = one_at_a_time(module, squares, rows)
    norms = torch.stack([sum(g.square().sum() for g in row.values()).sqrt() for row in truth])
    gradients = per_row.row_gradients(module, squares, rows)
    torch.testing.assert_close(gradients.norms.float(), norms, rtol=1e-4, atol=1e-5)
    summed = gradients.weighted_sum(torch.ones(3))
    torch.testing.assert_close(summed["table.weight"].float(), sum(row["table.weight"] for row in truth))


def test_known_layers_never_compute_one_gradient_a_row(monkeypatch):
    calls, original = [], per_row._one_by_one
    monkeypatch.setattr(per_row, "_one_by_one", lambda *arguments: calls.append(name) or original(*arguments))
    for name in ("perceptron", "places", "convolutions", "boltzmann", "twice"):
        per_row.row_gradients(*made(name))
    assert calls == ["twice"]


def test_a_row_whose_gradient_is_not_finite_has_no_part_in_a_sum_with_weight_zero():
    module, losses, rows = made("perceptron")
    rows[3] = torch.inf
    gradients = per_row.row_gradients(module, losses, rows)
    finite = torch.isfinite(gradients.norms)
    assert finite.tolist() == [k != 3 for k in range(9)]
    assert all(bool(torch.isfinite(total).all()) for total in gradients.weighted_sum(finite.float()).values())


def test_layers_that_mix_rows_are_refused():
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match="mixes rows"):
        per_row.row_gradients(module, squares, torch.randn(9, 5))


def test_autoencoder_rows_have_losses_of_their_own():
    """The random numbers of a row differ, so the norms are compared through the clipped sum's length."""
    torch.manual_seed(0)
    module = Autoencoder(5, hidden=(4,), latent=2)
    gradients = per_row.row_gradients(module, own_losses, torch.rand(9, 10))
    for k in range(9):
        weights = torch.zeros(9)
        weights[k] = 1.0
        length = sum(total.square().sum() for total in gradients.weighted_sum(weights).values()).sqrt()
        torch.testing.assert_close(length, gradients.norms[k], rtol=1e-4, atol=1e-5)


def test_an_autoencoders_loss_is_minus_the_evidence_bound_with_the_laws_of_torch():
    """Kingma and Welling 2014, equation 3; the variance of a latent number is between exp(-8) and exp(8)."""
    torch.manual_seed(0)
    module = Autoencoder(5, hidden=(4,), latent=3).eval()  # the latent law's mean is decoded, without a draw
    bits, logits = torch.randint(0, 2, (7, 5)).float(), torch.randn(7, 5)
    with torch.no_grad():
        module.encoder[-1].bias[3:] = torch.tensor([-20.0, 1.0, 20.0])
        middle, spread = module.encoder(bits).chunk(2, dim=1)
        law = torch.distributions.Normal(middle, spread.clamp(-8, 8).div(2).exp())
        apart = torch.distributions.kl_divergence(law, torch.distributions.Normal(0.0, 1.0)).sum(dim=1)
        law = torch.distributions.Bernoulli(logits=module.decoder(middle) + logits)
        likely = law.log_prob(bits).sum(dim=1)
        torch.testing.assert_close(module.losses(torch.cat([bits, logits], dim=1)), apart - likely)


def test_where_a_layer_treats_places_of_a_batch_differently_rows_are_asked_one_by_one(monkeypatch):
    module, losses, rows = made("perceptron")
    norms = per_row.row_gradients(module, losses, rows).norms
    monkeypatch.setattr(per_row, "_is_alike", lambda _: False)
    torch.testing.assert_close(per_row.row_gradients(module, losses, rows).norms, norms)


def test_places_of_a_batch_are_compared_anew_for_each_geometry_of_a_convolution(monkeypatch):
    """All of these layers have one shape of weights, of rows, and of what they return."""
    monkeypatch.setattr(per_row, "_ALIKE", {})
    for geometry in ({"padding": 1}, {"padding": 2, "dilation": 2}, {"padding": 4, "stride": 2}):
        layer = nn.Conv2d(1, 2, 3, **geometry)
        assert layer(torch.zeros(1, 1, 6, 6)).shape == (1, 2, 6, 6)
        per_row.row_gradients(layer, squares, torch.randn(3, 1, 6, 6))
    assert len(per_row._ALIKE) == 3


@pytest.mark.parametrize("name", ["perceptron", "places", "convolutions", "boltzmann", "twice"])
def test_a_row_has_one_gradient_whatever_rows_stand_beside_it(name):
    module, losses, rows = made(name)
    many = rows[torch.randint(0, len(rows), (300,), generator=torch.Generator().manual_seed(0))]
    many = many + torch.arange(300).reshape(-1, *[1] * (many.ndim - 1)) / 1000
    norms = per_row.row_gradients(module, losses, many).norms
    for first in (0, 1, 7, 113):
        tail = per_row.row_gradients(module, losses, many[first:]).norms
        assert torch.equal(tail, norms[first:])
    hostile = many.clone()
    hostile[::2] = torch.inf
    assert torch.equal(per_row.row_gradients(module, losses, hostile).norms[1::2], norms[1::2])


def whole(numbers, bits):
    """Whole numbers of so many bits, and their unit: a power of two that the largest of them sets."""
    exponent = max(math.frexp(max(map(abs, numbers)))[1], -90)
    unit = Fraction(2) ** (exponent - bits)
    return [round(Fraction(number) / unit) for number in numbers], unit


def products(rows, matrix):
    """Rows times a matrix with the whole numbers of Python, which no sum rounds."""
    n, width = matrix.shape
    entries, unit = whole(matrix.flatten().tolist(), 31 - math.ceil(math.log2(max(n, 2))))
    found = []
    for row in rows.tolist():
        numbers, of_row = whole(row, 22)
        sums = [sum(numbers[i] * entries[i * width + j] for i in range(n)) for j in range(width)]
        found.append([float(total * unit * of_row) for total in sums])
    return torch.tensor(found, dtype=torch.float64).float()


@pytest.mark.parametrize("n_inputs", [1, 2, 5, 64, 65, 3000])
def test_products_of_linear_layers_are_those_of_whole_numbers_of_any_length(n_inputs):
    """The slopes of squares are twice the outputs, and the sum of one row's slopes is that of its bias."""
    generator = torch.Generator().manual_seed(n_inputs)
    layer, last = nn.Linear(n_inputs, 3), nn.Linear(3, 2)
    rows = torch.randn(5, n_inputs, generator=generator) * 2.0 ** torch.tensor([[0], [-40], [-95], [9], [3]])
    rows[4] = torch.randn(n_inputs, generator=generator).exp() ** 8
    with torch.no_grad():
        for parameter in (*layer.parameters(), *last.parameters()):
            scale = 2.0 ** torch.randint(-14, 1, parameter.shape, generator=generator)
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        layer.bias[0] = 0.0  # so that products of tiny rows are seen
    sums = per_row.row_gradients(nn.Sequential(layer, last), squares, rows).weighted_sum
    hidden = products(rows, layer.weight.T) + layer.bias
    slope = 2 * (products(hidden, last.weight.T) + last.bias)
    back = products(slope, last.weight)
    for row, weights in enumerate(torch.eye(5)):
        gradients = sums(weights)
        assert torch.equal(gradients["1.bias"].float(), slope[row])
        assert torch.equal(gradients["0.bias"].float(), back[row])
        assert torch.equal(gradients["1.weight"], torch.outer(slope[row].double(), hidden[row].double()))
