"""Traces a step under what Python may decide while it runs; where that matters, the step is refused."""

from dataclasses import replace

import sympy
import torch

from heterog.base.errors import ExportError
from heterog.export.graph.diagnosis import place_of
from heterog.export.graph.known_batches import Range, conditions_of, ranges
from heterog.export.graph.recorder import Recorder
from heterog.export.operators.dropout import RATES
from heterog.export.tracing.assertions import Answers, DataDependentQuestion, settle
from heterog.export.tracing.data_dependent import OpenDecision
from heterog.export.tracing.symbolic_batch import symbolic_batch
from heterog.export.tracing.trace import How, Trace, TraceCall, WithoutGradient, same_trace, trace_once


def trace_gradients(call: TraceCall) -> Trace:
    """Loss, gradients and next buffers at one batch size.

    Models that are told that they are traced leave out shortcuts that read values; some then do what
    they do not in training, so where that stops they are not told.
    """
    try:
        return _any_outcome(call, compiling=True)
    except ExportError as error:
        if error.__cause__ is None:  # the exporter's own rules, not where the model stopped
            raise
        try:
            return _any_outcome(call, compiling=False)
        except ExportError:
            raise error from error.__cause__


def known_batches(traces: list[Trace], samples: list[tuple], call: TraceCall) -> list[Range]:
    """For which batches the graph that was made of the traces holds; `call`: as the last of them."""
    traced = tuple(trace.batch for trace in traces)
    batch = symbolic_batch(traced, samples, call.batch)
    if batch is None:
        return ranges([sympy.false], sympy.Symbol("B"), traced)
    how = replace(traces[-1].how, symbolic=batch, answers=_again(traces[-1].how.answers))
    try:
        with torch.random.fork_rng(devices=[]):
            trace = trace_once(call, Recorder(), how)
        found = conditions_of(traced, [each.raw for each in traces], trace.graph)
    except Exception:
        # What a model does with a size that is a symbol is its own; nothing follows from it then.
        found = {sympy.false}
    return ranges([*batch.conditions(), *found], batch.symbol, traced)


def second_alike(trace: Trace, call: TraceCall) -> bool | None:
    """Whether a step after another one runs the same operators, with the same numbers: what forward
    keeps in attributes is no part of the graph. None: where the step asks about data, that is not
    tried."""
    if trace.how.answers is not None:
        return None
    try:
        return same_trace(trace, trace_once(call, Recorder(), replace(trace.how, second=True)))
    except ExportError:
        return None


def _again(answers: Answers | None) -> Answers | None:
    """The same answers, to be given from the first question on."""
    return None if answers is None else Answers(list(answers.given or []))


def _any_outcome(call: TraceCall, compiling: bool) -> Trace:
    """Where Python branches on a random number, both ways are traced; they must run the same."""
    recorder = Recorder()

    def trace(answers: Answers | None) -> Trace:
        nonlocal recorder
        recorder = Recorder()
        return trace_once(call, recorder, How(answers=answers, compiling=compiling))

    try:
        return _any_answers(trace)
    except OpenDecision as decision:
        model = call.spec.model
        where, module = place_of(decision, recorder, model)
        refusal = ExportError(
            f"{where}: a branch on a random number decides which operators a step runs; set "
            f"{_rate_of(model, module)} to 0, or put the module in eval()"
        )
    ways, without = [], []
    for outcome in (False, True):
        try:
            ways.append(trace_once(call, Recorder(), How(outcome, compiling=compiling)))
        except WithoutGradient as found:
            without.append(found)
        except ExportError as error:
            raise refusal from error
    if len(without) == 2 and without[0].names == without[1].names:
        raise without[0]  # the same parameters either way: the step leaves them as they are
    if without or not same_trace(*ways):
        raise refusal
    return ways[0]


def _any_answers(trace) -> Trace:
    """Questions about data are answered both ways."""
    try:
        return trace(None)
    except ExportError as error:
        if not isinstance(error.__cause__, DataDependentQuestion):
            raise
        asked = error
    try:
        return settle(trace, same_trace)
    except DataDependentQuestion:
        raise asked from None


def _rate_of(model: torch.nn.Module, path: str) -> str:
    """The setting of a module, or of the nearest one around it, that looks like such a rate."""
    while True:
        module = model.get_submodule(path)
        for place in (module, getattr(module, "config", None)):
            for name in RATES:
                value = getattr(place, name, None)
                if isinstance(value, float) and value > 0:
                    return f"{name} of {type(module).__name__} (now {value})"
        if not path:
            return "its rate"
        path = path.rpartition(".")[0]
