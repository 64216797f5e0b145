"""Make a run from a model that was trained elsewhere. All other commands accept the folder of the run.

MODEL is an ONNX file (.onnx), a TorchScript file (.pt), a torch.export file (.pt2), or file.py:function. The function
takes no arguments and returns a model: an object with encode(x) and decode(z), a pair (encoder, decoder), or an
encoder. A TorchScript file can contain both the encoder and the decoder. If MODEL contains only the encoder, DECODER is
the file of the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from unbraid.cli.parser import Parser, add_quiet, add_root, parse_and_run
from unbraid.cli.values import argument_type, path, whole_number
from unbraid.errors import UserError

SECOND = ("logvar", "variance", "std", "other")


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("model", metavar="MODEL", help="the file of the model or of its encoder, or file.py:function")
    second = "the file of the decoder [the decoder in MODEL, if any]"
    parser.add_argument("decoder_file", nargs="?", metavar="DECODER", help=second)
    parser.add_argument("--decoder", metavar="FILE", help="the same as DECODER")
    parser.add_argument("--data", required=True, help="dataset to encode: a name, or the path of your own data")
    parser.add_argument("--name", required=True, help="name of the model in tables and pictures")
    parser.add_argument("--out", type=path, metavar="FOLDER", help="folder of runs to add the run to [runs/NAME]")
    parser.add_argument(
        "--pixels", type=argument_type(_parse_pixels), default=(0.0, 1.0), metavar="LOW,HIGH",
        help="values of black and white pixels in the model's images, such as --pixels=-1,1 [0,1]",
    )  # fmt: skip
    parser.add_argument("--logits", action="store_true", help="the decoder returns logits of pixels")
    parser.add_argument(
        "--second", choices=SECOND, default="logvar",
        help="what the second output is if the encoder returns a pair [logvar]",
    )  # fmt: skip
    parser.add_argument(
        "--latents", type=whole_number(1), metavar="N",
        help="number of latents, if the encoder returns means and log variances in one tensor",
    )  # fmt: skip
    parser.add_argument("--seed", type=whole_number(), metavar="N", help="seed with which the model was trained")
    parser.add_argument(
        "--setting", type=argument_type(_parse_setting), action="append", default=[], metavar="NAME=VALUE",
        help="hyperparameter of the model that tables show; may be given several times",
    )  # fmt: skip
    text = "allow unbraid to run the program in a TorchScript or torch.export file"
    parser.add_argument("--trust", action="store_true", help=text)
    add_quiet(parser)
    add_root(parser)
    return parse_and_run(parser, arguments, run)


def _parse_pixels(text: str) -> tuple[float, float]:
    """Parse the values of black and white pixels.

    >>> _parse_pixels("-1,1")
    (-1.0, 1.0)
    """
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise UserError(f"must be two numbers such as -1,1. Got {text!r} instead") from None
    return low, high


def _parse_setting(text: str) -> tuple[str, int | float | str]:
    """Parse a setting. Its value is a number if it looks like one.

    >>> _parse_setting("beta=4"), _parse_setting("prior=laplace")
    (('beta', 4), ('prior', 'laplace'))
    """
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise UserError(f"must be NAME=VALUE. Got {text!r} instead")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def run(options: Any) -> None:
    """Adopt the model and print what can be done with it."""
    from unbraid.adoption.adopt import adopt

    if options.decoder_file and options.decoder:
        raise UserError(f"There must be one decoder. Got {options.decoder_file} and {options.decoder}. Leave one out.")
    decoder = options.decoder_file or options.decoder
    model = options.model if decoder is None else (options.model, decoder)
    settings = {
        "out": options.out or Path("runs") / options.name, "pixels": options.pixels, "logits": options.logits,
        "second": options.second, "latents": options.latents, "seed": options.seed, "settings": dict(options.setting),
        "trust": options.trust, "quiet": options.quiet,
    }  # fmt: skip
    adopted = adopt(model, options.data, options.name, **settings)
    assert adopted.path is not None
    parts = "encoder and decoder" if adopted.net.decoder is not None else "an encoder only"
    kinds = " and ".join(adopted.spec.method.code_kinds)
    print(f"{adopted.path}\n{adopted.label}: {parts}, {adopted.spec.latents} latents, codes: {kinds}")
    folder = quote(str(adopted.path.parent))
    print(f"\nNext:\n  unbraid score {folder}\n  unbraid report {folder}")
