"""The losses of published models on our dSprites, beside the losses that their authors report for the published file.

Dubois et al. (2019) publish the weights and the training losses of five models in their repository disentangling-vae.
The models were trained on the published file of dSprites. If they have the same losses on the images that unbraid
renders, these images are as good as the published ones. The weights are not part of unbraid. Clone the repository, and
pass its folder. Writes results/bench_published_weights.json.

    git clone https://github.com/YannDubs/disentangling-vae
    python benchmarks/bench_published_weights.py disentangling-vae
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from machine import describe
from unbraid.data import FactorData, load
from unbraid.noise import Noise
from unbraid.runtime.files import write_atomic

MODELS = {"VAE": "VAE", "betaH": "beta-VAE", "betaB": "annealed VAE", "btcvae": "beta-TCVAE", "factor": "FactorVAE"}
BATCH = 1_000
Weights = Mapping[str, Tensor]


def layer(weights: Weights, name: str) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias of a layer."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def encode(weights: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means and log variances. The published encoder stores those of a latent next to each other."""
    for name in ("conv1", "conv2", "conv3", "conv_64"):
        x = F.relu(F.conv2d(x, *layer(weights, f"encoder.{name}"), stride=2, padding=1))
    x = x.flatten(1)
    for name in ("lin1", "lin2"):
        x = F.relu(F.linear(x, *layer(weights, f"encoder.{name}")))
    mean, logvar = F.linear(x, *layer(weights, "encoder.mu_logvar_gen")).unflatten(1, (-1, 2)).unbind(-1)
    return mean, logvar


def decode(weights: Weights, z: Tensor) -> Tensor:
    """Return the logits of the pixels."""
    for name in ("lin1", "lin2", "lin3"):
        z = F.relu(F.linear(z, *layer(weights, f"decoder.{name}")))
    z = z.unflatten(1, (-1, 4, 4))
    for name in ("convT_64", "convT1", "convT2"):
        z = F.relu(F.conv_transpose2d(z, *layer(weights, f"decoder.{name}"), stride=2, padding=1))
    return F.conv_transpose2d(z, *layer(weights, "decoder.convT3"), stride=2, padding=1)


def losses(weights: Weights, data: FactorData, noise: Noise, samples: int) -> dict[str, float]:
    """Return the mean reconstruction loss and KL of random images, in nats. Latents are sampled, as in training."""
    total = torch.zeros(2)
    with torch.inference_mode():
        for index in data.draw(noise, samples).split(BATCH):
            x = data.batch(index)
            mean, logvar = encode(weights, x)
            logits = decode(weights, mean + (logvar / 2).exp() * noise.normal(*mean.shape))
            error = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
            kl = 0.5 * (mean.square() + logvar.exp() - logvar - 1).sum()
            total += torch.stack([error, kl])
    reconstruction, kl = (total / samples).tolist()
    return {"reconstruction": reconstruction, "kl": kl}


def published_losses(file: Path) -> dict[str, float]:
    """Return the mean training losses of the last epoch from the log of a model."""
    with file.open(newline="") as lines:
        rows = [(int(row["Epoch"]), row["Loss"], float(row["Value"])) for row in csv.DictReader(lines)]
    last = {name: value for epoch, name, value in rows if epoch == max(row[0] for row in rows)}
    return {"reconstruction": last["recon_loss"], "kl": last["kl_loss"]}


def main() -> None:
    """Compute the losses of all models, print them beside the published ones, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a clone of disentangling-vae")
    parser.add_argument("--samples", type=int, default=50_000)
    out = Path(__file__).parent / "results" / "bench_published_weights.json"
    parser.add_argument("--out", type=Path, default=out)
    options = parser.parse_args()
    data, rows = load("dsprites"), []
    for name, title in MODELS.items():
        folder = options.folder / "results" / f"{name}_dsprites"
        weights = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
        noise = Noise.from_seed(torch.tensor(0), torch.tensor(0))
        ours, published = losses(weights, data, noise, options.samples), published_losses(folder / "train_losses.log")
        rows.append({"model": title, "published": published, "ours": ours})
        print(f"{title:>12}: reconstruction {published['reconstruction']:.2f} published, {ours['reconstruction']:.2f} "
              f"on our images; KL {published['kl']:.2f} and {ours['kl']:.2f}", flush=True)  # fmt: skip
    content = {**describe(), "data": data.name, "samples": options.samples, "models": rows}
    write_atomic(options.out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
