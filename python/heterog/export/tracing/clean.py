"""Drops what only copies, ties backward operators to forward ones, names what the step leaves."""

import torch

from heterog.export.graph.ir import Op, Step, Tensor, replace_tensors, tensors_in
from heterog.export.graph.outputs import name_in_graph
from heterog.export.graph.refusals import check_buffers, check_written
from heterog.export.operators.creation import drop_empty_parts, say_sizes
from heterog.export.operators.draws import check_random, drop_generators, share_recomputed
from heterog.export.operators.half_softmax import join_casts
from heterog.export.operators.queues import check_sizes, roll_queues
from heterog.export.operators.strided import view_strided

_aten = torch.ops.aten

# Operators that return their first argument under another name.
_PURE_ALIASES = {
    _aten.alias.default,
    _aten.detach.default,
    _aten.lift_fresh.default,
    _aten.lift_fresh_copy.default,
}
# Operators that copy: dropped where neither dtype nor layout changes.
_COPIES = {_aten.clone.default, _aten._to_copy.default}

_ATTENTION = _aten._scaled_dot_product_flash_attention_for_cpu.default

# Begins the names of what all parameters share in the update.
_SHARED = "update/"

_TRANSPOSES = {_aten.t.default, _aten.transpose.int}


def clean(step: Step) -> Step:
    """The same step with fewer operators; see each function."""
    check_written(step)
    step.written = {}
    say_sizes(step)
    drop_empty_parts(step)
    drop_generators(step)
    share_recomputed(step)
    drop_copies(step)
    roll_queues(step)
    view_strided(step)
    drop_double_transposes(step)
    join_casts(step)
    forget_running_statistics(step)
    drop_masked_results(step)
    correct_statistics(step)
    correct_log_sums(step)
    share_scalars(step)
    drop_dead(step)
    tie_backward(step)
    check_buffers(step)
    check_sizes(step)
    check_random(step)
    separate_results(step)
    copy_old_values(step)
    set_roles(step)
    return step


def _substitute(step: Step, mapping: dict) -> None:
    if not mapping:
        return
    for op in step.ops:
        op.args = replace_tensors(op.args, mapping)
        op.kwargs = replace_tensors(op.kwargs, mapping)
    step.loss = replace_tensors(step.loss, mapping)
    step.outputs = replace_tensors(step.outputs, mapping)
    step.gradients = replace_tensors(step.gradients, mapping)
    step.next = replace_tensors(step.next, mapping)


def drop_copies(step: Step) -> None:
    """Removes aliases, and copies that change neither dtype nor layout.

    A copy that changes the layout stays: it moves memory in a real run, and later views rely on it.
    """
    mapping: dict[Tensor, Tensor] = {}
    kept = []
    for op in step.ops:
        first = op.args[0] if op.args else None
        source = replace_tensors(first, mapping) if isinstance(first, Tensor) else None
        target = op.outputs[0]
        if op.target in _PURE_ALIASES:
            mapping[target] = source
        elif op.target in _COPIES and _same_layout(source, target):
            mapping[target] = source
        elif op.target is _aten.expand.default and _same_layout(source, target):
            mapping[target] = source
        elif op.target is _aten.cat.default and len(op.args[0]) == 1:
            only = replace_tensors(op.args[0][0], mapping)
            if _same_layout(only, target):
                mapping[target] = only
            else:
                kept.append(op)
        elif op.target is _aten.copy.default:
            written = replace_tensors(op.args[1], mapping)
            if _same_layout(written, target):
                mapping[target] = written
            else:
                kept.append(op)
        else:
            kept.append(op)
    step.ops = kept
    _substitute(step, mapping)


def _same_layout(source: Tensor, target: Tensor) -> bool:
    return (
        source.dtype == target.dtype
        and source.shape == target.shape
        and _strides_that_matter(source) == _strides_that_matter(target)
    )


def _strides_that_matter(tensor: Tensor) -> list:
    return [s for s, d in zip(tensor.strides, tensor.shape, strict=True) if d != 1]


def drop_double_transposes(step: Step) -> None:
    """Reads x where x is transposed twice: autograd does that around every linear layer."""
    maker = {op.outputs[0]: op for op in step.ops if op.target in _TRANSPOSES}
    mapping: dict = {}
    for op in step.ops:
        inner = maker.get(op.args[0]) if op.target in _TRANSPOSES else None
        if inner is None or inner.target is not op.target:
            continue
        if _swapped_dims(inner) == _swapped_dims(op):
            mapping[op.outputs[0]] = inner.args[0]
    step.ops = [op for op in step.ops if not (op.outputs and op.outputs[0] in mapping)]
    _substitute(step, mapping)


def _swapped_dims(op: Op) -> set:
    rank = len(op.outputs[0].shape)
    return {dim % rank for dim in op.args[1:]}


def forget_running_statistics(step: Step) -> None:
    """Batch normalisation's backward does not read running statistics while training."""
    for op in step.ops:
        if op.target is _aten.native_batch_norm_backward.default and op.args[7]:
            op.args[3] = op.args[4] = None


