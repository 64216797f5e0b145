"""Everything that the campaign does not count as a fault or does not try, each with its reason.

No other module of the campaign has an exception of its own.
"""

from __future__ import annotations

import signal

STATUS_ONE = {"reproduce": "published results that differ from ours are its answer, not an error"}
"""Commands that may end with status 1."""

REWRITTEN = {
    ".sqlite": "commands that read runs write the results table again, and every content of it can be written again",
    ".lock": "a lock file is empty and stays",
}
"""Endings of the names of files that a failing command may replace."""

ENDLESS_FLAGS = {
    "steps": "a large number of steps is valid and only takes long",
    "checkpoint_every": "a large number of steps is valid and only takes long",
}
"""Flags for which no large values are generated."""

ENDLESS_KEYS = {"steps": "a large number of steps is valid and only takes long"}
"""Keys of JSON files for which no large values are generated."""

QUOTED = {
    r"'[^']*'|\"[^\"]*\"": "a quoted value or path is the user's own text, which may contain any words",
    "invalid literal/length": "zlib describes a damaged file with these words, and int() with similar ones",
}
"""Patterns of text that is removed from a message before it is searched for the words of a disguised error."""

ENDED_BY_SIGNAL = {
    signal.SIGKILL: {-signal.SIGKILL},
    signal.SIGTERM: {-signal.SIGTERM},
    signal.SIGINT: {130},
    signal.SIGSTOP: set[int](),
}
"""The exit statuses, in addition to 0, of a command that has received a signal. Any other status is a fault."""

EARLY_READERS = {
    "score": "the folder has no finished run yet",
    "report": "the folder has no finished run yet",
    "index": "the folder has no runs yet",
    "share": "the folder has no finished run yet",
}
"""Commands that may end with status 2 while another command creates the runs that they read, and why."""

BUSY = {"train": "Another process is training in "}
"""Commands that may end with status 2 and this message while the same command runs in the same folder.

Only one process trains in a folder; several processes share the work with `unbraid study`.
"""
