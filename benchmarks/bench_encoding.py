"""The time to encode a dataset with every run of a stack on a GPU, at once and one run after another.

Run: python benchmarks/bench_encoding.py [--data dsprites --runs 64]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import unbraid as ub
from machine import describe
from unbraid.data import load
from unbraid.scoring.encoding import encode_stack, encode_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="dsprites")
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bench_encoding.json")
    options = parser.parse_args()
    data = load(options.data, device="cuda")
    runs = ub.train(ub.methods.BetaVAE(), data, seeds=range(options.runs), steps=2, device="cuda", quiet=True)
    index = torch.arange(len(data), device="cuda")
    encode_stack(runs, data, index[:20_000])
    encode_table(runs[0], data, index[:20_000])
    seconds = {}
    for name, members in (("together", runs), ("alone", runs[:1])):
        torch.cuda.synchronize()
        started = time.perf_counter()
        if name == "together":
            encode_stack(members, data, index)
        else:
            encode_table(members[0], data, index)
        torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - started
        rate = len(members) * len(data) / seconds[name]
        print(f"{len(members)} runs x {len(data):,} images {name}: {seconds[name]:.2f} s, {rate:,.0f} encodings/s")
    ratio = options.runs * seconds["alone"] / seconds["together"]
    print(f"a stack of {options.runs} runs is {ratio:.1f} times as fast as its runs one after another")
    content = {**describe(), "data": options.data, "runs": options.runs, "images": len(data), "seconds": seconds,
               "times_in_turn": ratio}  # fmt: skip
    options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
