"""How long bodies take to make on one core: anny's model, meshes, images of two sizes, and loading what was kept.

Times are of one thread: seconds on the clock and of the processor, which differ where the machine is shared.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from machine import describe
from unbraid.data.rendered.bodies import bodies
from unbraid.data.rendered.body_images import POSES, BODIES_AT_ONCE, camera, phenotypes
from unbraid.data.rendered.body_model import BodyModel
from unbraid.data.rendered.zbuffer import draw_meshes

RESULT = Path(__file__).parent / "results" / "bench_bodies.json"


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What `work` gives, and its seconds on the clock and of the processor; a device's work is waited for."""
    clock, processor = time.perf_counter(), time.process_time()
    made = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return made, {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}


def meshes() -> dict[str, Any]:
    """All 100 bodies made and kept, and loaded again."""
    _, making = timed(bodies)
    data, loading = timed(bodies)
    return {"meshes": len(data), "vertices": data.vertices, "make": making, "load": loading}


def images(model: BodyModel, size: tuple[int, int], count: int, device: str) -> dict[str, Any]:
    """Images of `count` bodies spread over the grid in all poses, step by step."""
    shapes = phenotypes()[:: len(phenotypes()) // count][:count]
    faces, view = model.faces.to(device), camera(size)
    rest, resting = timed(lambda: model.rest_bodies(shapes))
    posed, posing = timed(lambda: [model.pose_vertices(rest, pose) for pose in POSES])
    moved = [few.to(device) for vertices in posed for few in vertices.split(BODIES_AT_ONCE)]
    draw_meshes(moved[0], faces, view)
    _, drawing = timed(lambda: [draw_meshes(vertices, faces, view) for vertices in moved])
    number = len(shapes) * len(POSES)
    total = {key: resting[key] + posing[key] + drawing[key] for key in resting}
    return {
        "size": size,
        "device": device,
        "images": number,
        "rest": resting,
        "pose": posing,
        "draw": drawing,
        "drawn_per_cpu_second": number / drawing["cpu_seconds"],
        "images_per_cpu_second": number / total["cpu_seconds"],
        "images_per_second": number / total["seconds"],
    }


def main() -> None:
    """Measure, print and write the result beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="also draw there, for instance on cuda")
    parser.add_argument("--bodies", type=int, default=40, help="bodies whose images are timed")
    parser.add_argument("--fresh", action="store_true", help="let anny read its assets anew, in a folder of this run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNBRAID_CACHE"] = folder
        if options.fresh:
            os.environ["ANNY_CACHE_DIR"] = str(Path(folder) / "anny")
        model, building = timed(BodyModel)
        kept = sum(file.stat().st_size for file in Path(folder).rglob("*.safetensors"))
        figures = {"model": {**building, "fresh": options.fresh, "bytes_kept": kept}, "bodies": meshes()}
    cases = [(size, device) for size in ((64, 64), (400, 200)) for device in dict.fromkeys(("cpu", options.device))]
    timings = [images(model, size, options.bodies, device) for size, device in cases]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({**describe(), "threads": 1, **figures, "images": timings}, indent=2) + "\n")
    print(
        "model {seconds:.1f} s ({cpu_seconds:.1f} s of the processor), {bytes_kept:,} bytes".format(**figures["model"])
    )
    print("100 meshes {seconds:.1f} s ({cpu_seconds:.1f} s of the processor)".format(**figures["bodies"]["make"]))
    for case in timings:
        rate = "{images_per_cpu_second:.0f} images/s of the processor, {drawn_per_cpu_second:.0f} drawn alone".format(
            **case
        )
        print("{size} on {device}: ".format(**case) + rate)


if __name__ == "__main__":
    main()
