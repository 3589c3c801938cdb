"""Runner: a training step on the devices of a plan, step by step on data."""

import functools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import torch

from heterog.base.errors import HeterogError
from heterog.base.given import FilePath
from heterog.base.native import NativeRunner
from heterog.base.progress import say_once
from heterog.export.graph.ir import SCALE
from heterog.export.graph.outputs import outputs_of
from heterog.export.graph.samples import input_names
from heterog.export.interpreter import buffer_from_file, dtype_of, settings_of, shape_of
from heterog.export.state.registry import Registry, same_bits
from heterog.export.step import held_tensors
from heterog.export.training_step import TrainingStep
from heterog.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from heterog.run.config import RunnerConfig
from heterog.run.evaluation import sums_over
from heterog.run.lengths import Lengths
from heterog.run.optimizer_state import OptimizerState
from heterog.run.prepare import RunFiles
from heterog.run.process import Fate, end_with_process, native_options
from heterog.run.program_state import ProgramState
from heterog.run.steps_ahead import LaunchedStep, StepsOnTheirWay, goes_ahead, run_ahead
from heterog.run.untraced import Untraced
from heterog.run.worker_tensors import WorkerTensors


class Made(NamedTuple):
    """What a runner is made of."""

    steps: list[TrainingStep]
    files: RunFiles
    untraced: Untraced


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _in_turn(method: _Method) -> _Method:
    """Calls from several threads run one after the other."""

    @functools.wraps(method)
    def waits(self, *args, **kwargs):
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(_Method, waits)


