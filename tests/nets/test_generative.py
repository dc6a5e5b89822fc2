"""Models that train with private gradients: steps of chains, rivals and draws, against plain formulas."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ostraka.nets.generative import Autoencoder, BoltzmannMachine, ImageRivals  # noqa: E402


def exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def gibbs(machine: BoltzmannMachine, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Means of rows, given hidden units that are drawn given ``rows`` (Hinton 2010, section 3)."""
    weight, bias, own = machine.up.weight, machine.up.bias, machine.own.weight[0]
    hidden = torch.bernoulli(1 / (1 + torch.exp(-(rows @ weight.T + bias))), generator=generator)
    return 1 / (1 + torch.exp(-(hidden @ weight + own)))


def machine() -> BoltzmannMachine:
    made = BoltzmannMachine(6, hidden=4, chains=40, seed=3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return made


def test_a_boltzmann_machine_starts_with_small_weights_and_chains_of_its_seed():
    made, generator = BoltzmannMachine(6, hidden=4, chains=40, seed=3), torch.Generator().manual_seed(3)
    assert torch.equal(made.chains, torch.rand((40, 6), generator=generator).round())
    expected = torch.empty(4, 6).normal_(0.0, 0.01, generator=generator)
    assert torch.equal(made.up.weight, expected)
    assert not made.up.bias.any()
    assert not made.own.weight.any()


def test_a_boltzmann_machines_losses_are_free_energies_over_all_states_of_hidden_units():
    """exp(-F(v)) is the sum over all h of exp(v·own + h·(Wv + b))."""
    made = machine()
    rows = torch.randint(0, 2, (9, 6), generator=torch.Generator().manual_seed(0)).double()
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 4).double()
    up, own = made.up.weight.double(), made.own.weight[0].double()
    exponents = (rows @ own)[:, None] + (rows @ up.T + made.up.bias.double()) @ states.T
    found = made.losses(torch.cat([rows, 9 * rows], dim=1).float())  # what stands behind a row is not used
    torch.testing.assert_close(found.double(), -torch.logsumexp(exponents, dim=1), rtol=1e-5, atol=1e-5)


def test_a_boltzmann_machines_public_gradient_is_that_of_its_chains_after_one_more_step():
    made, generator = machine(), torch.Generator()
    made.start(torch.tensor([0.0, 0.01, 0.3, 0.5, 0.985, 1.0]))
    centre = np.array([0.02, 0.02, 0.3, 0.5, 0.98, 0.98])
    np.testing.assert_allclose(made.own.weight.detach()[0], np.log(centre / (1 - centre)), rtol=1e-5)
    assert not made.chains[:, 0].any()
    assert made.chains[:, 5].all()
    for _ in range(3):
        generator.set_state(made.generator.get_state())
        with torch.no_grad():
            rows = torch.bernoulli(gibbs(made, made.chains, generator), generator=generator)
        found = made.public_gradient()
        assert torch.equal(made.chains, rows)
        made.zero_grad()
        made.losses(rows).mean().neg().backward()
        assert found.keys() == {name for name, _ in made.named_parameters()}
        for name, parameter in made.named_parameters():
            torch.testing.assert_close(found[name], parameter.grad)


@pytest.mark.parametrize("settings", [{}, {"steps": 1}])
def test_rows_of_a_boltzmann_machine_are_means_after_some_steps(settings):
    made, means = machine(), torch.rand((30, 6), generator=torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(5)
    rows = torch.bernoulli(means, generator=generator)
    for _ in range(settings.get("steps", 20)):
        rows = torch.bernoulli(gibbs(made, rows, generator), generator=generator)
    expected = gibbs(made, rows, generator)
    found = made.sampled(means, generator=torch.Generator().manual_seed(5), **settings)
    torch.testing.assert_close(found, exact(expected))


def test_rows_of_an_autoencoder_are_means_of_latent_draws_and_of_their_logits():
    torch.manual_seed(0)
    module, logits = Autoencoder(5, hidden=(4, 3), latent=2), torch.randn(8, 5)
    last = nn.Linear(4, 5)
    assert module.decoder[-1].weight.abs().max() <= 0.1 * last.weight.abs().max() * 1.2
    assert not module.decoder[-1].bias.any()
    latent = torch.randn((8, 2), generator=torch.Generator().manual_seed(4))
    expected = 1 / (1 + torch.exp(-(exact(module.decoder(latent)) + logits)))
    found = module.sampled(logits, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(found, expected)


def test_an_autoencoder_in_training_decodes_a_draw_of_the_latent_law():
    torch.manual_seed(0)
    module = Autoencoder(5, hidden=(4,), latent=3).train()
    bits, logits = torch.randint(0, 2, (7, 5)).float(), torch.randn(7, 5)
    with torch.no_grad():
        middle, spread = module.encoder(bits).chunk(2, dim=1)
        torch.manual_seed(6)
        latent = middle + torch.randn(7, 3) * torch.sqrt(torch.exp(spread))
        likely = torch.distributions.Bernoulli(logits=module.decoder(latent) + logits).log_prob(bits)
        law = torch.distributions.Normal(middle, torch.sqrt(torch.exp(spread)))
        apart = torch.distributions.kl_divergence(law, torch.distributions.Normal(0.0, 1.0))
        torch.manual_seed(6)
        found = module.losses(torch.cat([bits, logits], dim=1))
    torch.testing.assert_close(found, (apart.sum(dim=1) - likely.sum(dim=1)))


def test_rivals_take_turns_with_64_generated_rows_and_only_the_discriminator_learns_from_rows():
    torch.manual_seed(0)
    rivals = ImageRivals(64, width=3, n_noise=5)
    trained = {name for name, parameter in rivals.named_parameters() if parameter.requires_grad}
    assert trained == {f"discriminator.{name}" for name, _ in rivals.discriminator.named_parameters()}
    rows = torch.rand(6, 64)
    real = torch.sigmoid(rivals.discriminator(rows)[:, 0])
    found = rivals.losses(torch.cat([rows, torch.ones(6, 4)], dim=1))
    torch.testing.assert_close(found, -torch.log(real))
    torch.manual_seed(7)
    found = rivals.public_gradient()
    assert {name for name, parameter in rivals.named_parameters() if parameter.requires_grad} == trained
    torch.manual_seed(7)
    rivals.generator.requires_grad_()
    taken = torch.sigmoid(rivals.discriminator(rivals.generator(torch.randn(64, 5))))
    for part, loss in (
        ("discriminator", -torch.log(1 - taken).mean()),
        ("generator", -torch.log(taken).mean()),
    ):
        rivals.zero_grad()
        loss.backward(retain_graph=True)
        for name, parameter in getattr(rivals, part).named_parameters():
            torch.testing.assert_close(found.pop(f"{part}.{name}"), parameter.grad, rtol=1e-4, atol=1e-7)
    assert not found
    noise = torch.randn((8, 5), generator=torch.Generator().manual_seed(4))
    rows = rivals.sampled(torch.zeros(8, 64), generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(rows, exact(rivals.generator(noise)))
    assert not rows.requires_grad