def drop_masked_results(step: Step) -> None:
    """A backward operator makes no gradient that its mask leaves out: that of data."""
    for op in step.ops:
        names = [argument.name for argument in op.target._schema.arguments]
        if op.phase == "backward" and "output_mask" in names:
            mask = op.args[names.index("output_mask")]
            made = zip(op.outputs, [*mask, *[True] * len(op.outputs)], strict=False)
            op.outputs = [output if wanted else None for output, wanted in made]


def correct_statistics(step: Step) -> None:
    """Saved statistics of a batch norm have the dtype of its parameters, also for a half input."""
    for op in step.ops:
        if op.target is _aten._native_batch_norm_legit_functional.default:
            running_mean = op.args[3]
            for saved in op.outputs[1:3]:
                saved.dtype = running_mean.dtype


def correct_log_sums(step: Step) -> None:
    """What attention keeps of its softmax has the precision of its sums."""
    for op in step.ops:
        if op.target is _ATTENTION and op.outputs[1] is not None:
            if op.args[0].dtype == torch.float64:
                op.outputs[1].dtype = torch.float64


def share_scalars(step: Step) -> None:
    """Keeps one of equal computations on the rate and the step number (bias corrections)."""
    shared = {t for t in step.inputs if t.setting is not None}
    seen: dict = {}
    mapping: dict = {}
    kept = []
    for op in step.ops:
        if op.phase == "update":
            args = replace_tensors(op.args, mapping)
            kwargs = replace_tensors(op.kwargs, mapping)
            read = set(tensors_in([args, kwargs]))
            if read and read <= shared:
                key = (op.target, _key(args), _key(sorted(kwargs.items())))
                if key in seen:
                    mapping[op.outputs[0]] = seen[key]
                    continue
                seen[key] = op.outputs[0]
                shared.add(op.outputs[0])
                op.name = op.outputs[0].name = f"{_SHARED}{op.target.overloadpacket.__name__}_{len(seen)}"
                op.scope = ""
        kept.append(op)
    step.ops = kept
    _substitute(step, mapping)


def _key(value):
    if isinstance(value, (list, tuple)):
        return tuple(_key(item) for item in value)
    if isinstance(value, Tensor):
        return ("tensor", id(value))
    return (type(value).__name__, repr(value))


def tie_backward(step: Step) -> None:
    """Sets `forward` of backward operators: by autograd's sequence number, else by neighbours."""
    owner: dict[int, Op] = {}
    maker: dict[Tensor, Op] = {}
    readers: dict[Tensor, list[Op]] = {}
    for op in step.ops:
        if op.phase == "forward" and op.sequence is not None:
            owner.setdefault(op.sequence, op)
        for tensor in op.outputs:
            if tensor is not None:
                maker[tensor] = op
        for tensor in tensors_in([op.args, op.kwargs]):
            readers.setdefault(tensor, []).append(op)
    backward = [op for op in step.ops if op.phase == "backward"]
    for op in backward:
        op.forward = owner.get(op.sequence)
    # Sums of gradients, made between two backward functions, belong with the one that reads them;
    # those of a parameter with the one that made a term.
    for op in reversed(backward):
        if op.forward is None:
            after = [r for t in op.outputs for r in readers.get(t, []) if r.phase == "backward"]
            op.forward = next((r.forward for r in after if r.forward is not None), None)
    for op in backward:
        if op.forward is None:
            before = [maker[t] for t in tensors_in(op.args) if t in maker]
            before = [m.forward if m.phase == "backward" else m for m in before]
            op.forward = next((m for m in before if m is not None), None)
        if op.forward is not None:
            op.scope = op.forward.scope


def drop_dead(step: Step) -> None:
    """Removes operators whose results nobody needs, and buffers that are neither read nor
    replaced."""
    step.next = {old: new for old, new in step.next.items() if new is not old}
    drop_unneeded_operators(step)
    used = {t for op in step.ops for t in tensors_in([op.args, op.kwargs])} | set(step.next)
    used |= set(step.next.values())
    step.inputs = [t for t in step.inputs if t.role != "buffer" or t in used]


def drop_unneeded_operators(step: Step) -> None:
    live = {step.loss, *step.outputs.values(), *step.gradients.values(), *step.next.values()}
    kept = []
    for op in reversed(step.ops):
        if any(output in live for output in op.outputs if output is not None):
            live.update(tensors_in([op.args, op.kwargs]))
            kept.append(op)
    step.ops = kept[::-1]


