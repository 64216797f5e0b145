"""Learn a small change to the images of a dataset that is intended to make VAEs entangle its factors."""

from __future__ import annotations

import math
from argparse import BooleanOptionalAction
from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser, add_device, add_quiet, add_root, parse_and_run
from unbraid.cli.values import MAX_EXAMPLES, file_to_write, finite_number, whole_number

EPILOG = """examples:
  unbraid data modify dsprites --device cuda    # then: unbraid train beta_vae --data "dsprites?modified=default"
  unbraid data modify sprites --out sprites.safetensors --steps 2000 --picture sprites.png
  unbraid data modify dsprites --recipe paper --device cuda --out paper.safetensors
  unbraid data modify shapes3d --rotations wall_hue:orientation --device cuda --out rooms.safetensors

For a control experiment with noise of the same strength, use the dataset "dsprites?noise=0.1". It needs no file."""


def add_arguments(parser: Parser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add("name", metavar="NAME", help="name of an image dataset with factors, or path of your own data")
    add(
        "--out",
        type=file_to_write,
        metavar="FILE",
        help="file to write [modified/NAME.safetensors, in the data folder]",
    )
    add(
        "--eps",
        type=finite_number(low=0),
        help="maximum change of a pixel, above 0 and at most 1 [0.175 for Shapes3D, 0.1 for other data]",
    )
    add(
        "--steps",
        type=whole_number(1),
        default=10_000,
        help="number of training steps of the manipulation network [10000]",
    )
    add("--batch", type=whole_number(1, MAX_EXAMPLES), default=64, help="number of images per batch [64]")
    add("--samples", type=whole_number(1, MAX_EXAMPLES), default=4, help="number of noisy codes sampled per image [4]")
    add(
        "--ensemble",
        type=whole_number(1, 1000),
        help="number of entangling and of disentangling encoder-decoder pairs [4 for Shapes3D, 1 for other data]",
    )
    rotations = (
        "planes of two factors to rotate: closest (the two factors with the most similar strengths), random, or names, "
        "such as x:y,scale:orientation [closest]"
    )
    add("--rotations", default="closest", help=rotations)
    add(
        "--capacity",
        type=finite_number(low=0),
        help="total information in all latents, in nats [half the entropy of the factors]",
    )
    add("--likelihood", default="bernoulli", help="likelihood of pixels: bernoulli or gaussian [bernoulli]")
    add_recipe(parser)
    add("--seed", type=whole_number(), default=0, help="random seed [0]")
    add("--checkpoint-every", type=whole_number(1), default=1000, help="number of steps between checkpoints [1000]")
    add(
        "--picture",
        type=file_to_write,
        metavar="PNG",
        help="also draw original images, modified images and their differences, and write them to this file",
    )
    add_quiet(parser)
    add_device(parser)
    add_root(parser)


def add_recipe(parser: Parser) -> None:
    """Add the flags that say how the manipulation network is trained against the decoders."""
    from unbraid.manipulation.recipes import CHOICES, MAX_ROUNDS, RECIPES

    def values(name: str) -> str:
        return f"[{', '.join(str(recipe[name]) for recipe in RECIPES.values())}]"

    group = parser.add_argument_group("recipe (brackets contain the value of recipe 'default', then of recipe 'paper')")
    add = group.add_argument
    add("--recipe", choices=tuple(RECIPES), default="default", help="defaults of the following flags [default]")
    add("--learning-rate", type=finite_number(low=0), help=f"learning rate of the decoders {values('learning_rate')}")
    pace = "learning rate of the manipulation network, divided by that of the decoders"
    add("--pace", type=finite_number(low=0), help=f"{pace} {values('pace')}")
    rounds = "number of batches for the decoders per batch for the manipulation network"
    add("--rounds", type=whole_number(1, MAX_ROUNDS), help=f"{rounds} {values('rounds')}")
    warm = "fraction of the steps, at the beginning, in which only the decoders are trained"
    add("--warm", type=finite_number(low=0), help=f"{warm} {values('warm')}")
    objective = (
        "what is minimised: difference (the error of entangling pairs minus that of disentangling pairs) or log_ratio "
        "(the same difference between the logarithms of the errors)"
    )
    add("--objective", choices=CHOICES["objective"], help=f"{objective} {values('objective')}")
    normalise = "whether the manipulation is normalised over the batch"
    add("--normalise", action=BooleanOptionalAction, help=f"{normalise} {values('normalise')}")
    scalar = "initial scalar function of the factors on which the pattern depends"
    add("--scalar", choices=CHOICES["scalar"], help=f"{scalar} {values('scalar')}")


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.epilog = EPILOG
    add_arguments(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Learn the manipulation and print how to use it."""
    from unbraid.accel.devices import check_device
    from unbraid.data.loading import load_data
    from unbraid.data.manipulated import apply_manipulation
    from unbraid.data.manipulation_files import default_file, read_manipulation
    from unbraid.manipulation import draw_comparison, modify

    check_device(options.device)
    settings = {name: value for name, value in vars(options).items() if name not in ("name", "picture", "out", "root")}
    data = load_data(options.name, options.device, options.quiet)
    path = modify(data, out=options.out or default_file(data), **settings)
    gap = read_manipulation(path, tensors=False)[1].get("final", {}).get("gap", math.nan)
    print(f"The manipulation was written to {path}.")
    print(f"The final error of entangling pairs minus that of disentangling pairs is {gap:.3f} nats per image.")
    print(f'Use it as "{data.name}?modified={"default" if path == default_file(data) else path}"')
    if options.picture:
        print(draw_comparison(apply_manipulation(data, path), options.picture))
