"""Pickles of arrays are read as Python's unpickler reads them. Nothing in a pickle is ever executed."""

from __future__ import annotations

import collections
import functools
import os
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.formats import pickle_bytes
from unbraid.data.readers.pickled import read_pickle
from unbraid.errors import UserError

SHARED = np.arange(6, dtype=np.int16).reshape(2, 3)
CONTENT: dict[Any, Any] = {
    "arrays": [
        SHARED,
        np.arange(12.0, dtype=">f4").reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.uint64).reshape(3, 4)),
        np.array([[True, False, True]]),
        np.array(2.5),
        np.zeros(3, np.int8),
        SHARED,
    ],
    "text": ["", "a", "ü" * 300],
    "numbers": (0, 1, -1, 255, 2**16, -(2**40), 2**100, 0.5, float("inf"), True, False, None),
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [[], {}, {1: ()}]),
    3: list(range(3000)),
}


def write_pickle(folder: Path, content: bytes) -> Path:
    (folder / "data.pickle").write_bytes(content)
    return folder / "data.pickle"


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        assert np.array_equal(found, expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize("published", [True, False], ids=["numpy.core", "numpy._core"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_data_are_read_as_pickle_reads_them(tmp_path: Path, protocol: int, published: bool) -> None:
    content = pickle_bytes(CONTENT, protocol, published)
    assert_same(read_pickle(write_pickle(tmp_path, content)), pickle.loads(pickle.dumps(CONTENT, protocol)))


def test_module_names_of_numpy_1_are_read_in_newer_protocols(tmp_path: Path) -> None:
    """In protocol 4 and 5, names have a length. The frames, whose lengths are then wrong, are ignored."""
    for protocol, module in ((4, b"multiarray"), (5, b"numeric")):
        new, old = b"numpy._core." + module, b"numpy.core." + module
        content = pickle.dumps([SHARED], protocol)
        assert bytes([0x8C, len(new)]) + new in content
        content = content.replace(bytes([len(new)]) + new, bytes([len(old)]) + old)
        assert_same(read_pickle(write_pickle(tmp_path, content)), [SHARED])


def test_an_array_that_occurs_twice_is_read_once(tmp_path: Path) -> None:
    found: Any = read_pickle(write_pickle(tmp_path, pickle_bytes(CONTENT)))
    assert found["arrays"][0] is found["arrays"][-1]
    assert not found["arrays"][0].flags.writeable


class Calls:
    """An object whose pickle calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


class Plain:
    """A class whose instances a pickle builds without calling a function of the test."""

    value = 1


def text(words: str) -> bytes:
    """Return the instruction that pushes text."""
    return b"\x8c" + bytes([len(words)]) + words.encode()


def hostile(marker: Path) -> dict[str, bytes]:
    """Return pickles that create the file `marker`, call or build something, or hold something that is not data."""
    system = f"cos\nsystem\n(S'touch {marker}'\n"
    command = f"touch {marker}"
    array = pickle.dumps(SHARED, 3)
    return {
        "system": pickle.dumps(Calls(os.system, command)),
        "system in a list": pickle.dumps([1, {"pedestrians": [Calls(os.system, command)]}], 4),
        "system as text": f"{system}tR.".encode(),
        "system as instance": f"(S'touch {marker}'\nios\nsystem\n.".encode(),
        "system as object": f"(cos\nsystem\nS'touch {marker}'\no.".encode(),
        "system by parts": b"\x80\x04" + text("os") + text("system") + b"\x93" + text(command) + b"\x85R.",
        "system by new object": b"\x80\x02cos\nsystem\n" + text(command) + b"\x85\x81.",
        "open": pickle.dumps(Calls(open, str(marker), "w")),
        "eval": pickle.dumps(Calls(eval, f"__import__('pathlib').Path({str(marker)!r}).touch()")),
        "import": pickle.dumps(Calls(__import__, "antigravity")),
        "attribute": pickle.dumps(Calls(getattr, 1, "real")),
        "partial": pickle.dumps(functools.partial(os.system, command)),
        "array of objects": pickle.dumps(np.array([Calls(os.system, command)], dtype=object)),
        "load of numpy": pickle.dumps(Calls(np.load, str(marker), None, True)),
        "instance": pickle.dumps(Plain()),
        "class": pickle.dumps(Plain),
        "function without a call": pickle.dumps(os.system),
        "persistent id": b"\x80\x02Pmarker\n.",
        "extension": b"\x80\x02\x82\x01.",
        "set": pickle.dumps({1, 2}),
        "ordered dictionary": pickle.dumps(collections.OrderedDict(a=1)),
        "scalar of numpy": pickle.dumps(np.float32(1)),
        "array of text": pickle.dumps(np.array(["a"])),
        "array of dates": pickle.dumps(np.array(["2020-01-01"], "M8[D]")),
        "array with fields": pickle.dumps(np.zeros(1, [("a", "i4")])),
        "masked array": pickle.dumps(np.ma.array([1], mask=[True])),
        "matrix": pickle.dumps(np.array([[1]]).view(np.matrix)),
        "array of another type": array.replace(b"cnumpy\nndarray", b"cnumpy\ndtype"),
        "state of a number": b"\x80\x02K\x01K\x02b.",
        "buffer outside": b"\x80\x05\x97.",
    }


@pytest.mark.parametrize("case", hostile(Path("marker")))
def test_anything_else_is_refused_and_not_executed(tmp_path: Path, case: str) -> None:
    marker = tmp_path / "marker"
    path = write_pickle(tmp_path, hostile(marker)[case])
    with pytest.raises(UserError, match=r"data\.pickle must"):
        read_pickle(path)
    assert not marker.exists()


def test_the_attacks_would_work_with_pickle(tmp_path: Path) -> None:
    """Some of the cases above create the file when Python's unpickler reads them."""
    for i, case in enumerate(("system", "system in a list", "system as text", "system by parts", "eval")):
        pickle.loads(hostile(tmp_path / str(i))[case])
        assert (tmp_path / str(i)).exists(), case


def test_the_message_names_what_was_found(tmp_path: Path) -> None:
    path = write_pickle(tmp_path, hostile(tmp_path / "x")["eval"])
    with pytest.raises(
        UserError, match=r"only numbers, text.*Got the name 'builtins eval'.*Nothing in the file was ex"
    ):
        read_pickle(path)


def array_pickle(shape: bytes, dtype: bytes = b"\x8c\x02u1", data: bytes = b"abcd") -> bytes:
    """Return a pickle of an array whose shape, number type and bytes are given as instructions or bytes."""
    kind = b"cnumpy\ndtype\n" + dtype + b"\x89\x88\x87R(K\x03\x8c\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    return b"\x80\x03" + empty + b"(K\x01" + shape + kind + b"\x89C" + bytes([len(data)]) + data + b"tb."


def test_the_array_of_the_next_test_is_valid(tmp_path: Path) -> None:
    content = array_pickle(b"K\x02K\x02\x86")
    assert np.array_equal(pickle.loads(content), [[97, 98], [99, 100]])
    assert_same(read_pickle(write_pickle(tmp_path, content)), pickle.loads(content))


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "Reading it failed"),
    "text": (b"<html>not a pickle</html>", "must be a complete pickle file|must contain only"),
    "cut": (pickle_bytes([SHARED])[:-20], "Reading it failed"),
    "without an end": (pickle_bytes([SHARED])[:-1], "Reading it failed"),
    "longer": (pickle_bytes([SHARED]) + b"\0", "more bytes after the end"),
    "nothing": (b"\x80\x02.", "0 objects"),
    "two objects": (b"\x80\x02K\x01K\x02.", "2 objects"),
    "a place of the memo that is empty": (b"\x80\x02h\x05.", "its structure is not valid"),
    "no mark": (b"\x80\x02K\x01t.", "its structure is not valid"),
    "items for a number": (b"\x80\x02K\x01K\x02a.", "type int in the place"),
    "a key without a value": (b"\x80\x02}(K\x01u.", "keys"),
    "a key that is a tuple": (b"\x80\x02}(" + b")" + b"\x85" * 100_000 + b"K\x01u.", "keys"),
    "fewer bytes than the shape": (array_pickle(b"K\x05\x85"), r"\(5,\) with 4 bytes"),
    "a negative shape": (array_pickle(b"J\xff\xff\xff\xffJ\xfc\xff\xff\xff\x86"), "shape is not valid"),
    "a shape of text": (array_pickle(b"\x8c\x01a\x85"), "shape is not valid"),
    "a number type that does not exist": (array_pickle(b"K\x04\x85", b"\x8c\x02f1"), "structure is not valid"),
    "objects": (array_pickle(b"K\x04\x85", b"\x8c\x02O8"), "other arguments of the function for number type"),
    "bytes of a length that no file has": (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"a.", "Reading it failed"),
    "text of a length that no file has": (b"\x80\x04X" + struct.pack("<I", 2**32 - 1) + b"a.", "Reading it failed"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_pickles_are_refused(tmp_path: Path, case: str) -> None:
    content, message = DAMAGED[case]
    with pytest.raises(UserError, match=message):
        read_pickle(write_pickle(tmp_path, content))


def test_random_damage_is_a_user_error_or_changes_data_only(tmp_path: Path) -> None:
    draw, content = random.Random(0), pickle_bytes(CONTENT)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(900)] = draw.randrange(256)
        try:
            read_pickle(write_pickle(tmp_path, bytes(changed)))
        except UserError:
            refused += 1
    assert 50 < refused < 300


def test_deeply_nested_containers_do_not_end_the_process(tmp_path: Path) -> None:
    found: Any = read_pickle(write_pickle(tmp_path, b"\x80\x02)" + b"\x85" * 200_000 + b"."))
    depth = 0
    while found:
        (found,), depth = found, depth + 1
    assert depth == 200_000


def test_a_pickle_of_python_2_is_refused(tmp_path: Path) -> None:
    """The strings of Python 2 may be text or bytes, which only the reader of the file could know."""
    with pytest.raises(UserError, match="Got the instruction SHORT_BINSTRING"):
        read_pickle(write_pickle(tmp_path, b"\x80\x02U\x01a."))
