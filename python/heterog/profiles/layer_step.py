"""A training step that has the times and sizes of given layers: a graph that can be planned, and run.

A layer takes the mean m of what it reads, sample by sample, times s = 1 + W·W / 2n of its n
parameters, and makes as many numbers of it as its output has. So its parameters have the gradient
m W / n, which replicas add up, and everything moves that the real layer would move. The loss is the mean
of the last layers' outputs, added up over samples. Costs are those of the profile; what the layers
compute is nobody's model.
"""

from heterog.profiles.layer_graph import Layer

_BYTES = 4  # of a number
_LITTLE = 1e-12  # seconds of what the profile does not count: a cost has to be above 0


class LayerStep:
    """`graph` is what a graph file holds; `seconds` the time of each op on the whole batch."""

    def __init__(self, layers: list[Layer], name: str, batch: int):
        self.batch = batch
        self.seconds: dict[str, float] = {}
        self._tensors: list[dict] = []
        self._ops: list[dict] = []
        self._made: dict[str, dict] = {}  # of each layer, what its backward pass needs
        for layer in layers:
            self._forward(layer)
        read = {one for layer in layers for one in layer.inputs}
        sinks = [layer.name for layer in layers if layer.name not in read]
        loss = self._loss(sinks)
        self._backward(layers)
        for layer in layers:
            self._update(layer)
        self.graph = {"format": "heterog-graph", "version": 1, "name": name, "dtype": "float32",
                      "loss": loss, "tensors": self._tensors, "ops": self._ops}  # fmt: skip

    # ---- the file ----

    def _tensor(self, name, shape, role="activation", **more) -> int:
        self._tensors.append({"name": name, "role": role, "dtype": "float32", "shape": shape} | more)
        return len(self._tensors) - 1

    def _op(self, name, op, phase, args, shape, seconds=0.0, kwargs=None, role=None, forward=None,
            **more) -> int:  # fmt: skip
        out = self._tensor(name, shape, role or "activation", **more)
        entry = {"name": name, "op": f"aten.{op}", "phase": phase}
        if forward is not None:
            entry["forward"] = forward
        entry |= {"scope": name.split("/")[0], "args": args}
        if kwargs:
            entry["kwargs"] = kwargs
        self._ops.append(entry | {"outputs": [out]})
        self.seconds[name] = max(seconds, _LITTLE)
        return out

    def _last_op(self) -> int:
        return len(self._ops) - 1

    # ---- the step ----

    def _forward(self, layer: Layer) -> None:
        name = layer.name
        width = max(1, round(layer.output_bytes / _BYTES / self.batch))
        widths = [self._made[one]["width"] for one in layer.inputs]
        if not layer.inputs:
            widths = [1]
            read = self._tensor(f"{name}/input", ["B", 1], "input")
        elif len(layer.inputs) == 1:
            read = self._made[layer.inputs[0]]["output"]
        else:
            parts = [f"%{self._made[one]['output']}" for one in layer.inputs]
            read = self._op(f"{name}/cat", "cat.default", "forward", [parts, 1], ["B", sum(widths)])
        made = {"width": width, "widths": widths}
        made["mean"] = self._op(f"{name}/mean", "mean.dim", "forward", [f"%{read}", [1], True], ["B", 1])
        scaled = made["mean"]
        numbers = round(layer.parameter_bytes / _BYTES)
        if numbers > 0:
            made["weight"] = self._tensor(f"{name}/weight", [numbers], "parameter")
            weight = f"%{made['weight']}"
            dot = self._op(f"{name}/dot", "dot.default", "forward", [weight, weight], [])
            half = self._op(f"{name}/half", "mul.Tensor", "forward", [f"%{dot}", 0.5 / numbers], [])
            made["scale"] = self._op(f"{name}/scale", "add.Tensor", "forward", [f"%{half}", 1.0], [])
            scaled = self._op(f"{name}/scaled", "mul.Tensor", "forward",
                              [f"%{made['mean']}", f"%{made['scale']}"], ["B", 1])  # fmt: skip
        made["ones"] = self._tensor(f"{name}/ones", [width], "buffer", values={"fill": 1.0})
        made["output"] = self._op(f"{name}/output", "mul.Tensor", "forward",
                                  [f"%{scaled}", f"%{made['ones']}"], ["B", width],
                                  layer.forward_seconds)  # fmt: skip
        made["op"] = self._last_op()
        self._made[name] = made

    def _loss(self, sinks: list[str]) -> int:
        total = None
        for i, name in enumerate(sinks):
            made = self._made[name]
            whole = self._op(f"{name}/sum", "sum.default", "forward", [f"%{made['output']}"], [])
            made["sum_op"] = self._last_op()
            one = self._op(f"{name}/loss", "mul.Tensor", "forward", [f"%{whole}", 1.0 / made["width"]],
                           [], role="output" if len(sinks) == 1 else None)  # fmt: skip
            if total is None:
                total = one
            else:
                total = self._op(f"loss/{i}", "add.Tensor", "forward", [f"%{total}", f"%{one}"], [],
                                 role="output" if i + 1 == len(sinks) else None)  # fmt: skip
        return total

    def _backward(self, layers: list[Layer]) -> None:
        gradients: dict[str, list[int]] = {layer.name: [] for layer in layers}
        for layer in reversed(layers):
            name, made = layer.name, self._made[layer.name]
            op = made["op"]
            if "sum_op" in made:
                gradients[name].append(self._op(
                    f"{name}/start", "full_like.default", "backward",
                    [f"%{made['output']}", 1.0 / made["width"]], ["B", made["width"]],
                    forward=made["sum_op"]))  # fmt: skip
            whole = gradients[name][0]
            for i, other in enumerate(gradients[name][1:]):
                whole = self._op(f"{name}/add_{i}", "add.Tensor", "backward",
                                 [f"%{whole}", f"%{other}"], ["B", made["width"]], forward=op)  # fmt: skip
            product = self._op(f"{name}/backward", "mul.Tensor", "backward",
                               [f"%{whole}", f"%{made['ones']}"], ["B", made["width"]],
                               layer.backward_seconds, forward=op)  # fmt: skip
            scaled = self._op(f"{name}/backward_sum", "sum.dim_IntList", "backward",
                              [f"%{product}", [1], True], ["B", 1], forward=op)  # fmt: skip
            mean = scaled
            if "weight" in made:
                mean = self._op(f"{name}/backward_scale", "mul.Tensor", "backward",
                                [f"%{scaled}", f"%{made['scale']}"], ["B", 1], forward=op)  # fmt: skip
                each = self._op(f"{name}/each", "mul.Tensor", "backward",
                                [f"%{scaled}", f"%{made['mean']}"], ["B", 1], forward=op)  # fmt: skip
                both = self._op(f"{name}/all", "sum.default", "backward", [f"%{each}"], [], forward=op)
                numbers = round(layer.parameter_bytes / _BYTES)
                slope = self._op(f"{name}/slope", "mul.Tensor", "backward",
                                 [f"%{both}", 1.0 / numbers], [], forward=op)  # fmt: skip
                made["gradient"] = self._op(
                    f"{name}/weight_gradient", "mul.Tensor", "backward",
                    [f"%{made['weight']}", f"%{slope}"], [numbers], forward=op, role="gradient",
                    of=made["weight"])  # fmt: skip
            if not layer.inputs:
                continue
            width = sum(made["widths"])
            share = self._tensor(f"{name}/share", [width], "buffer", values={"fill": 1.0 / width})
            back = self._op(f"{name}/back", "mul.Tensor", "backward", [f"%{mean}", f"%{share}"],
                            ["B", width], forward=op)  # fmt: skip
            begin = 0
            for one, part in zip(layer.inputs, made["widths"], strict=True):
                piece = back
                if len(layer.inputs) > 1:
                    piece = self._op(f"{name}/back_{one}", "slice.Tensor", "backward",
                                     [f"%{back}", 1, begin, begin + part], ["B", part],
                                     forward=op)  # fmt: skip
                gradients[one].append(piece)
                begin += part

    def _update(self, layer: Layer) -> None:
        made = self._made[layer.name]
        if "weight" in made:
            self._op(f"{layer.name}/update", "add.Tensor", "update",
                     [f"%{made['weight']}", f"%{made['gradient']}"],
                     [round(layer.parameter_bytes / _BYTES)], kwargs={"alpha": -0.001}, role="output",
                     replaces=made["weight"])  # fmt: skip
