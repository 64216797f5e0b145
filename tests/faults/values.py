"""Values for flags and positional arguments that a user could type by mistake or by malice."""

from __future__ import annotations

import argparse
from random import Random

from faults.exemptions import ENDLESS_FLAGS
from unbraid.metrics import METRICS

NUMBERS = (
    "-1", "0", "1", "2", "1.5", "-0.0", "nan", "inf", "-inf", "1e999", "1e-400", "0x10", "1_0", "٣", "²",
    str(2**31), str(2**32), str(2**53), str(2**63 - 1), str(2**63), str(2**64), "1" + 30 * "0", 400 * "9", 5000 * "9",
    "1e308", "-1e308", "1e18", "1,2", "1,,2", "0-1", "5-1", "0-99999999999", "-3-5", "0:1:2", "0:1:99999999999",
    "nan:1:2", ":", "::", "1/1", "3/3", "0/0", "1/0", "1/9999999999", "-1/2", "/", "3/",
)  # fmt: skip
TEXTS = (
    "", " ", "-", "--", "---", "=", ",", ",,", "a", "\udcff", "a\nb", "\x07", "%s", "{0}", "*", "~", "'", '"', "\\",
    "é", "你好", "a=b", "=b", "a=", "a=1,2", "data=toy", "level=0", "None", "null", "true", "[]", "{}", "x" * 300,
    "toy", "toy?", "toy?a=1", "toy?part=", "sprites?noise=nan", "sprites?noise=-1", "sprites?modified=missing",
    "?", "?=", "~nobody_has_this_name",
    "mig", "mig,sap", "mig,mig", "none", "+mig", "os:system", "os.path:join", "no_module:f", ":", "module:", "vae",
    "cpu", "cuda", "cuda:99", "meta", "mps", "cpu:1", "http://", "file:///etc/hostname", "http://127.0.0.1:9/",
    "locatello",
    *METRICS,
)  # fmt: skip
PATHS = (
    ".", "..", "/", "missing", "missing/deeper", "plain", "plain/deeper", "fifo", "loop", "empty", "/dev/null",
    "/dev/zero", "/dev/full", "runs", "runs/", "./runs", "others", "partial", "published", "codes.npy", "factors.npy",
    "factors.csv", "arrays.npz", "images", "study.toml", "study.json", "results.csv", "runs/results.sqlite", "RUN",
    "RUN/run.json", "zero", "x" * 200, 50 * "d/",
)  # fmt: skip
"""Paths in the folder of a case. `bad_input.add_odd_files` writes the odd ones."""
FEW = ("-1", "0", "1", "2", "1.5", "nan", "", "--", "a", "-inf", str(2**63), 400 * "9", "0x10")


def choose_value(random: Random, action: argparse.Action | None) -> str:
    """Return a value for a flag, or for a positional argument if `action` is None."""
    if action is not None and action.dest in ENDLESS_FLAGS:
        return random.choice(FEW)
    pools = [NUMBERS, TEXTS, PATHS]
    if action is not None and action.choices and random.random() < 0.5:
        return str(random.choice(list(action.choices)))
    numeric = action is not None and not isinstance(action.default, str | list) and random.random() < 0.5
    return random.choice(NUMBERS if numeric else random.choice(pools))