def separate_results(step: Step) -> None:
    """Gives every gradient and every next value a tensor of its own, by an alias or a copy where
    it is an input, the loss, or that of another. A buffer's next value is no view, and nothing
    reads it in the step: it may lie where the old value is still read. The next value of what the
    optimizer changes is made after everything has read the old one."""
    taken = {step.loss, *step.inputs}
    made_at = {t: i for i, op in enumerate(step.ops) for t in op.outputs if t is not None}
    maker_of = {t: step.ops[i] for t, i in made_at.items()}
    read = {t for op in step.ops for t in tensors_in([op.args, op.kwargs])}
    last_read = _last_reads(step)
    inserts: list[tuple[int, Op]] = []

    def separate(results: dict[Tensor, Tensor], what: str) -> None:
        for of, result in list(results.items()):
            buffer = what == "next" and of.role == "buffer"
            at = made_at.get(result, -1)
            updated = what == "next" and not buffer
            after = max(at, last_read.get(of, -1)) if updated else at
            unfit = buffer and (result in read or _is_view(maker_of.get(result)))
            # What all parameters share is made before any of them is updated.
            unfit |= updated and at >= 0 and step.ops[at].name.startswith(_SHARED)
            if result in taken or unfit or after > at:
                shape, strides = list(result.shape), list(result.strides)
                own = Tensor(f"{of.name}/{what}", "activation", result.dtype, shape, strides)
                maker = step.ops[at] if at >= 0 else None
                phase = "backward" if what == "gradient" else maker.phase if maker else "forward"
                phase = "update" if updated else phase
                # What outlives the step has memory of its own.
                copy = _aten.alias.default if what == "gradient" else _aten.clone.default
                op = Op(own.name, copy, [result], {}, [own], phase, "", None)
                if maker is not None and phase == maker.phase:
                    op.forward, op.scope = maker.forward, maker.scope
                inserts.append((after + 1, op))
                results[of] = own
            taken.add(results[of])

    separate(step.gradients, "gradient")
    separate(step.next, "next")
    taken.update(step.gradients.values())
    for name, result in step.outputs.items():
        if result in taken:
            at = made_at.get(result, -1)
            own = Tensor("", "activation", result.dtype, list(result.shape), list(result.strides))
            maker = step.ops[at] if at >= 0 else None
            phase = maker.phase if maker else "forward"
            op = Op(name_in_graph(name), _aten.clone.default, [result], {}, [own], phase, "", None)
            if maker is not None:
                op.forward, op.scope = maker.forward, maker.scope
            inserts.append((at + 1, op))
            step.outputs[name] = own
        taken.add(step.outputs[name])
        step.outputs[name].name = name_in_graph(name)
    for at, op in sorted(inserts, key=lambda pair: pair[0], reverse=True):
        step.ops.insert(at, op)


def copy_old_values(step: Step) -> None:
    """A buffer's next value is written over the old one: what reads the old one after that, itself
    or by a view, reads a copy that is made before."""
    made_at = {t: i for i, op in enumerate(step.ops) for t in op.outputs if t is not None}
    last_read = _last_reads(step)
    inserts: list[tuple[int, Op]] = []
    for buffer, following in step.next.items():
        written = made_at.get(following, -1)
        if buffer.role != "buffer" or last_read.get(buffer, -1) <= written:
            continue
        if step.ops[written].phase == "update":
            continue
        shape, strides = list(buffer.shape), list(buffer.strides)
        copy = Tensor(f"{buffer.name}/old", "activation", buffer.dtype, shape, strides)
        readers = [
            place for place, op in enumerate(step.ops)
            if buffer in tensors_in([op.args, op.kwargs]) and (place > written or _is_view(op))
        ]  # fmt: skip
        for place in readers:
            op = step.ops[place]
            op.args = replace_tensors(op.args, {buffer: copy})
            op.kwargs = replace_tensors(op.kwargs, {buffer: copy})
        scope = step.ops[readers[0]].scope
        op = Op(copy.name, _aten.clone.default, [buffer], {}, [copy], "forward", scope, None)
        inserts.append((min(readers[0], written), op))
    for at, op in sorted(inserts, key=lambda pair: pair[0], reverse=True):
        step.ops.insert(at, op)


def _last_reads(step: Step) -> dict[Tensor, int]:
    """By tensor, the last operator that reads it, or a view of it."""
    base: dict[Tensor, Tensor] = {}
    last: dict[Tensor, int] = {}
    for place, op in enumerate(step.ops):
        for tensor in tensors_in([op.args, op.kwargs]):
            last[base.get(tensor, tensor)] = place
        if _is_view(op) and isinstance(op.args[0], Tensor):
            base[op.outputs[0]] = base.get(op.args[0], op.args[0])
    return last


def _is_view(op: Op | None) -> bool:
    if op is None:
        return False
    seen = [argument.alias_info for argument in op.target._schema.arguments]
    views = any(alias is not None and not alias.is_write for alias in seen)
    return views or op.target in (_aten._unsafe_view.default, _aten._reshape_alias.default)


def set_roles(step: Step) -> None:
    for tensor in (step.loss, *step.outputs.values()):
        tensor.role = "output"
    for parameter, gradient in step.gradients.items():
        gradient.role = "gradient"
        gradient.of = parameter
    for old, new in step.next.items():
        new.role = "output"
        new.replaces = old
