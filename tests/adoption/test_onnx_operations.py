"""Every ONNX operation computes the same as onnx's own evaluator."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from unbraid.adoption.onnx_file import read_onnx
from unbraid.adoption.onnx_operations import OPERATIONS
from unbraid.adoption.tracing import trace_graph
from unbraid.errors import UserError
from unbraid.nets.graph import GraphNetwork

RANDOM = np.random.default_rng(0)
FLAT, IMAGE = (4, 6), (2, 4, 6, 6)


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def integers(*values: int) -> Any:
    return np.array(values, np.int64)


Case = tuple[tuple[int, ...], list[Any], dict[str, Any]]
"""The shape of the input, the other inputs (None is left out), and the attributes."""
CASES: dict[str, list[Case]] = {
    "Add": [(FLAT, [floats(6)], {})], "Sub": [(FLAT, [floats(4, 6)], {})], "Mul": [(FLAT, [floats(1)], {})],
    "Div": [(FLAT, [floats(6)], {})], "Pow": [(FLAT, [np.float32(2.0)], {})],
    "Max": [(FLAT, [floats(4, 6)], {})], "Min": [(FLAT, [floats(4, 6)], {})],
    **{name: [(FLAT, [], {})] for name in (
        "Abs", "Exp", "Log", "Sqrt", "Neg", "Reciprocal", "Erf", "Sin", "Cos", "Relu", "Sigmoid", "Tanh", "Softplus",
        "Selu", "Mish", "HardSwish", "Identity", "Softmax", "LeakyRelu", "Elu", "Gelu", "HardSigmoid", "Swish",
        "Dropout", "Flatten", "GlobalAveragePool", "Transpose",
    )},
    "LeakyRelu": [(FLAT, [], {}), (FLAT, [], {"alpha": 0.3})], "Elu": [(FLAT, [], {"alpha": 0.7})],
    "Gelu": [(FLAT, [], {}), (FLAT, [], {"approximate": "tanh"})], "Softmax": [(FLAT, [], {"axis": 0})],
    "PRelu": [(FLAT, [floats(6)], {})], "Clip": [(FLAT, [np.float32(-0.2), np.float32(0.4)], {})],
    "GlobalAveragePool": [(IMAGE, [], {})], "Flatten": [(IMAGE, [], {}), (IMAGE, [], {"axis": 2})],
    "Transpose": [(IMAGE, [], {"perm": [0, 2, 3, 1]}), (FLAT, [], {})],
    "Gemm": [(FLAT, [floats(6, 3), floats(3)], {"alpha": 2.0, "beta": 0.5}), (FLAT, [floats(3, 6)], {"transB": 1}),
             (FLAT, [floats(4, 3)], {"transA": 1})],
    "MatMul": [(FLAT, [floats(6, 3)], {})],
    "Conv": [(IMAGE, [floats(3, 4, 3, 3), floats(3)], {"strides": [2, 1], "pads": [1, 0, 1, 0]}),
             (IMAGE, [floats(4, 2, 3, 3)], {"group": 2, "dilations": [2, 1]})],
    "ConvTranspose": [(IMAGE, [floats(4, 3, 4, 4), floats(3)], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
                      (IMAGE, [floats(4, 1, 3, 3)], {"strides": [2, 2], "output_padding": [1, 1]})],
    "MaxPool": [(IMAGE, [], {"kernel_shape": [2, 2], "strides": [2, 2]})],
    "AveragePool": [(IMAGE, [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
                    (IMAGE, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1})],
    "BatchNormalization": [(IMAGE, [floats(4), floats(4), floats(4), floats(4) ** 2], {"epsilon": 1e-3})],
    "GroupNormalization": [(IMAGE, [floats(4), floats(4)], {"num_groups": 2})],
    "LayerNormalization": [(FLAT, [floats(6), floats(6)], {}), (IMAGE, [floats(6, 6)], {"axis": 2})],
    "InstanceNormalization": [(IMAGE, [floats(4), floats(4)], {})],
    "Reshape": [(IMAGE, [integers(0, -1)], {}), (IMAGE, [integers(-1, 9)], {})],
    "Squeeze": [((4, 1, 6, 1), [integers(1)], {}), ((4, 1, 6, 1), [], {})],
    "Unsqueeze": [(FLAT, [integers(0, 3)], {})], "Expand": [((4, 1), [integers(3, 1, 5)], {})],
    "Concat": [(FLAT, [floats(4, 2)], {"axis": 1})],
    "Split": [(FLAT, [integers(2, 4)], {"axis": 1}), (FLAT, [], {"axis": 1, "num_outputs": 2})],
    "Slice": [(IMAGE, [integers(1, -4), integers(3, -1), integers(1, 3)], {}),
              (FLAT, [integers(0), integers(2**62), integers(1), integers(2)], {})],
    "Gather": [(FLAT, [integers(2, 0, 1)], {"axis": 1}), (FLAT, [np.int64(1)], {}),
               (FLAT, [np.array([[0, 1], [2, 3]])], {"axis": 1})],
    "Cast": [(FLAT, [], {"to": TensorProto.DOUBLE})],
    "Resize": [(IMAGE, [None, np.array([1, 1, 2, 2], np.float32)],
                {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
               (IMAGE, [None, None, integers(2, 4, 12, 9)],
                {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
               (IMAGE, [None, None, integers(2, 4, 12, 9)],
                {"mode": "linear", "coordinate_transformation_mode": "align_corners"})],
    "Pad": [(IMAGE, [integers(0, 0, 1, 2, 0, 0, 0, 1), np.float32(0.5)], {}),
            (IMAGE, [integers(0, 0, 1, 2, 0, 0, 0, 1)], {"mode": "reflect"}),
            (IMAGE, [integers(0, 0, 1, 2, 0, 0, 0, 1)], {"mode": "edge"}),
            (IMAGE, [integers(1, 2), None, integers(3)], {})],
    "DepthToSpace": [(IMAGE, [], {"blocksize": 2, "mode": "CRD"})],
    "ReduceMean": [(IMAGE, [integers(2, 3)], {}), (FLAT, [], {"keepdims": 0})],
    "ReduceSum": [(IMAGE, [integers(1)], {"keepdims": 0})], "ReduceMax": [(IMAGE, [integers(-1)], {})],
}  # fmt: skip
SHAPES = ("Shape", "Constant", "ConstantOfShape")  # tested in a graph below
POSITIVE = ("Log", "Sqrt", "Reciprocal")
OUTPUTS = {"Split": 2}


def write_model(
    path: Path, nodes: list[Any], shape: tuple[int, ...], constants: dict[str, Any], outputs: list[str]
) -> Path:
    graph = helper.make_graph(
        nodes, "test", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    for value in graph.output:
        value.type.tensor_type.elem_type = TensorProto.FLOAT
        value.type.tensor_type.shape.SetInParent()
    version = 24 if any(node.op_type == "Swish" for node in nodes) else 21
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    path.write_bytes(model.SerializeToString())
    return path


def test_every_operation_has_a_case() -> None:
    assert set(CASES) | set(SHAPES) == set(OPERATIONS)


@pytest.mark.parametrize("name", CASES)
def test_an_operation_computes_the_same_as_the_evaluator_of_onnx(name: str, tmp_path: Path) -> None:
    for i, (shape, others, attributes) in enumerate(CASES[name]):
        constants = {f"c{j}": value for j, value in enumerate(others) if value is not None}
        inputs = [f"c{j}" if value is not None else "" for j, value in enumerate(others)]
        outputs = [f"y{j}" for j in range(OUTPUTS.get(name, 1))]
        nodes = [helper.make_node(name, ["p", *inputs], outputs, **attributes)]
        nodes.insert(0, helper.make_node("Exp" if name in POSITIVE else "Identity", ["x"], ["p"]))
        file = write_model(tmp_path / f"{i}.onnx", nodes, shape, constants, outputs)
        read_onnx(file)  # compares its outputs with those of onnx on random inputs


@pytest.mark.parametrize("constant", [False, True])
def test_scales_and_values_of_padding_are_known_when_a_model_is_traced(constant: bool, tmp_path: Path) -> None:
    numbers = {"scales": np.array([1, 1, 2, 2], np.float32), "value": np.array(0.5, np.float32)}
    given = [helper.make_node("Constant", [], [n], value=numpy_helper.from_array(v, n)) for n, v in numbers.items()]
    nodes = [
        *(given if constant else []),
        helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
        helper.make_node("Pad", ["y", "ends", "value"], ["z"]),
    ]
    stored = {"ends": integers(0, 0, 1, 1, 0, 0, 1, 1), **({} if constant else numbers)}
    shape: Any = ("n", 4, 6, 6)
    module = read_onnx(write_model(tmp_path / "a.onnx", nodes, shape, stored, ["z"]))
    graph, tensors = trace_graph(module, torch.rand(8, 4, 6, 6), "decoder")
    x = torch.rand(5, 4, 6, 6)
    torch.testing.assert_close(GraphNetwork(graph, tensors)(x), module(x))


def test_shapes_are_computed_from_the_batch_size(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(integers(0), "v")),
        helper.make_node("Unsqueeze", ["n", "one"], ["row"]),
        helper.make_node("Concat", ["row", "rest"], ["s"], axis=0),
        helper.make_node("Cast", ["s"], ["t"], to=TensorProto.INT64), helper.make_node("Reshape", ["x", "t"], ["y"]),
        helper.make_node("ConstantOfShape", ["t"], ["ones"], value=numpy_helper.from_array(floats(1), "w")),
        helper.make_node("Add", ["y", "ones"], ["z"]),
    ]  # fmt: skip
    constants = {"zero": np.int64(0), "rest": integers(2, 3)}
    read_onnx(write_model(tmp_path / "a.onnx", nodes, ("n", 6), constants, ["z"]))  # type: ignore[arg-type]


def test_models_that_cannot_be_run_are_refused(tmp_path: Path) -> None:
    unknown = [helper.make_node("Det", ["x"], ["y"])]
    with pytest.raises(UserError, match="operations that unbraid cannot run: Det"):
        read_onnx(write_model(tmp_path / "a.onnx", unknown, (2, 3, 3), {}, ["y"]))
    uneven = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[0, 0, 1, 1])]
    with pytest.raises(UserError, match="two ends of an axis"):
        read_onnx(write_model(tmp_path / "b.onnx", uneven, IMAGE, {"w": floats(3, 4, 3, 3)}, ["y"]))
    if importlib.util.find_spec("onnxruntime") is None:  # onnx's own evaluator cannot run this one
        grouped = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=2)]
        with pytest.raises(UserError, match="Install onnxruntime"):
            read_onnx(write_model(tmp_path / "d.onnx", grouped, IMAGE, {"w": floats(4, 1, 3, 3)}, ["y"]))
    product = [helper.make_node("MatMul", ["x", "w"], ["y"])]  # a damaged file may state another shape of the input
    with pytest.raises(UserError, match=r"An operation failed on an input of the shape \[2, 38\]"):
        read_onnx(write_model(tmp_path / "e.onnx", product, (2, 38), {"w": floats(16, 2)}, ["y"]))
    open_shape = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(UserError, match="must state the shape of one example"):
        read_onnx(write_model(tmp_path / "c.onnx", open_shape, ("n", "d"), {}, ["y"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "shape"), [(60, [6, 3]), (TensorProto.INT8, [6, 3]), (TensorProto.FLOAT, [1, 3])])
def test_weights_that_do_not_fit_their_type_are_refused(kind: int, shape: list[int], tmp_path: Path) -> None:
    """The package onnx raises a KeyError or a ValueError for such weights."""
    product = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = onnx.load(write_model(tmp_path / "a.onnx", product, FLAT, {"w": floats(6, 3)}, ["y"]))
    (weight,) = model.graph.initializer
    weight.data_type, weight.dims[:] = kind, shape
    onnx.save(model, tmp_path / "a.onnx")
    with pytest.raises(UserError, match=r"a\.onnx must have tensors and attributes that fit"):
        read_onnx(tmp_path / "a.onnx")


def test_a_difference_from_the_evaluator_of_onnx_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_model(tmp_path / "a.onnx", [helper.make_node("Relu", ["x"], ["y"])], FLAT, {}, ["y"])
    read_onnx(file)
    monkeypatch.setitem(OPERATIONS, "Relu", OPERATIONS["Neg"])
    with pytest.raises(UserError, match="computes differently"):
        read_onnx(file)


def write_external(folder: Path) -> tuple[Path, Any]:
    """Write a model that adds weights, which lie in the file w.bin, and return both."""
    folder.mkdir()
    w = floats(4, 6)
    file = write_model(folder / "a.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], FLAT, {"w": w}, ["y"])
    onnx.save(onnx.load(file), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    return file, w


@pytest.mark.parametrize("inside", [True, False])
def test_weights_in_another_file_are_read_from_the_folder_of_the_model(
    inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, w = write_external(tmp_path / "model")
    monkeypatch.chdir(file.parent if inside else tmp_path)
    torch.testing.assert_close(read_onnx(file)(torch.zeros(FLAT)), torch.from_numpy(w))
    (file.parent / "w.bin").unlink()
    with pytest.raises(UserError, match=r"has weights in the file 'w\.bin', which must lie in the same folder"):
        read_onnx(file)


@pytest.mark.parametrize("place", ["../w.bin", "{folder}/w.bin", "below/w.bin", "link.bin"])
def test_weights_elsewhere_are_not_read(place: str, tmp_path: Path) -> None:
    file, _ = write_external(tmp_path / "model")
    (tmp_path / "model" / "below").mkdir()
    for copy in (tmp_path / "w.bin", tmp_path / "model" / "below" / "w.bin"):
        copy.write_bytes((file.parent / "w.bin").read_bytes())
    (file.parent / "link.bin").symlink_to(tmp_path / "w.bin")
    model = onnx.load_from_string(file.read_bytes())
    next(entry for entry in model.graph.initializer[0].external_data if entry.key == "location").value = place.format(
        folder=tmp_path
    )
    file.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="which must lie in the same folder"):
        read_onnx(file)
