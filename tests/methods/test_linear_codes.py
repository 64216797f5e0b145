"""PCA, ICA and autoencoders with ICA: components compared with scikit-learn, and runs that use them everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn import decomposition
from torch import Tensor, nn

import unbraid as ub
from support.command_line import unbraid
from support.training import assert_same_run, quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import AE, AEICA, ICA, PCA
from unbraid.methods.ae_ica import outer_layer
from unbraid.methods.fast_ica import fast_ica, principal_components
from unbraid.noise import Noise

SMALL = {"steps": 30, "latents": 3}


def noise() -> Noise:
    return Noise(torch.tensor(4))


def correlations(a: Tensor, b: Tensor) -> list[float]:
    """The absolute correlation of each column of a with its partner in b, for the best one-to-one matching."""
    d = a.shape[1]
    table = np.abs(np.corrcoef(a.numpy().T, b.numpy().T)[:d, d:])
    return [float(value) for value in table[linear_sum_assignment(-table)]]


def mixture(n: int = 2000, d: int = 3) -> tuple[Tensor, Tensor]:
    """Independent sources, and a mixture of them with an offset."""
    g = torch.Generator().manual_seed(0)
    sources = torch.rand(n, d, generator=g, dtype=torch.float64)
    sources[:, 0] = sources[:, 0].log()
    return sources, sources @ torch.randn(d, d, generator=g, dtype=torch.float64) + 5


# The algorithms


def test_fast_ica_recovers_mixed_sources() -> None:
    sources, mixed = mixture()
    codes = fast_ica(mixed, noise())
    found = (mixed - codes.mean) @ codes.matrix.T
    assert min(correlations(found, sources)) > 0.99
    assert min(correlations(mixed, sources)) < 0.95
    torch.testing.assert_close(found.mean(0), torch.zeros(3).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(found.T @ found / len(found), torch.eye(3).double(), atol=1e-8, rtol=0)
    torch.testing.assert_close(codes.mean + found @ codes.inverse.T, mixed)
    assert (found.pow(3).sum(0) >= 0).all()
    explained = codes.inverse.square().sum(0)
    assert torch.equal(explained, explained.sort(descending=True)[0])


def test_fast_ica_equals_scikit_learn() -> None:
    _, mixed = mixture()
    codes = fast_ica(mixed, noise())
    theirs = decomposition.FastICA(whiten="unit-variance", random_state=0, tol=1e-8, max_iter=1000).fit_transform(mixed)
    assert min(correlations((mixed - codes.mean) @ codes.matrix.T, torch.from_numpy(theirs))) > 1 - 1e-6


def test_directions_that_do_not_vary_are_kept() -> None:
    """A latent that is constant, and one that repeats another, leave an invertible map."""
    sources, mixed = mixture()
    z = torch.cat([mixed, mixed[:, :1], torch.ones(len(mixed), 1).double()], 1)
    codes = fast_ica(z, noise())
    torch.testing.assert_close(codes.matrix @ codes.inverse, torch.eye(5).double(), atol=1e-8, rtol=0)
    found = (z - codes.mean) @ codes.matrix.T
    assert min(correlations(found[:, :3], sources)) > 0.99
    torch.testing.assert_close(found[:, 3:], torch.zeros(len(z), 2).double(), atol=1e-6, rtol=0)
    still = fast_ica(torch.ones(9, 2), noise())
    torch.testing.assert_close(still.matrix @ still.inverse, torch.eye(2).double())


@pytest.mark.parametrize(("n", "m"), [(200, 30), (20, 50)])
def test_principal_components_equal_scikit_learn(n: int, m: int) -> None:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(n, m, generator=g) * torch.linspace(3, 0.1, m)
    x = x - x.mean(0)
    found = principal_components(x, 4, noise())
    theirs = torch.from_numpy(decomposition.PCA(4, svd_solver="full").fit(x.numpy()).components_)
    torch.testing.assert_close((found.T @ theirs.T).diagonal().abs(), torch.ones(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.T @ found, torch.eye(4), atol=1e-5, rtol=0)
    assert (found.gather(0, found.abs().argmax(0, keepdim=True)) > 0).all()


# Runs


def examples(data: FactorData) -> Tensor:
    return data.batch(torch.arange(len(data))).flatten(1)


def test_pca_of_a_run_equals_scikit_learn(toy: FactorData) -> None:
    (run,) = ub.train(PCA(), toy, latents=3, quiet=True)
    assert run.spec.steps == 1
    x = examples(toy)
    theirs = decomposition.PCA(3).fit(x.numpy())
    codes = run.encode(toy.images(slice(None)))
    wanted = torch.from_numpy(theirs.transform(x.numpy()))
    signs = (codes * wanted).sum(0).sign()
    torch.testing.assert_close(codes, wanted * signs, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        run.decode(codes), torch.from_numpy(theirs.inverse_transform(wanted.numpy())), atol=1e-3, rtol=1e-3
    )


def test_ica_of_a_run_rotates_its_pca(toy: FactorData) -> None:
    (pca,), (ica,) = (ub.train(method, toy, latents=3, quiet=True) for method in (PCA(), ICA()))
    x = toy.images(slice(None))
    codes = ica.encode(x)
    torch.testing.assert_close(codes.T @ codes / len(codes), torch.eye(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(ica.decode(codes), pca.decode(pca.encode(x)), atol=1e-4, rtol=1e-4)


def test_steps_have_no_influence_on_pca(toy: FactorData) -> None:
    runs = [ub.train(PCA(), toy, latents=3, steps=steps, quiet=True)[0] for steps in (1, 5)]
    x = toy.images(slice(0, 50))
    torch.testing.assert_close(runs[0].encode(x), runs[1].encode(x), rtol=0, atol=0)


def test_an_autoencoder_with_ica_reconstructs_like_the_autoencoder(toy: FactorData) -> None:
    """Its codes are an affine map of those of the autoencoder, with mean 0 and no covariance."""
    (plain,), (rotated,) = (quick_train(None, method, **SMALL) for method in (AE(), AEICA()))
    x = toy.images(slice(None))
    before, codes = plain.encode(x), rotated.encode(x)
    torch.testing.assert_close(rotated.decode(codes), plain.decode(before), rtol=1e-4, atol=1e-4)
    assert (codes - before).abs().max() > 0.01
    torch.testing.assert_close(codes.mean(0), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(codes.T @ codes / len(codes), torch.eye(3), rtol=0, atol=1e-3)
    inputs = torch.cat([before, torch.ones(len(before), 1)], 1)
    torch.testing.assert_close(inputs @ torch.linalg.lstsq(inputs, codes).solution, codes, rtol=0, atol=1e-3)
    assert plain.log == rotated.log


@pytest.mark.parametrize("method", [AEICA(), PCA(), ICA()], ids=str)
def test_untrained_runs_keep_their_weights(method: AE) -> None:
    (run,) = quick_train(None, method, steps=0)
    torch.manual_seed(run.spec.seed)
    net = method.build(ub.nets.NETS["mlp"], (16,), run.spec.latents, "gaussian")
    for name, value in run.net.state_dict().items():
        assert torch.equal(value, net.state_dict()[name])


@pytest.mark.parametrize("method", [AEICA(), ICA()], ids=str)
def test_stored_and_unstored_runs_are_equal(method: AE, tmp_path: Path) -> None:
    (stored,), (again,), (memory,) = (quick_train(out, method, **SMALL) for out in (tmp_path, tmp_path, None))
    assert_same_run(stored, again)
    for name, value in stored.net.state_dict().items():
        assert torch.equal(value, memory.net.state_dict()[name])


def test_a_run_that_diverges_is_not_rotated(toy: FactorData) -> None:
    (run,) = quick_train(None, AEICA(), steps=30, learning_rate=1e30)
    assert run.divergence is not None


def test_networks_without_linear_outer_layers_are_rejected(toy: FactorData) -> None:
    def pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
        encoder = nn.Sequential(nn.Linear(*shape, 2 * latents), nn.Tanh())
        return encoder, nn.Sequential(nn.Linear(latents, *shape))

    with pytest.raises(UserError, match="must be an encoder that ends with"):
        ub.train(AEICA(), toy, net=pair, steps=1, quiet=True)
    nested = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh(), nn.Linear(2, 3)))
    assert isinstance(outer_layer(nested, -1), nn.Linear)
    assert isinstance(outer_layer(nested, 0), nn.ReLU)


def test_too_many_components_are_rejected(toy: FactorData) -> None:
    with pytest.raises(UserError, match="PCA can have at most 16 latents on these data"):
        ub.train(PCA(), toy, latents=17, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ae_ica", "pca", "ica"])
def test_all_commands_accept_the_runs(name: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    training = ["--steps", "3", "--batch", "4"] if name == "ae_ica" else []
    assert not unbraid("train", name, "--data", "sprites", "--latents", "3", *training, "--out", out, "--quiet")
    assert not unbraid("score", out, "--metrics", "mig", "--quiet")
    assert not unbraid("traverse", out, "--out", tmp_path / "pictures")
    assert not unbraid("report", out, "--metrics", "mig", "--out", tmp_path / "report.html", "--quiet")
    assert "sliders" in (tmp_path / "report.html").read_text()
    (row,) = ub.score(out, ["mig"], quiet=True)
    assert 0 <= row["mig.discrete_mig"] <= 1


def test_an_iteration_that_does_not_converge_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.methods.fast_ica.MAX_ITERATIONS", 1)
    with pytest.warns(RuntimeWarning, match="FastICA did not converge"):
        fast_ica(mixture()[1], noise())
