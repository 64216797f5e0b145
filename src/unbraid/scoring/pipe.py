"""PIPE: whether a classifier can distinguish reconstructions from decoded independent latents."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.registry import resolve_net
from unbraid.noise import Noise
from unbraid.runs.prior import has_own_prior
from unbraid.runs.run import CHUNK, Run
from unbraid.scoring.encoding import encode_table
from unbraid.training.train import default_net

STEPS, HALF_BATCH = 1_500, 16  # the classifier sees 48,000 examples, about as many as in the paper
LEARNING_RATE = 1e-3


def pipe(run: Run, data: FactorData, index: Tensor, seed: int = 0, steps: int = STEPS) -> float:
    r"""Measure whether independent latents decode to examples that look like reconstructions (PIPE).

    .. math:: 2 \, (1 - a), \quad \hat x_t = g(\mu(x_t)), \quad \tilde x_t = g(z_t), \quad
        z_{ti} \sim U(\min_s \mu_i(x_s), \max_s \mu_i(x_s))

    A classifier is trained to distinguish the reconstructions :math:`\hat x` of examples x from the examples
    :math:`\tilde x`, which are decoded from latents z. Each coordinate of z is drawn independently, from the uniform
    distribution between the smallest and the largest posterior mean of this latent. :math:`\mu` is the posterior mean
    and g is the decoder. The classifier is trained on half of the examples, and a is its accuracy on the other half.
    PIPE stands for posterior indifference projection equivalence.

    The score lies in [0, 1]. 1 means that the classifier cannot distinguish the two kinds of examples, so every
    combination of values of the latents decodes to a possible example. 0 means that the classifier is always correct.

    Limitations: The classifier also detects how the latents are distributed. A disentangled model therefore scores high
    only if its posterior means fill their range evenly, as they do for factors with equally frequent values. For
    aligned codes of 5,000 independent normal sources, the score is about 0.48 with one latent, 0.33 with two and 0.18
    with four. A high score is not sufficient for disentanglement: a model whose decoder ignores the latents scores 1,
    and so does a model with one informative latent that is distributed uniformly. Latents that are not informative
    lower the score if the decoder still reacts to them, as after a short training. A rotation of latents is detected
    only if it changes the range of possible combinations. If the distribution of the latents is spherically symmetric,
    rotations have no effect.

    Deviations: The classifier is the encoder of the default network for the data (`locatello` for images, `mlp` for
    vectors) without batch normalisation, trained by Adam with learning rate 1e-3 instead of 1e-4. Accuracies below 1/2
    count as 1/2.

    Reference: Estermann and Wattenhofer (2023), arXiv:2303.01384.

    Args:
        run: A run with a decoder whose latents are ordinary numbers.
        data: The dataset.
        index: Indices of the examples to reconstruct.
        seed: Random seed for the latents and the classifier.
        steps: Number of training steps of the classifier, with batches of 32.

    Returns:
        The score.

    Raises:
        UserError: If the run has no decoder, or if its latents are angles, categories or points of a curved space.
    """
    if has_own_prior(run) or run.net.decoder is None:
        raise UserError(
            f"PIPE needs runs with a decoder whose latents are ordinary numbers. {run.label} is not such a run. Choose "
            "runs of a VAE, or rank by udr."
        )
    latents = run.spec.method.point_latents(run.net, encode_table(run, data, index))
    low, high = latents.amin(0), latents.amax(0)
    key = torch.tensor(seed, device=latents.device)
    noise = Noise.from_seed(key, torch.zeros_like(key))
    independent = low + (high - low) * noise.uniform(*latents.shape)
    half = len(latents) // 2
    classifier = train_classifier(run, data, latents[:half], independent[:half], seed, steps)
    accuracy = classification_accuracy(run, classifier, latents[half:], independent[half:])
    return 2 * (1 - max(accuracy, 0.5))


def train_classifier(
    run: Run, data: FactorData, latents: Float[Tensor, "n d"], independent: Float[Tensor, "n d"], seed: int, steps: int
) -> nn.Module:
    """Train a network to distinguish decoded `latents` from decoded `independent` latents.

    The two outputs of the network are the logits of these two classes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classifier = resolve_net(default_net(data))[1](tuple(data.shape), 1)[0].to(latents.device)
        order = torch.randint(len(latents), (steps, 2, HALF_BATCH)).to(latents.device)
    optimiser = torch.optim.Adam(classifier.parameters(), lr=LEARNING_RATE)
    target = torch.arange(2, device=latents.device).repeat_interleave(HALF_BATCH)
    for first, second in order:
        x = run.decode(torch.cat([latents[first], independent[second]]))
        loss = nn.functional.cross_entropy(classifier(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return classifier


@torch.no_grad()
def classification_accuracy(
    run: Run, classifier: nn.Module, latents: Float[Tensor, "n d"], independent: Float[Tensor, "n d"]
) -> float:
    """Return the fraction of decoded latents that the classifier assigns to the correct class."""
    correct = 0
    for kind, table in enumerate((latents, independent)):
        for part in table.split(CHUNK):
            correct += int((classifier(run.decode(part)).argmax(1) == kind).sum())
    return correct / (2 * len(latents))
