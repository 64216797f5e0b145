"""Train an AnnealedVAE on sprites while its capacity grows; measure the nats of each factor and draw reconstructions.

The picture is docs/pictures/capacity_training.png.
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
COLOURS = 256  # of the picture


def main() -> None:
    """Train, print the summary, and write the results and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    method = AnnealedVAE(gamma=100.0, c_max=15.0, iteration_threshold=float(options.steps))
    settings: dict[str, Any] = {"steps": options.steps, "learning_rate": 1e-3, "latents": 6, "net": "mlp"}
    started = time.perf_counter()
    found = growth(method, "sprites", seeds=range(options.seeds), moments=10, **settings)
    about = {"data": "sprites", "method": {"gamma": 100.0, "c_max": 15.0}, **settings}
    results = {
        "seconds": time.perf_counter() - started,
        "text": found.text,
        "rows": found.table.round(4).to_dict("list"),
    }
    result = {**describe(), **about, **results}
    print(found.text)
    write_atomic(options.out, (json.dumps(result) + "\n").encode())
    figure = io.BytesIO()
    found.figure.savefig(figure, format="png", dpi=120)
    reduced = io.BytesIO()
    Image.open(figure).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(reduced, "png", optimize=True)
    write_atomic(options.picture, reduced.getvalue())


if __name__ == "__main__":
    main()
