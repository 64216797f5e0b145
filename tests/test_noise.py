"""Random numbers depend only on the seed, the step, the stream and the number of the draw."""

from __future__ import annotations

import pytest
import torch
from torch.func import vmap

from unbraid.noise import Noise, mix


def noise(seed: int = 5, step: int = 0, stream: int = 0) -> Noise:
    return Noise.from_seed(torch.tensor(seed), torch.tensor(step), stream)


def reference_splitmix(state: int) -> int:
    """The output function of the published generator, in Python integers."""
    mask = 2**64 - 1
    z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


@pytest.mark.parametrize("state", [0, 1, 0x9E3779B97F4A7C15, 2**63, 2**64 - 1, 1234567890123456789])
def test_mix_is_splitmix64(state: int) -> None:
    signed = state - 2**64 if state >= 2**63 else state
    assert int(mix(torch.tensor(signed))) % 2**64 == reference_splitmix(state)


def test_first_outputs_of_splitmix64_seed_0() -> None:
    """The first numbers of splitmix64 seeded with 0, as published with the xoshiro generators."""
    gamma = 0x9E3779B97F4A7C15
    states = [(i * gamma) % 2**64 for i in (1, 2, 3)]
    found = [int(mix(torch.tensor(s - 2**64 if s >= 2**63 else s))) % 2**64 for s in states]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_normal_moments() -> None:
    z = noise().normal(400_000)
    assert abs(float(z.mean())) < 0.01
    assert float(z.std()) == pytest.approx(1, abs=0.01)
    assert float((z**4).mean()) == pytest.approx(3, abs=0.06)


def test_uniform_numbers_are_uniform_and_uncorrelated() -> None:
    u = noise().uniform(400_000)
    assert 0 < float(u.min()) < float(u.max()) < 1
    counts = torch.histc(u, 20, 0, 1)
    chi2 = float(((counts - 20_000) ** 2 / 20_000).sum())
    assert chi2 < 44  # 0.1% point of chi-square with 19 degrees of freedom is 43.8
    assert abs(float(torch.corrcoef(torch.stack([u[1:], u[:-1]]))[0, 1])) < 0.01


def test_integers_cover_their_range_evenly() -> None:
    k = noise().integers(7, 70_000)
    counts = torch.bincount(k, minlength=7)
    assert len(counts) == 7
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 22.5  # 0.1% point, 6 degrees of freedom


def test_draws_seeds_steps_and_streams_differ() -> None:
    n = noise()
    streams = [n.normal(50), n.normal(50), noise(6).normal(50), noise(5, 1).normal(50), noise(5, 0, 1).normal(50)]
    for i, a in enumerate(streams):
        for b in streams[i + 1 :]:
            assert not torch.isclose(a, b).any()


def test_numbers_are_the_same_alone_and_in_a_stack() -> None:
    seeds = torch.arange(4)
    together = vmap(lambda seed: Noise.from_seed(seed, torch.tensor(3)).normal(5, 2))(seeds)
    for seed in range(4):
        assert torch.equal(together[seed], noise(seed, 3).normal(5, 2))


def test_shuffle_permutes_columns_independently() -> None:
    z = torch.arange(200.0).view(50, 4)
    shuffled = noise().shuffle(z)
    assert torch.equal(shuffled.sort(0).values, z)
    orders = {tuple(shuffled[:, k].argsort().tolist()) for k in range(4)}
    assert len(orders) == 4
