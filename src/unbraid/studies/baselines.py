"""Studies of baselines: FactorVAE with the network of its paper, the training losses of five methods, and SlowVAE."""

from __future__ import annotations

from collections.abc import Iterator

from unbraid.methods import VAE, AnnealedVAE, BetaTCVAE, BetaVAE, FactorVAE, SlowVAE
from unbraid.studies.planned import PlannedRun, Setting, grid, sweep

GAMMAS = (1.0, 10.0, 20.0, 40.0)
FACTOR_VAE_STEPS = 311_040  # 27 epochs of dSprites with batches of 64
LOSS_STEPS = 345_600  # 30 epochs of dSprites with batches of 64, or 60 epochs with batches of 128
WARMUP = 10_000 / LOSS_STEPS


def lin2020() -> Iterator[PlannedRun]:
    """Yield 40 runs of FactorVAE on dSprites with the network of its paper: 4 values of gamma x 10 seeds.

    Each run has 10 latents and is trained for 311,040 steps with batches of 64, by Adam at learning rate 1e-4. The
    critic is trained by Adam with the learning rate 1e-4 and the betas (0.5, 0.9).

    Deviations: The authors' code draws all weights from a normal distribution with the standard deviation 0.02, whereas
    here weights are initialised by Glorot's scheme. Its critic has five hidden layers, and here it has six. It updates
    the critic with the latents of the VAE after its update, and here both are updated at once. It scores samples of the
    posterior, and here the means are scored. For the FactorVAE in the package (`dsprites/factor_vae/median`), these
    scores differ by less than 0.003. dSprites is the dataset that unbraid renders, not the published file.
    Reference: Lin et al. (2020), arXiv:1906.06034: the rows of FactorVAE in table 1 of the authors' repository.
    """
    fixed = {"net": "kim", "likelihood": "bernoulli"}
    yield from grid(["dsprites"], sweep(FactorVAE, "gamma", GAMMAS), 10, steps=FACTOR_VAE_STEPS, **fixed)


def dubois2019() -> Iterator[PlannedRun]:
    """Yield 15 runs on dSprites whose training losses are compared: 5 methods x 3 seeds.

    Each run has the network `burgess` and 10 latents, and is trained for 345,600 steps with batches of 64. For VAE,
    beta-VAE (beta 4) and beta-TCVAE (beta 6.4), the learning rate is 5e-4, and the KL term is multiplied by a number
    that rises from 0 to 1 over the first 10,000 steps. The annealed VAE has gamma 100, a capacity of 25 nats that is
    reached after 100,000 steps, and the learning rate 1e-3. FactorVAE has gamma 6.4 and the learning rate 1e-4.

    Deviations: The published table has one run per method. Here FactorVAE shuffles the latents of the batch that it
    reconstructs, whereas the authors' code draws 128 examples, reconstructs one half of them and shuffles the latents
    of the other half. The weight of the total correlation of FactorVAE is constant, whereas the authors' code raises it
    over the first 10,000 steps. That code initialises weights by Kaiming's scheme and biases uniformly, whereas here
    weights are initialised by Glorot's scheme and biases are zero. Its critic has five hidden layers, and here it has
    six. For beta-TCVAE, it raises only the weight of the dimension-wise KL. It also adds the log weights of stratified
    sampling once per latent, and puts the weight 1 / N in column 0 instead of on the diagonal. The gradient of this
    estimator is far from that of Chen et al. (2018), which is used here, and close to that of the estimator "weighted".
    dSprites is the dataset that unbraid renders, not the published file.
    Reference: Dubois et al. (2019), the results in the repository disentangling-vae.
    """
    fast = {"learning_rate": 5e-4}
    settings = [
        Setting(VAE(warmup=WARMUP), 0.0, 0, fast),
        Setting(BetaVAE(beta=4.0, warmup=WARMUP), 4.0, 0, fast),
        Setting(BetaTCVAE(beta=6.4, warmup=WARMUP, estimator="stratified"), 6.4, 0, fast),
        Setting(AnnealedVAE(gamma=100.0, c_max=25.0), 25.0, 0, {"learning_rate": 1e-3}),
        Setting(FactorVAE(gamma=6.4), 6.4, 0),
    ]
    yield from grid(["dsprites"], settings, 3, steps=LOSS_STEPS, net="burgess", likelihood="bernoulli")


def klindt2021() -> Iterator[PlannedRun]:
    """Yield 30 runs of SlowVAE: 3 datasets x 10 seeds.

    Each run has 10 latents, gamma 10, beta 1 and a Laplace prior with rate 6, and is trained for 300,000 steps with
    batches of 64, by Adam at learning rate 1e-4.

    Deviation: the datasets are dSprites, Cars3D and Shapes3D. The paper uses further datasets.
    Reference: Klindt et al. (2021), arXiv:2007.10930.
    """
    setting = Setting(SlowVAE(), SlowVAE().strength, 0)
    yield from grid(["dsprites", "cars3d", "shapes3d"], [setting], 10)
