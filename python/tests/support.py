"""Runs an exported step beside the same step in eager PyTorch and compares everything."""

import contextlib
import copy
from dataclasses import dataclass, field

import torch

import heterog
from heterog.export import interpreter
from heterog.export.interpreter import dtype_of, initial_values, run, run_step, shape_of, strides_of
from heterog.export.operators.autocast import autocast
from heterog.export.operators.dropout import without_dropout

BATCH = 7  # none of the traced ones


@dataclass
class Case:
    """One training step. `model` builds the module; called again, it builds the same one."""

    model: object
    make_inputs: object
    loss_fn: object
    optimizer: object = field(
        default_factory=lambda: lambda params: torch.optim.SGD(params, lr=0.1)
    )
    options: dict = field(default_factory=dict)


def build(case: Case) -> torch.nn.Module:
    torch.manual_seed(3)
    model = case.model()
    return model.double() if case.options.get("double") else model


def export(case: Case) -> dict:
    step = heterog.export_training_step(
        case.model, case.make_inputs, case.loss_fn, case.optimizer, "case", **case.options
    )
    return step.graph


def inputs_of(graph: dict, case: Case, batch: int = BATCH, seed: int = 5) -> dict:
    torch.manual_seed(seed)
    tensors = case.make_inputs(batch)
    if case.options.get("double"):
        tensors = [t.double() if t.is_floating_point() else t for t in tensors]
    return dict(zip(input_names(graph), tensors, strict=True))


def input_names(graph: dict) -> list[str]:
    return list(interpreter.data_inputs(graph))


def state_of(model: torch.nn.Module) -> dict:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def given_values(graph: dict, model: torch.nn.Module, inputs: dict, lr: float = 0.1) -> dict:
    """All that the first step starts from."""
    values = initial_values(graph, state_of(model))
    return interpreter.given_values(graph, values, inputs, lr=lr, step=1)


def compare_narrow(case: Case, loss_tolerance: float, rtol: float, atol: float) -> dict:
    """Checks loss and gradients of a step under autocast, at batch 7, and the type of every tensor."""
    graph = export(case)
    model, inputs = build(case), inputs_of(graph, case)
    tensors = run(graph, given_values(graph, model, inputs), BATCH)
    with autocast(getattr(torch, case.options["autocast"])):
        loss = case.loss_fn(model, *inputs.values())
    loss.backward()
    assert torch.allclose(tensors[graph["loss"]], loss, rtol=loss_tolerance)
    for tensor, entry in zip(tensors, graph["tensors"], strict=True):
        assert str(tensor.dtype) == "torch." + entry["dtype"], entry
        if entry["role"] == "gradient":
            name = graph["tensors"][entry["of"]]["name"]
            assert torch.allclose(tensor, model.get_parameter(name).grad, rtol=rtol, atol=atol), name
    return graph


def compare(case: Case, tolerance: float = 1e-12) -> dict:
    """Checks loss, gradients, parameters, buffers, and the type of every tensor, at batch 7."""
    graph = export(case)
    model = build(case)
    inputs = inputs_of(graph, case)
    checked = set()

    def observe(tensor_id, value):
        entry = graph["tensors"][tensor_id]
        assert list(value.shape) == shape_of(entry, BATCH), entry
        assert value.dtype == dtype_of(entry), entry
        expected = zip(value.stride(), strides_of(entry, BATCH), value.shape, strict=True)
        assert all(s == e for s, e, size in expected if size != 1), (entry, value.stride())
        checked.add(tensor_id)

    eager = build(case)
    optimizer = case.optimizer(list(eager.parameters()))
    values = given_values(graph, model, inputs, optimizer.param_groups[0]["lr"])
    tensors = run(graph, values, BATCH, observe=observe)
    made = {t for op in graph["ops"] for t in op["outputs"] if t is not None}
    assert checked == made

    off = case.options.get("dropout") is False
    with without_dropout(eager) if off else contextlib.nullcontext():
        loss = case.loss_fn(eager, *inputs.values())
    loss.backward()
    close(tensors[graph["loss"]], loss, tolerance, "loss")
    parameters = dict(eager.named_parameters())
    seen = set()
    for tensor, entry in zip(tensors, graph["tensors"], strict=True):
        if entry["role"] == "gradient":
            name = graph["tensors"][entry["of"]]["name"]
            close(tensor, parameters[name].grad, tolerance, f"gradient of {name}")
            seen.add(name)
    assert seen == {name for name, p in parameters.items() if p.requires_grad}
    optimizer.step()
    for tensor, entry in zip(tensors, graph["tensors"], strict=True):
        if "replaces" in entry:
            name = graph["tensors"][entry["replaces"]]["name"]
            if name in state_of(eager):
                close(tensor, state_of(eager)[name], tolerance, f"next {name}")
                seen.discard(name)
    assert not seen, "parameters without a next value"
    return graph


@contextlib.contextmanager
def default_dtype(case: Case):
    """State without dimensions has it: with `double`, as everything, float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if case.options.get("double") else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def compare_steps(case: Case, steps: int = 5, tolerance: float = 1e-12, clip=None) -> dict:
    """Checks that several steps, state carried on, equal eager torch.optim."""
    graph = export(case)
    with default_dtype(case):
        _compare_steps(graph, case, steps, tolerance, clip)
    return graph


def _compare_steps(graph: dict, case: Case, steps: int, tolerance: float, clip) -> None:
    eager = build(case)
    optimizer = case.optimizer(list(eager.parameters()))
    lr = float(optimizer.param_groups[0]["lr"])
    values = initial_values(graph, state_of(build(case)))
    before = copy.deepcopy(state_of(eager))
    for number in range(1, steps + 1):
        inputs = inputs_of(graph, case, seed=number)
        loss, values = run_step(graph, values, inputs, BATCH, lr=lr, step=number)
        optimizer.zero_grad()
        expected = case.loss_fn(eager, *inputs.values())
        expected.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(eager.parameters(), clip)
        optimizer.step()
        close(loss, expected, tolerance, f"loss of step {number}")
        for name, tensor in state_of(eager).items():
            # What the graph leaves out stays as it was.
            close(values.get(name, before[name]), tensor, tolerance, f"{name} after step {number}")
    moved = [n for n, t in eager.named_parameters() if not torch.equal(t, before[n])]
    assert moved == [n for n, t in eager.named_parameters() if t.requires_grad]


def close(actual, expected, tolerance: float, what: str) -> None:
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    scale = max(1.0, expected.abs().max().item())
    error = (actual.double() - expected.detach().double()).abs().max().item()
    assert error <= tolerance * scale, f"{what}: off by {error}"


def operators(graph: dict) -> set[str]:
    return {op["op"] for op in graph["ops"]}
