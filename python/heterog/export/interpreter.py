"""Runs an exported graph operator by operator: the plain reference for everything that executes it."""

import re
from dataclasses import dataclass

import torch

from heterog.export.operators import attention_reference, half_softmax
from heterog.export.optimizer import fused_update

_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?)"
_AFFINE = re.compile(rf"(?P<a>{_NUMBER})?B(?P<c>[+-]{_NUMBER.removeprefix('[+-]?')})?")


def _number(text: str) -> int | float:
    return float(text) if re.search(r"[.eE]", text) else int(text)


def evaluate(text: str, batch: int) -> int | float:
    """The value of `4B+1`, `B`, `1/4B`, `0.5/4B+2` at a batch size."""
    if "/" in text:
        above, below = text.split("/")
        return _number(above) / evaluate(below, batch)
    match = _AFFINE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form aB+c")
    return _number(match["a"] or "1") * batch + _number(match["c"] or "0")


def dimension(dim: int | str, batch: int) -> int:
    return evaluate(dim, batch) if isinstance(dim, str) else dim


def shape_of(tensor: dict, batch: int) -> list[int]:
    """The shape of a graph's tensor at a batch size."""
    return [dimension(dim, batch) for dim in tensor["shape"]]


def strides_of(tensor: dict, batch: int) -> list[int]:
    """Its strides, row-major where the file says nothing."""
    if "strides" in tensor:
        return [dimension(stride, batch) for stride in tensor["strides"]]
    strides, running = [], 1
    for size in reversed(shape_of(tensor, batch)):
        strides.append(running)
        running *= max(size, 1)
    return strides[::-1]


def dtype_of(tensor: dict) -> torch.dtype:
    return getattr(torch, tensor["dtype"])


_WORDS = {
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
    "strided": torch.strided,
    "contiguous_format": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
    "preserve_format": torch.preserve_format,
}


@dataclass(frozen=True)
class Setting:
    """What a graph leaves open: the samples at hand, those of the whole batch, the device."""

    batch: int
    whole: int
    device: torch.device


def resolve(argument, values: list, setting: Setting):
    """What an operator is called with in place of an argument of the file."""
    if isinstance(argument, list):
        return [resolve(item, values, setting) for item in argument]
    if not isinstance(argument, str):
        return argument
    mark, rest = argument[0], argument[1:]
    if mark == "%":
        return values[int(rest)]
    if mark == "#":
        return evaluate(rest, setting.batch)
    if mark == "$":
        return evaluate(rest, setting.whole)
    if mark == "'":
        return rest
    if rest == "device":
        return setting.device
    return _WORDS[rest] if rest in _WORDS else getattr(torch, rest)


def operator_of(name: str) -> torch._ops.OpOverload:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


# A kernel may leave its result in another order in memory than it had in the trace.
_VIEWS = dict.fromkeys(
    ("aten.view.default", "aten._unsafe_view.default"), torch.ops.aten.reshape.default
)


def run(
    graph: dict, values: dict, batch: int, *, whole=None, device="cpu", observe=None, instead=None,
    go_on_with=None,
) -> list:  # fmt: skip
    """Executes one step. `values`: name → tensor for every tensor that no operator makes.

    `whole`: samples of the whole batch where this is a slice of it. Returns all tensors by id.
    `observe(tensor_id, value)` sees each one that an operator makes. `instead`: functions by the
    names of the operators in whose place they run. `go_on_with`: tensors by id that take the place
    of what an operator has made, once it has been observed.
    """
    own = attention_reference.operators(attention_reference.drawn)
    own |= fused_update.operators() | half_softmax.operators() | _VIEWS
    instead = own | (instead or {})
    setting = Setting(batch, whole or batch, torch.device(device))
    tensors: list = [values.get(entry["name"]) for entry in graph["tensors"]]
    with torch.no_grad():
        for op in graph["ops"]:
            args = resolve(op["args"], tensors, setting)
            kwargs = {k: resolve(v, tensors, setting) for k, v in op.get("kwargs", {}).items()}
            operator = instead.get(op["op"]) or operator_of(op["op"])
            results = operator(*args, **kwargs)
            if isinstance(results, torch.Tensor):
                results = [results]
            for tensor_id, value in zip(op["outputs"], results, strict=True):
                if tensor_id is not None:
                    tensors[tensor_id] = value
                    if observe is not None:
                        observe(tensor_id, value)
                    if go_on_with is not None and tensor_id in go_on_with:
                        tensors[tensor_id] = go_on_with[tensor_id]
    return tensors


