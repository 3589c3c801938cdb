"""Turns the exporter's graph into the model graph format (docs/formats.md) and writes the file."""

import gzip
import io
import json
import math
import os

import torch

from heterog.base.errors import unexpected
from heterog.base.files import put_in_place
from heterog.base.reading import MOST_GRAPH_BYTES, inflated_if_gzip, parse_json, read_bytes
from heterog.base.tensor_file import packed, read
from heterog.base.values import as_list, as_object, required
from heterog.export.graph.affine import Affine
from heterog.export.graph.ir import Scalar, Size, Step, Tensor, lies_row_by_row

FORMAT = "heterog-graph"
VERSION = 1


def to_graph(step: Step, header: dict) -> dict:
    """The plain dictionary that the file holds."""
    order = list(step.inputs)
    for op in step.ops:
        order.extend(output for output in op.outputs if output is not None)
    ids = {tensor: index for index, tensor in enumerate(order)}
    op_ids = {op: index for index, op in enumerate(step.ops)}
    graph = dict(header)
    graph["loss"] = ids[step.loss]
    graph["tensors"] = [_tensor(tensor, ids) for tensor in order]
    ops = []
    for op in step.ops:
        entry = {"name": op.name, "op": str(op.target), "phase": op.phase}
        if op.forward is not None:
            entry["forward"] = op_ids[op.forward]
        if op.scope:
            entry["scope"] = op.scope
        try:
            entry["args"] = [_argument(value, ids) for value in op.args]
        except (KeyError, TypeError) as error:
            raise unexpected(f"module {op.scope or op.phase}: {op.target}", error) from error
        kwargs = {
            key: _argument(value, ids)
            for key, value in op.kwargs.items()
            if not _is_default(key, value)
        }
        if kwargs:
            entry["kwargs"] = kwargs
        entry["outputs"] = [None if t is None else ids[t] for t in op.outputs]
        ops.append(entry)
    graph["ops"] = ops
    return graph


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_default(key: str, value) -> bool:
    """Keywords that say nothing: every tensor is strided, none is pinned."""
    return value is None or (key == "pin_memory" and not value) or value is torch.strided


def _dim(dim) -> object:
    return dim.text() if isinstance(dim, Affine) else dim


def _tensor(tensor: Tensor, ids: dict) -> dict:
    entry = {
        "name": tensor.name,
        "role": tensor.role,
        "dtype": dtype_name(tensor.dtype),
        "shape": [_dim(dim) for dim in tensor.shape],
    }
    if not lies_row_by_row(tensor):
        entry["strides"] = [_dim(stride) for stride in tensor.strides]
    if tensor.argument is not None:
        entry["argument"] = tensor.argument
    if tensor.of is not None:
        entry["of"] = ids[tensor.of]
    if tensor.replaces is not None:
        entry["replaces"] = ids[tensor.replaces]
    entry.update(tensor.hints)
    return entry


def _argument(value, ids: dict):
    if isinstance(value, Tensor):
        return f"%{ids[value]}"
    if isinstance(value, Size):
        return f"#{value.value.text()}"
    if isinstance(value, Scalar):
        return f"${value.value.text()}"
    if isinstance(value, (list, tuple)):
        return [_argument(item, ids) for item in value]
    if isinstance(value, torch.dtype):
        return f":{dtype_name(value)}"
    if isinstance(value, (torch.layout, torch.memory_format)):
        return f":{str(value).removeprefix('torch.')}"
    if isinstance(value, torch.device):
        return ":device"
    if isinstance(value, str):
        return f"'{value}"
    if isinstance(value, float) and not math.isfinite(value):
        return ":nan" if math.isnan(value) else (":inf" if value > 0 else ":-inf")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"argument of type {type(value).__name__}")


def to_text(graph: dict) -> str:
    """JSON with the header first, then one tensor or operator a line."""
    parts = []
    for key, value in graph.items():
        if key in ("tensors", "ops"):
            lines = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value)
            parts.append(f"{json.dumps(key)}: [\n  {lines}]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{" + ",\n ".join(parts) + "}\n"


def pack_graph(graph: dict) -> bytes:
    """What the file holds; the same graph gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as packed:
        packed.write(to_text(graph).encode())
    return buffer.getvalue()


def write_graph(graph: dict, path) -> None:
    """No reader ever sees half a file."""
    put_in_place(os.fspath(path), pack_graph(graph))


def constants_path(path) -> str:
    """Where constants lie that are too large for the graph at `path`: `gpt2.json.gz` has
    `gpt2.constants.safetensors`."""
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(folder, name.removesuffix(".gz").removesuffix(".json") + ".constants.safetensors")


def write_constants(graph: dict, constants: dict, path) -> None:
    """Those whose values are not in the graph itself, if there are any."""
    apart = {t["name"]: constants[t["name"]] for t in graph["tensors"] if _is_apart(t)}
    if apart:
        made = packed(apart, {"format": "heterog-constants"}, checksum=False)
        put_in_place(constants_path(path), bytes(made))


def read_constants(path) -> dict:
    """name → tensor of the constants beside the graph at `path`."""
    tensors = as_list(required(read_graph(path), "tensors", f"{path}"), f"{path}: tensors")
    if not any(_is_apart(as_object(t, f"{path}: tensors[{i}]")) for i, t in enumerate(tensors)):
        return {}
    return read(constants_path(path))[0]


def _is_apart(tensor: dict) -> bool:
    values = tensor.get("values")
    return tensor.get("role") == "buffer" and isinstance(values, dict) and "file" in values


def read_graph(path) -> dict:
    """The dictionary in a file that write_graph made."""
    text = inflated_if_gzip(read_bytes(path, MOST_GRAPH_BYTES), path)
    return as_object(parse_json(text, path), f"{path}")