class Runner:
    """A model in training on the devices of a plan; made by get_runner.

    `model` is the module that was given and `optimizer` the torch optimizer. Between two steps both
    look as if each step had changed them, and what the program changes in them is what the next step
    begins with (docs/client.md).
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable,
        makers: list,
        make: Callable[[], "Made"],
        config: RunnerConfig,
    ):
        """`make` exports the step and plans it, here and where it has become another."""
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self._loss_fn, self._makers, self._make = loss_fn, makers, make
        self._lock = threading.RLock()
        self._fate = Fate()
        self._program: ProgramState | None = None
        self._steps = StepsOnTheirWay(self._lock)
        self._open(make())
        self._registry = self._watch()
        for reason in self._registry.unseen:
            say_once(f"changes of this are not noticed while {config.name} is trained: {reason}")
        self._program.leave()

    def _open(self, made: Made) -> None:
        """Makes the workers of a step that was exported and planned."""
        steps, files, untraced = made
        step, graph = steps[0], steps[0].graph
        config = self.config
        self.graph_path, self.cluster_path, self.plan_path = files.graphs[0], files.cluster, files.plan
        options = native_options(files, config)
        self._native = NativeRunner(options)
        # Ends with the process, if nobody has closed it.
        self._end = weakref.finalize(self, end_with_process, self._native, self._fate)
        self.ranks: int = self._native.ranks
        self.rank: int = self._native.rank
        self.batch: int = self._native.batch
        self._processes = self.ranks if options.one_rank else 1
        # Of the plan, by name, and what runs each: "cpu", or "cuda:0" of its process.
        self.devices: dict[str, str] = self._native.devices()
        self.predicted_step_seconds: float = self._native.predicted_step_seconds
        self._counts = step.python.counts
        for name in step.python.left:
            say_once(
                f"{name}: what forward keeps there in a step is not there after runner.step(); return "
                "it from loss_fn, as an output, if you want to see it"
            )
        if config.batch is not None and config.batch != self.batch:
            self.close(finished=False)
            raise HeterogError(
                f"config: batch {config.batch} given, {files.plan} is for batch {self.batch}"
            )
        names = input_names(self._loss_fn, self._makers[0])
        self._lengths = Lengths(steps, names, self.batch, untraced.check)
        self._own: dict[tuple[int, int], list[tuple[int, int]]] = {}  # what ranks here read
        self._graphs = [each.graph for each in steps]
        self._steps.begin_with(self._native)
        # On CPUs a step has ended once it was launched.
        self._on_gpus = any(what != "cpu" for what in self.devices.values())
        self._settings = settings_of(graph)
        self._workers = WorkerTensors(self._native, graph)
        self._of_model: list[str] = []
        self._of_model = [name for name in self._names_of_model() if name in self._workers]
        assert step.update is not None, "exported steps say what was found out about the optimizer"
        self._state = OptimizerState(
            self.optimizer, self.model, step.update, "step" in self._settings
        )
        meet = self._native.meet if self._processes > 1 else None
        self._program = ProgramState(self.model, self._state, self._workers, self._lock, meet)
        self._start(step.constants)
        # What a model makes of the length comes with every step, and is no part of a checkpoint.
        of_length = {
            name: self._workers.places[name]
            for name in self._workers.of_role("buffer")
            if name not in self._of_model
        }
        for name in self._lengths.take_tables(of_length):
            del self._workers.places[name]
        if self._processes > 1:
            self._program.take_from_workers()
        self._end.detach()
        self._end = weakref.finalize(
            self, end_with_process, self._native, self._fate, self._program, self._processes == 1
        )

    def _watch(self) -> Registry:
        registry = Registry(self.model, self._loss_fn, self.optimizer)
        for path, attribute, _ in self._counts:
            registry.aside(vars(self.model.get_submodule(path)), attribute)
        return registry

    def _follow_changes(self) -> None:
        """What a step is has to be what was exported."""
        found = self._registry.changed(self._program.was_looked_at())
        if self.config.on_change == "export" and not found:
            found = self._state.differences()
        if not found:
            return
        if self.config.on_change == "refuse":
            more = f" ({len(found) - 1} more changes)" if len(found) > 1 else ""
            raise HeterogError(
                f"{found[0]}{more}, after the runner was made; what it trains is the step of before: "
                "make another runner, or set on_change to 'export' in its config"
            )
        self._export_again()

    def _export_again(self) -> None:
        """With all values as they are now."""
        self._steps.finish()
        self._program.bring()
        steps = self._program.steps
        names = [n for n in self._workers.places if self._workers.role(n) != "optimizer_state"]
        before = self._workers.fetch(names)
        made = self._make()  # where that is refused, all is as it was
        self._end.detach()
        self._native.close(finished=True)
        self._open(made)
        self._program.steps = self._state.steps_after_reading(self._program.steps, steps)
        self._keep_what_no_model_holds(before)
        self._registry = self._watch()
        self._program.leave()

    def _keep_what_no_model_holds(self, before: dict[str, torch.Tensor]) -> None:
        """The loss scale, and of values in double precision what the model's own have rounded off."""
        own = self._names_of_model()
        made = self._lengths.constants()
        for name, value in before.items():
            if name not in self._workers or name in made:
                continue
            if name not in own or (
                own[name].dtype != value.dtype
                and own[name].shape == value.shape
                and same_bits(value.to(own[name].dtype), own[name].detach().cpu())
            ):
                self._workers.put(name, value)

    # ---- training ----

    @property
    def steps_done(self) -> int:
        return self._program.steps

    @property
    def last_step_seconds(self) -> float | None:
        self._steps.finish_for_a_look()
        return self._steps.last_seconds

    @property
    def loss_scale(self) -> float | None:
        """By what the loss is multiplied now; None: it is not. Of several processes, each one asks."""
        return self._workers.fetch([SCALE])[SCALE].item() if SCALE in self._workers else None

    def step(self, batch: Any) -> float:
        """One training step on a whole batch: a tensor, or a tuple or list in the order of
        make_inputs, or a dict by the names of loss_fn's arguments. Returns the loss.

        A batch of another number of samples runs the same plan, cut anew in proportion."""
        with self._lock, self._fate.watched():
            return self._step(batch)

    def step_local(self, batch: Any, samples: int | None = None) -> float:
        """One training step, of which this process gives its own samples alone: those that
        own_samples() names, in that order, as the batches of a DataLoader over a ShareSampler hold
        them. Otherwise as step(). Of several processes, each one calls it.

        samples  of the whole batch, over all processes; the plan's if None
        """
        if samples is None:
            samples = self.batch
        with self._lock, self._fate.watched():
            self._follow_changes()
            graph, inputs = self._lengths.of_rows(
                batch, samples, lambda graph: self._rows(graph, samples)
            )
            return self._run_step((graph, samples), inputs, own_rows=True)

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
        self._follow_changes()
        graph, samples, inputs = self._lengths.of(batch)
        return self._run_step((graph, samples), inputs)

    def _run_step(self, form: tuple[int, int], inputs: dict, own_rows: bool = False) -> float:
        self._steps.finish()
        step = self._launch(form, inputs, own_rows)
        self._steps.finish()
        if step.was_done:
            self._is_done(step)
        if step.error is not None:
            raise step.error
        return step.loss

    def _launch_ahead(self, batch) -> LaunchedStep:
        with self._lock:
            self._follow_changes()
            graph, samples, inputs = self._lengths.of(batch)
            self._steps.finish(left=1)
            step = self._launch((graph, samples), inputs)
            self._is_done(step)
            return step

    def _launch(self, form: tuple[int, int], inputs: dict, own_rows: bool = False) -> LaunchedStep:
        """`form`: the graph and the number of samples."""
        self._program.hand_over()
        number = self._program.steps + 1
        settings = self._state.settings() | {"step": number}
        for setting, place in self._settings.items():
            inputs[place] = torch.tensor(float(settings[setting]), dtype=torch.float64)
        return self._steps.launch(number, form, inputs, own_rows)

    def _is_done(self, step: LaunchedStep) -> None:
        self._program.steps = step.number
        self._program.end_step()
        for path, attribute, by in self._counts:
            counted = vars(self.model.get_submodule(path))
            counted[attribute] += by
        # What a scheduler looks at to warn of a step that was left out.
        self.optimizer._opt_called = True  # type: ignore[attr-defined]

    @_in_turn
    def outputs(self) -> dict[str, torch.Tensor]:
        """What the last step gave beside its loss, of the whole batch: by name the tensors that
        loss_fn returns with it, and `gradient_norm` where that is set. Of several processes, each
        one calls it."""
        self._steps.finish_for_a_look()
        if self._steps.last is None:
            raise HeterogError("outputs: no step has been done yet")
        graph, samples = self._steps.last.form
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

        On GPUs, a step is launched before the loss of the one before has come back, if `on_step` is
        None or only reports, as StepLines and StepCurves do. All is as without, but that after a
        LossNotFinite the step behind has been done too.
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
            batches = self._batches(steps, iterable, drop_last)
            if self._goes_ahead(called):
                return run_ahead(self._launch_ahead, self._steps, batches, called)
            losses: list[float] = []
            for batch in batches:
                losses.append(self.step(batch))
                if any([one(self._program.steps, losses[-1]) is True for one in called]):
                    break
            return losses

    def _goes_ahead(self, called: list) -> bool:
        """The same in all processes, which take part in each other's steps."""
        own = self._on_gpus and goes_ahead(called)
        if not self._on_gpus or self._processes == 1:
            return own
        return self._native.meet(int(not own)) == 0

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
            torch.manual_seed(self.config.seed * 1_000_003 + self._program.steps)
            return self._makers[self._program.steps % len(self._makers)](self.batch)

    def _is_incomplete(self, batch) -> bool:
        samples = self._lengths.samples_of(batch)
        return samples is not None and samples < self.batch

    # ---- what has been learnt ----

    @_in_turn
    def state_dict(self) -> "OrderedDict[str, torch.Tensor]":
        """Parameters and buffers as model.state_dict() names them. Of several processes, each one
        calls it."""
        names = self._names_of_model()
        self._program.hand_over()
        found = self._workers.fetch([name for name in self._workers.places if name in names])
        state = cast("OrderedDict[str, torch.Tensor]", self.model.state_dict(keep_vars=True))
        for key, name in self._names_of_keys().items():
            state[key] = found[name] if name in found else state[key].detach().clone()
        return state

    @_in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As model.load_state_dict(state, strict=True), for the workers."""
        if not isinstance(state, Mapping):
            raise HeterogError(f"load_state_dict: {type(state).__name__} given; it is a dict of tensors")
        names = self._names_of_keys()
        missing = [key for key in names if key not in state]
        known = self.model.state_dict(keep_vars=True)
        unexpected = [key for key in state if key not in known]
        if missing or unexpected:
            what = f"lacks {missing[0]!r}" if missing else f"has {unexpected[0]!r} too many"
            raise HeterogError(f"load_state_dict: the given state {what}")
        for key in names:
            if not isinstance(state[key], torch.Tensor):
                raise HeterogError(
                    f"load_state_dict: {key!r} is a {type(state[key]).__name__}, no tensor"
                )
        self._program.hand_over()
        for key, name in names.items():
            self._put(name, state[key])

    @_in_turn
    def optimizer_state_dict(self) -> dict[str, Any]:
        """As a torch optimizer's state_dict() after the same steps, which such a one can load."""
        self._program.hand_over()
        values = self._workers.fetch(self._workers.of_role("optimizer_state"))
        return self._state.state_dict(values, self._program.steps)

    @_in_turn
    def load_optimizer_state_dict(self, state: dict[str, Any]) -> None:
        """State, settings and, where the state counts them, the number of steps done."""
        self._program.hand_over()
        values, steps = self._state.load(state)
        self._workers.put_optimizer_state(values)
        if steps or not state["state"]:
            self._program.steps = steps

    @_in_turn
    def sync_to_model(self) -> torch.nn.Module:
        """Copies parameters and buffers into `model`, to evaluate or to save it."""
        self._names_of_model()
        self._program.bring_model()
        return self.model

    @_in_turn
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

    @_in_turn
    def save(self, path: FilePath, extra: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint (heterog.load_checkpoint): the file `path`, which plain PyTorch
        loads, and one beside it. `extra`: anything JSON can hold, and tensors in it (the state of a
        random generator, a moving average), to come back from load(). Of
        several processes, each one calls it and rank 0 writes."""
        path = _path_of(path)
        keys = set(self._names_of_keys().values())
        state = self._workers.of_role("optimizer_state")
        others = [n for n in self._workers.places if n not in keys and n not in state]
        checkpoint = Checkpoint(
            self.state_dict(),
            self.optimizer_state_dict(),
            self._program.steps,
            self._workers.fetch(others),
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

    @_in_turn
    def load(self, path: FilePath) -> dict[str, Any]:
        """Goes on where save() was called, bit for bit; returns its `extra`."""
        checkpoint = load_checkpoint(_path_of(path))
        self.load_state_dict(checkpoint.model)
        self.load_optimizer_state_dict(checkpoint.optimizer)
        for name, value in checkpoint.others.items():
            self._put(name, value)
        self._program.steps = checkpoint.steps
        return checkpoint.extra

    # ---- the end ----

    @_in_turn
    def close(self, finished: bool = True) -> None:
        """Ends the workers. `finished`: of several processes, waits for the others; else they are
        told that this one gave up."""
        self._steps.finish()
        self._end.detach()
        if self._program is not None:
            reachable = finished or self._processes == 1
            self._program.end(reachable, "the runner was closed while others went on")
        self._native.close(finished)

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, kind: Any, _error: Any, _trace: Any) -> None:
        self.close(finished=kind is None)

    # ---- tensors of the workers ----

    def _start(self, constants: dict[str, torch.Tensor]) -> None:
        """From the model's parameters and buffers and the optimizer's state."""
        workers, names = self._workers, constants | self._names_of_model()
        state, self._program.steps = self._state.initial()
        for name in workers.places:
            if workers.role(name) != "optimizer_state":
                value = names[name] if name in names else buffer_from_file(workers.entry(name))
                workers.put(name, value)
        workers.start_optimizer_state(state)

    def _put(self, name: str, value: torch.Tensor) -> None:
        """Into the workers, or into the model where they do not know it."""
        if name in self._workers:
            self._workers.put(name, value)
            self._program.write(name, value)
        else:
            with torch.no_grad():
                self._names_of_model()[name].copy_(value)

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
