"""An AnnealedVAE on sprites while its capacity grows: nats of each factor, and what it rebuilds of eight examples.

Draws docs/pictures/capacity_training.png.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from pathlib import Path
from typing import Any

from PIL import Image

from machine import describe
from unbraid.analysis import growth
from unbraid.methods import AnnealedVAE
from unbraid.runtime.files import write_atomic

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "bench_capacity.json"
PICTURE = ROOT / "docs" / "pictures" / "capacity_training.png"
COLOURS = 256  # of the picture: grey images, and curves in six colours


def main() -> None:
    """Train, print the sentence, write the figures and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    method = AnnealedVAE(gamma=100.0, c_max=15.0, iteration_threshold=float(options.steps))
    settings: dict[str, Any] = {"steps": options.steps, "learning_rate": 1e-3, "latents": 6, "net": "mlp"}
    begun = time.perf_counter()
    found = growth(method, "sprites", seeds=range(options.seeds), moments=10, **settings)
    about = {"data": "sprites", "method": {"gamma": 100.0, "c_max": 15.0}, **settings}
    told = {"seconds": time.perf_counter() - begun, "text": found.text, "rows": found.table.round(4).to_dict("list")}
    result = {**describe(), **about, **told}
    print(found.text)
    write_atomic(options.out, (json.dumps(result) + "\n").encode())
    drawn = io.BytesIO()
    found.figure.savefig(drawn, format="png", dpi=120)
    small = io.BytesIO()
    Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    write_atomic(options.picture, small.getvalue())


if __name__ == "__main__":
    main()
