"""Measure how long it takes to create bodies on one core: anny's model, meshes, images of two sizes, and cached meshes.

Times are those of one thread, in seconds of wall-clock time and of processor time, which differ on a shared machine.
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
from unbraid.data.rendered.body_images import BODIES_AT_ONCE, POSES, camera, phenotypes
from unbraid.data.rendered.body_model import BodyModel
from unbraid.data.rendered.zbuffer import draw_meshes

RESULT = Path(__file__).parent / "results" / "bench_bodies.json"


def time_call(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return the result of `work` and its wall-clock and processor seconds, including the work on a device."""
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}


def measure_meshes() -> dict[str, Any]:
    """Measure creating all 100 bodies, and loading them from the cache."""
    _, making = time_call(bodies)
    data, loading = time_call(bodies)
    return {"meshes": len(data), "vertices": data.vertices, "make": making, "load": loading}


def measure_images(model: BodyModel, size: tuple[int, int], count: int, device: str) -> dict[str, Any]:
    """Measure creating images of `count` bodies, spread over the grid, in all poses."""
    shapes = phenotypes()[:: len(phenotypes()) // count][:count]
    faces, view = model.faces.to(device), camera(size)
    rest, resting = time_call(lambda: model.rest_bodies(shapes))
    meshes, posing = time_call(lambda: [model.pose_vertices(rest, pose) for pose in POSES])
    moved = [few.to(device) for vertices in meshes for few in vertices.split(BODIES_AT_ONCE)]
    draw_meshes(moved[0], faces, view)
    _, drawing = time_call(lambda: [draw_meshes(vertices, faces, view) for vertices in moved])
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
    """Measure, print, and write the results to results/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="a device to draw on as well, for example cuda")
    parser.add_argument("--bodies", type=int, default=40, help="bodies whose images are timed")
    parser.add_argument("--fresh", action="store_true", help="let anny read its assets again, into a temporary folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNBRAID_CACHE"] = folder
        if options.fresh:
            os.environ["ANNY_CACHE_DIR"] = str(Path(folder) / "anny")
        model, building = time_call(BodyModel)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.safetensors"))
        figures = {"model": {**building, "fresh": options.fresh, "bytes_kept": size}, "bodies": measure_meshes()}
    cases = [(size, device) for size in ((64, 64), (400, 200)) for device in dict.fromkeys(("cpu", options.device))]
    timings = [measure_images(model, size, options.bodies, device) for size, device in cases]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({**describe(), "threads": 1, **figures, "images": timings}, indent=2) + "\n")
    print(
        "model {seconds:.1f} s ({cpu_seconds:.1f} s of processor time), {bytes_kept:,} bytes".format(**figures["model"])
    )
    print("100 meshes {seconds:.1f} s ({cpu_seconds:.1f} s of processor time)".format(**figures["bodies"]["make"]))
    for case in timings:
        rate = "{images_per_cpu_second:.0f} images/s of processor time, {drawn_per_cpu_second:.0f} for drawing alone"
        print(f"{case['size']} on {case['device']}: {rate.format(**case)}")


if __name__ == "__main__":
    main()
