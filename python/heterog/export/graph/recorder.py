"""Notes, while a step is traced, which phase and module each operator belongs to."""

import contextlib

import torch
import torch.fx.traceback as fx_traceback


class Recorder:
    """Keeps the annotation that each traced node gets: phase, module path, sequence number."""

    def __init__(self):
        self.stack: list[str] = []
        self.phase = "forward"
        self.sequence: int | None = None
        self.draw: int | None = None

    def write(self) -> None:
        fx_traceback.current_meta["custom"] = {
            "phase": self.phase,
            "scope": self.stack[-1] if self.stack else "",
            "sequence": self.sequence,
            "draw": self.draw,
        }

    def set_draw(self, number: int | None) -> None:
        self.draw = number
        self.write()

    def set_phase(self, phase: str) -> None:
        self.phase = phase
        self.write()

    @contextlib.contextmanager
    def within(self, path: str):
        """What is done for a module before or after it runs."""
        self.stack.append(path)
        self.write()
        try:
            yield
        finally:
            self.stack.pop()
            self.write()

    @contextlib.contextmanager
    def modules(self, model: torch.nn.Module):
        """Follows which module runs, by hooks on every module of the model."""
        paths = {id(module): path for path, module in model.named_modules()}

        def enter(module, _args):
            self.stack.append(paths[id(module)])
            self.write()

        def leave(_module, _args, _output):
            self.stack.pop()
            self.write()

        handles = []
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(enter, prepend=True))
            handles.append(module.register_forward_hook(leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def follow_backward(self, loss: torch.Tensor) -> None:
        """Notes, while a backward function runs, the sequence number of its forward operator."""
        seen = set()
        pending = [loss.grad_fn]
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            pending.extend(successor for successor, _ in node.next_functions)

            def before(_grads, number=node._sequence_nr()):
                self.sequence = number
                self.write()

            def after(_inputs, _outputs):
                self.sequence = None
                self.write()

            node.register_prehook(before)
            node.register_hook(after)