def initial_values(graph: dict, model_values: dict) -> dict:
    """name → tensor: parameters from the model, buffers from it or the file, optimizer state as it
    is before the first step."""
    values = {}
    for entry in graph["tensors"]:
        name = entry["name"]
        if entry["role"] == "optimizer_state":
            values[name] = state_from_file(entry)
        elif entry["role"] in ("parameter", "buffer"):
            if name in model_values:
                values[name] = model_values[name].detach().clone().to(dtype_of(entry))
            else:
                values[name] = buffer_from_file(entry)
    return values


def state_from_file(entry: dict) -> torch.Tensor:
    """Optimizer state before the first step: zeros, unless its `values` say otherwise."""
    return buffer_from_file(entry | {"values": entry.get("values", {"fill": 0})})


def buffer_from_file(entry: dict) -> torch.Tensor:
    """The tensor that the field `values` of a buffer describes."""
    hint = entry.get("values")
    if hint is None:
        raise ValueError(f"buffer {entry['name']}: the file does not say what it holds")
    if "file" in hint:
        raise ValueError(f"buffer {entry['name']}: its values are in the file of constants beside the "
                         "graph; pass what heterog.writer.read_constants reads")  # fmt: skip
    shape, dtype = shape_of(entry, 0), dtype_of(entry)
    if "fill" in hint:
        return torch.full(shape, _value(hint["fill"]), dtype=dtype)
    if "list" in hint:
        return torch.tensor([_value(v) for v in hint["list"]], dtype=dtype).reshape(shape)
    row = hint["start"] + hint["step"] * torch.arange(shape[-1])
    return row.to(dtype).expand(shape).clone()


def _value(value):
    return _WORDS[value[1:]] if isinstance(value, str) else value


def settings_of(graph: dict) -> dict[str, int]:
    """What the program sets at every step, `lr`, `momentum` and `step` → place of the tensor."""
    places = {t["name"]: i for i, t in enumerate(graph["tensors"]) if t["role"] == "input"}
    # Older files have the bare names.
    prefix = "optimizer/" if "optimizer/lr" in places else ""
    known = ("lr", "momentum", "step") if prefix else ("lr", "step")
    return {s: places[prefix + s] for s in known if prefix + s in places}


def data_inputs(graph: dict) -> dict[str, int]:
    """The arguments of loss_fn that the step reads → place of the tensor."""
    settings = set(settings_of(graph).values())
    return {
        t.get("argument", t["name"]): i
        for i, t in enumerate(graph["tensors"])
        if t["role"] == "input" and i not in settings
    }


def given_values(
    graph: dict, values: dict, inputs: dict, *, lr: float, step: int, momentum: float | None = None
) -> dict:
    """name → tensor for all that a step starts from. `values`: parameters, buffers and optimizer
    state by name; `inputs`: by the arguments of loss_fn."""
    tensors = graph["tensors"]
    given = dict(values)
    for argument, place in data_inputs(graph).items():
        given[tensors[place]["name"]] = inputs[argument]
    settings = {"lr": lr, "momentum": momentum, "step": float(step)}
    for setting, place in settings_of(graph).items():
        given[tensors[place]["name"]] = torch.tensor(settings[setting], dtype=torch.float64)
    return given


def run_step(
    graph: dict, values: dict, inputs: dict, batch: int, *, lr: float, step: int, momentum=None
):
    """One step from `values`; returns (loss, next values). `momentum`: where it is an input."""
    given = given_values(graph, values, inputs, lr=lr, step=step, momentum=momentum)
    tensors = run(graph, given, batch)
    following = dict(values)
    for tensor, entry in zip(tensors, graph["tensors"], strict=True):
        if "replaces" in entry:
            following[graph["tensors"][entry["replaces"]]["name"]] = tensor
    return tensors[graph["loss"]], following
