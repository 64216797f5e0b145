"""Learn an imperceptible change of a dataset under which VAEs should entangle its factors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.devices import add_device, check_device
from unbraid.cli.parser import Parser, add_root

EPILOG = """examples:
  unbraid data modify dsprites --device cuda    # then: unbraid train beta_vae --data "dsprites?modified=default"
  unbraid data modify sprites --out sprites.safetensors --steps 2000 --picture sprites.png
  unbraid data modify shapes3d --rotations wall_hue:orientation --device cuda --out rooms.safetensors

The control of equal strength needs no file: "dsprites?noise=0.1". Docs: docs/manipulated.md"""


def add_arguments(parser: Parser) -> None:
    """The flags."""
    parser.add_argument("name", metavar="NAME", help="a dataset of images with factors, or a path of your own")
    parser.add_argument("--out", type=Path, help="the file to write [modified/NAME.safetensors in the data folder]")
    parser.add_argument("--eps", type=float, help="the most a pixel changes by [.175 for Shapes3D, else .1]")
    parser.add_argument("--steps", type=int, default=10_000, help="updates of the manipulation [10000]")
    parser.add_argument("--batch", type=int, default=64, help="images a batch [64]")
    parser.add_argument("--samples", type=int, default=4, help="noisy codes of each image [4]")
    parser.add_argument("--ensemble", type=int, help="pairs of each kind [4 for Shapes3D, else 1]")
    parser.add_argument("--rotations", default="closest", help="closest, random, or planes as in x:y,scale:orientation")
    parser.add_argument("--capacity", type=float, help="nats of all latents together [half those of the factors]")
    parser.add_argument("--likelihood", default="bernoulli", help="of pixels: bernoulli or gaussian [bernoulli]")
    parser.add_argument(
        "--learning-rate", type=float, default=1e-3, help="of the decoders; a tenth of it for the manipulation [1e-3]"
    )
    parser.add_argument("--seed", type=int, default=0, help="[0]")
    parser.add_argument("--checkpoint-every", type=int, default=1000, help="steps [1000]")
    parser.add_argument("--picture", type=Path, help="also draw original, changed and difference into this PNG")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_device(parser)
    add_root(parser)


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.epilog = EPILOG
    add_arguments(parser)
    options = vars(parser.parse_all(arguments))
    check_device(options["device"])
    from unbraid.data.loading import load_data
    from unbraid.data.manipulated import default_file, modified, read
    from unbraid.manipulation import compare, modify

    data = load_data(options.pop("name"), options["device"], options["quiet"])
    picture, out = options.pop("picture"), options.pop("out") or default_file(data)
    options.pop("root", None)
    path = modify(data, out=out, **options)
    final = read(path, tensors=False)[1]["final"]
    print(f"{path}: entangling less disentangling pairs {final['gap']:.3f} nats an image at the end")
    print(f'Use it as "{data.name}?modified={"default" if path == default_file(data) else path}"')
    if picture:
        print(compare(modified(data, path), picture))
