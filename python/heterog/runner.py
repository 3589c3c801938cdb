"""Runner: a training step on the devices of a plan, step by step on data."""

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import torch

from heterog.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from heterog.config import RunnerConfig
from heterog.errors import HeterogError
from heterog.evaluation import sums_over
from heterog.given import FilePath
from heterog.interpreter import (
    buffer_from_file,
    dtype_of,
    settings_of,
    shape_of,
    state_from_file,
)
from heterog.ir import SCALE
from heterog.lengths import Lengths
from heterog.native import NativeRunner
from heterog.optimizer_state import OptimizerState
from heterog.outputs import outputs_of
from heterog.planning import RunFiles
from heterog.runner_process import Fate, end_with_process, native_options
from heterog.step import TrainingStep, held_tensors
from heterog.untraced import Untraced


class Runner:
    """A model in training on the devices of a plan; made by get_runner.

    `model` is the module that was given: it keeps its first weights until sync_to_model().
    `optimizer` is the torch optimizer: its learning rates are read at every step.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        makers: list,
        names: list[str],
        steps: list[TrainingStep],
        files: RunFiles,
        config: RunnerConfig,
        untraced: Untraced,
    ):
        step, graph = steps[0], steps[0].graph
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self.graph_path, self.cluster_path, self.plan_path = files.graphs[0], files.cluster, files.plan
        self._makers = makers
        self._tensors = graph["tensors"]
        self._constants = step.constants
        options = native_options(files, config)
        self._native = NativeRunner(options)
        # Ends with the process, if nobody has closed it.
        self._fate = Fate()
        self._end = weakref.finalize(self, end_with_process, self._native, self._fate)
        self.ranks: int = self._native.ranks
        self.rank: int = self._native.rank
        self.batch: int = self._native.batch
        self._processes = self.ranks if options.one_rank else 1
        # Of the plan, by name, and what runs each: "cpu", or "cuda:0" of its process.
        self.devices: dict[str, str] = self._native.devices()
        self.predicted_step_seconds: float = self._native.predicted_step_seconds
        self.last_step_seconds: float | None = None
        if config.batch is not None and config.batch != self.batch:
            self.close(finished=False)
            raise HeterogError(
                f"config: batch {config.batch} given, {files.plan} is for batch {self.batch}"
            )
        self._lengths = Lengths(steps, names, self.batch, untraced.check)
        self._own: dict[tuple[int, int], list[tuple[int, int]]] = {}  # what ranks here read
        self._graphs = [each.graph for each in steps]
        self._last: tuple[int, int] | None = None  # graph and samples of the last step
        self._settings = settings_of(graph)
        self._kept = {  # name → place
            tensor["name"]: place
            for place, tensor in enumerate(self._tensors)
            if tensor["role"] in ("parameter", "buffer", "optimizer_state")
            and self._native.keeps(place)
        }
        self._of_model: list[str] = []
        self._of_model = [name for name in self._names_of_model() if name in self._kept]
        assert step.update is not None, "exported steps say what was found out about the optimizer"
        self._state = OptimizerState(optimizer, model, step.update, "step" in self._settings)
        self._steps = 0
        self._start()
        # What a model makes of the length comes with every step, and is no part of a checkpoint.
        made = {
            name: place
            for name, place in self._kept.items()
            if self._role(name) == "buffer" and name not in self._of_model
        }
        for name in self._lengths.take_tables(made):
            del self._kept[name]

    # ---- training ----

    @property
    def steps_done(self) -> int:
        return self._steps

    @property
    def loss_scale(self) -> float | None:
        """By what the loss is multiplied now; None: it is not. Of several processes, each one asks."""
        return self._fetch([SCALE])[SCALE].item() if SCALE in self._kept else None

    def step(self, batch: Any) -> float:
        """One training step on a whole batch: a tensor, or a tuple or list in the order of
        make_inputs, or a dict by the names of loss_fn's arguments. Returns the loss.

        A batch of another number of samples runs the same plan, cut anew in proportion."""
        with self._fate.watched():
            return self._step(batch)

    def step_local(self, batch: Any, samples: int | None = None) -> float:
        """One training step, of which this process gives its own samples alone: those that
        own_samples() names, in that order, as the batches of a DataLoader over a ShareSampler hold
        them. Otherwise as step(). Of several processes, each one calls it.

        samples  of the whole batch, over all processes; the plan's if None
        """
        if samples is None:
            samples = self.batch
        with self._fate.watched():
            graph, inputs = self._lengths.of_rows(
                batch, samples, lambda graph: self._rows(graph, samples)
            )
            return self._run_step(graph, samples, inputs, own_rows=True)

    def own_samples(self, samples: int | None = None) -> list[tuple[int, int]]:
        """Which samples of a whole batch (of the plan's number, or so many) the ranks of this
        process read: ranges from, and up to below. Where ranks are threads, that is all of them."""
        return self._rows(0, self.batch if samples is None else samples)

    def _rows(self, graph: int, samples: int) -> list[tuple[int, int]]:
        if not isinstance(samples, int) or isinstance(samples, bool) or samples < 1:
            raise HeterogError(f"samples: {samples!r}; it is a number of samples, 1 or more")
        if (graph, samples) not in self._own:
            self._own[graph, samples] = self._native.rows(graph, samples)
        return self._own[graph, samples]

    def _step(self, batch) -> float:
        graph, samples, inputs = self._lengths.of(batch)
        return self._run_step(graph, samples, inputs)

    def _run_step(self, graph: int, samples: int, inputs: dict, own_rows: bool = False) -> float:
        number = self._steps + 1
        settings = self._state.settings() | {"step": number}
        for setting, place in self._settings.items():
            inputs[place] = torch.tensor(float(settings[setting]), dtype=torch.float64)
        loss, self.last_step_seconds = self._native.step(
            number, graph, samples, inputs, own_rows
        )
        self._steps, self._last = number, (graph, samples)
        # What a scheduler looks at to warn of a step that was left out.
        self.optimizer._opt_called = True  # type: ignore[attr-defined]
        return loss

    def outputs(self) -> dict[str, torch.Tensor]:
        """What the last step gave beside its loss, of the whole batch: by name the tensors that
        loss_fn returns with it, and `gradient_norm` where that is set. Of several processes, each
        one calls it."""
        if self._last is None:
            raise HeterogError("outputs: no step has been done yet")
        graph, samples = self._last
        found = {}
        for name, place in outputs_of(self._graphs[graph]).items():
            entry = self._graphs[graph]["tensors"][place]
            value = torch.empty(shape_of(entry, samples), dtype=dtype_of(entry))
            found[name] = self._native.output(place, value)
        return found

    def run(
        self,
        steps: int,
        iterable: Iterable[Any] | None = None,
        *,
        drop_last: bool = True,
        on_step: Callable[[int, float], Any] | list[Callable[[int, float], Any]] | None = None,
    ) -> list[float]:
        """So many steps; their losses. `iterable`, a DataLoader say, is gone through again and
        again; without one, make_inputs makes the batches, from the seed and the step's number.

        A batch of fewer samples than the plan's is left out, as DataLoader(drop_last=True) would,
        unless drop_last is False. `on_step` is called after each step with its number (steps_done)
        and its loss: to log (StepLines, StepCurves), to move a scheduler on, to save; if it returns
        True, the run ends there. Of a list, all are called in turn.
        """
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise HeterogError(f"run: {steps!r} steps; it is a number of steps, 0 or more")
        if iterable is not None and not hasattr(iterable, "__iter__"):
            raise HeterogError(
                f"run: {type(iterable).__name__} given to take batches from; it is a DataLoader, or "
                "anything to iterate over"
            )
        called = on_step if isinstance(on_step, list) else [on_step] if on_step is not None else []
        for one in called:
            if not callable(one):
                raise HeterogError(
                    f"run: on_step is a {type(one).__name__}; it is a function of the step's number "
                    "and its loss, or a list of them"
                )
        # What the data's own code raises reaches the caller as it is.
        with self._fate.watched():
            losses: list[float] = []
            for batch in self._batches(steps, iterable, drop_last):
                losses.append(self.step(batch))
                if any([one(self._steps, losses[-1]) is True for one in called]):
                    break
            return losses

    def _batches(self, steps: int, iterable, drop_last: bool) -> Iterator[Any]:
        """So many."""
        given = 0
        while given < steps:
            before = given
            if iterable is None:
                yield self._own_batch()
                given += 1
                continue
            for batch in iterable:
                if drop_last and self._is_incomplete(batch):
                    continue
                yield batch
                given += 1
                if given == steps:
                    break
            if given == before:
                raise HeterogError(
                    f"run: the iterable ended after {given} of {steps} steps; it holds no "
                    f"batch of {self.batch} samples (any more: a generator is gone through once)"
                )

    def _own_batch(self) -> tuple:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed * 1_000_003 + self._steps)
            return self._makers[self._steps % len(self._makers)](self.batch)

    def _is_incomplete(self, batch) -> bool:
        samples = self._lengths.samples_of(batch)
        return samples is not None and samples < self.batch

    # ---- what has been learnt ----

    def state_dict(self) -> "OrderedDict[str, torch.Tensor]":
        """Parameters and buffers as model.state_dict() names them. Of several processes, each one
        calls it."""
        names = self._names_of_model()
        found = self._fetch([name for name in self._kept if name in names])
        state = cast("OrderedDict[str, torch.Tensor]", self.model.state_dict())
        for key, name in self._names_of_keys().items():
            state[key] = found[name] if name in found else state[key].detach().clone()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As model.load_state_dict(state, strict=True), for the workers."""
        if not isinstance(state, Mapping):
            raise HeterogError(f"load_state_dict: {type(state).__name__} given; it is a dict of tensors")
        names = self._names_of_keys()
        missing = [key for key in names if key not in state]
        unexpected = [key for key in state if key not in self.model.state_dict()]
        if missing or unexpected:
            what = f"lacks {missing[0]!r}" if missing else f"has {unexpected[0]!r} too many"
            raise HeterogError(f"load_state_dict: the given state {what}")
        for key in names:
            if not isinstance(state[key], torch.Tensor):
                raise HeterogError(
                    f"load_state_dict: {key!r} is a {type(state[key]).__name__}, no tensor"
                )
        for key, name in names.items():
            self._put(name, state[key])

    def optimizer_state_dict(self) -> dict[str, Any]:
        """As a torch optimizer's state_dict() after the same steps, which such a one can load."""
        names = [name for name in self._kept if self._role(name) == "optimizer_state"]
        return self._state.state_dict(self._fetch(names), self._steps)

    def load_optimizer_state_dict(self, state: dict[str, Any]) -> None:
        """State, settings and, where the state counts them, the number of steps done."""
        values, steps = self._state.load(state)
        self._put_optimizer_state(values)
        if steps or not state["state"]:
            self._steps = steps

    def sync_to_model(self) -> torch.nn.Module:
        """Copies parameters and buffers into `model`, to evaluate or to save it."""
        names = self._names_of_model()
        with torch.no_grad():
            for name, value in self._fetch([n for n in self._kept if n in names]).items():
                if names[name].shape != value.shape:
                    raise HeterogError(
                        f"model: '{name}' has become {list(names[name].shape)}; the runner was made "
                        f"with {list(value.shape)}, make another"
                    )
                names[name].copy_(value)
        return self.model

    def evaluate(
        self,
        measure: Callable[[torch.nn.Module, Any], Mapping[str, Any]],
        batches: Iterable[Any],
    ) -> dict[str, float]:
        """Sums of what measure(model, batch) says, a dict of numbers, over all batches. Parameters
        and buffers are synced to `model` first; it is called in eval() and without gradients.

        Of several processes, each one calls it, with the same batches in the same order. Each takes
        every so many-th of them, to its own device, and all get the sums over all processes."""
        with self._fate.watched():
            device = list(self.devices.values())[self.rank]
            part = (self.rank, self._processes) if self._processes > 1 else (0, 1)
            sums = sums_over(self.sync_to_model(), device, measure, batches, part)
            names = sorted(sums)
            if self._native.meet(len(names)) != len(names):
                raise HeterogError("evaluate: other processes measured more than this one")
            return dict(zip(names, self._native.add_up([sums[name] for name in names]), strict=True))

    def save(self, path: FilePath, extra: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint (heterog.load_checkpoint): the file `path`, which plain PyTorch
        loads, and one beside it. `extra`: anything JSON can hold, and tensors in it (the state of a
        random generator, a moving average), to come back from load(). Of
        several processes, each one calls it and rank 0 writes."""
        path = _path_of(path)
        keys = set(self._names_of_keys().values())
        others = [n for n in self._kept if n not in keys and self._role(n) != "optimizer_state"]
        checkpoint = Checkpoint(
            self.state_dict(),
            self.optimizer_state_dict(),
            self._steps,
            self._fetch(others),
            extra or {},
        )
        failure = None
        if self.rank == 0:
            try:
                save_checkpoint(path, checkpoint)
            except HeterogError as error:
                failure = error
        if self._native.meet(int(failure is not None)) and failure is None:
            failure = HeterogError(f"rank 0 could not write {path}")
        if failure is not None:
            raise failure

    def load(self, path: FilePath) -> dict[str, Any]:
        """Goes on where save() was called, bit for bit; returns its `extra`."""
        checkpoint = load_checkpoint(_path_of(path))
        self.load_state_dict(checkpoint.model)
        self.load_optimizer_state_dict(checkpoint.optimizer)
        for name, value in checkpoint.others.items():
            self._put(name, value)
        self._steps = checkpoint.steps
        return checkpoint.extra

    # ---- the end ----

    def close(self, finished: bool = True) -> None:
        """Ends the workers. `finished`: of several processes, waits for the others; else they are
        told that this one gave up."""
        self._end.detach()
        self._native.close(finished)

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, kind: Any, _error: Any, _trace: Any) -> None:
        self.close(finished=kind is None)

    # ---- tensors of the workers ----

    def _start(self) -> None:
        """From the model's parameters and buffers and the optimizer's state."""
        names = self._constants | self._names_of_model()
        state, self._steps = self._state.initial()
        for name, place in self._kept.items():
            if self._role(name) == "optimizer_state":
                continue
            self._set(place, names[name] if name in names else buffer_from_file(self._tensors[place]))
        self._put_optimizer_state(state)

    def _put_optimizer_state(self, values: dict) -> None:
        """What is not given is as before the first step."""
        for name, place in self._kept.items():
            if self._role(name) == "optimizer_state":
                fresh = name not in values
                value = state_from_file(self._tensors[place]) if fresh else values[name]
                self._set(place, value)

    def _put(self, name: str, value: torch.Tensor) -> None:
        """Into the workers, or into the model where they do not know it."""
        if name in self._kept:
            return self._set(self._kept[name], value)
        with torch.no_grad():
            self._names_of_model()[name].copy_(value)

    def _set(self, place: int, value: torch.Tensor) -> None:
        self._native.set(place, value.detach().to(dtype_of(self._tensors[place])))

    def _fetch(self, names: list[str]) -> dict[str, torch.Tensor]:
        found = {}
        for name in names:
            entry = self._tensors[self._kept[name]]
            value = torch.empty(shape_of(entry, self.batch), dtype=dtype_of(entry))
            found[name] = self._native.get(self._kept[name], value)
        return found

    def _role(self, name: str) -> str:
        return self._tensors[self._kept[name]]["role"]

    def _names_of_model(self) -> dict[str, torch.Tensor]:
        """Name in the graph → the model's own tensor."""
        held, _ = held_tensors(self.model)
        names = held | dict(self.model.named_parameters())
        for name in self._of_model:
            if name not in names:
                raise HeterogError(f"model: it has no '{name}' any more; make another runner")
        return names

    def _names_of_keys(self) -> dict[str, str]:
        """Key of state_dict() → name in the graph; several keys of one tensor have one name."""
        names: dict[int, str] = {}
        for name, tensor in self._names_of_model().items():
            names.setdefault(id(tensor), name)
        return {
            key: names[id(tensor)]
            for key, tensor in self.model.state_dict(keep_vars=True).items()
            if isinstance(tensor, torch.Tensor)
        }


def _path_of(path) -> str:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise HeterogError(f"checkpoint: {path!r} is no path")
    return os.fspath(path)
