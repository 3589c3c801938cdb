"""The model and the optimizer of a program beside a runner, whose workers train them.

    hand_over()   before a step: the workers get what the program has written since the last one
    end_step()    the newest values are theirs
    bring()       the program has them
"""

import threading
from collections.abc import Callable

import torch

from heterog.base.errors import HeterogError
from heterog.run.lazy_state import OptimizerMirror
from heterog.run.mirror import Mirror
from heterog.run.optimizer_state import OptimizerState
from heterog.run.worker_tensors import WorkerTensors

# What a process says before a step: which of its tensors it may have written.
_STILL, _MODEL, _OPTIMIZER = 1, 2, 4


class ProgramState:
    def __init__(
        self,
        model: torch.nn.Module,
        state: OptimizerState,
        workers: WorkerTensors,
        lock: threading.RLock,
        meet: Callable[[int], int] | None,
    ):
        """lock   of the runner
        meet   where other processes have workers too: the largest number that any of them gives"""
        self._model, self._state, self._workers = model, state, workers
        self._meet = meet
        self.steps = 0  # done
        self.lock = lock
        self._places = places_of(model)
        tensors = {
            name: place[key] for name, place, key in self._places if name in workers
        }
        written = {name: t for name, t in tensors.items() if name in workers.written}
        still = {name: t for name, t in tensors.items() if name not in workers.written}
        alone, put = meet is None, workers.put_if_other
        self._still = Mirror("model", still, None, put, self.lock, alone)
        self._trained = Mirror("model", written, workers.fetch, put, self.lock, alone)
        self._optimizer = OptimizerMirror(
            state, workers, lambda: self.steps,
            lambda found, bring: Mirror(
                "optimizer", found, workers.fetch, put, self.lock, alone, bring=bring
            ),
        )  # fmt: skip
        self._mirrors = (self._still, self._trained, self._optimizer)
        self._others = any(name not in workers for name, _, _ in self._places)
        self._ids = self._now()
        self._looked = False

    def was_looked_at(self) -> bool:
        """Whether the program may have seen, and changed, a parameter since this was asked last."""
        self._note_looks()
        looked, self._looked = self._looked, False
        return looked

    def _note_looks(self) -> None:
        mirrors = (self._still, self._trained)
        self._looked |= self._others or any(not m.away or m.is_shared for m in mirrors)

    def _now(self) -> list[int]:
        return [id(place.get(key)) for _, place, key in self._places]

    def leave(self) -> None:
        with self.lock:
            for mirror in self._mirrors:
                mirror.leave()
            self.end_step()

    def hand_over(self) -> None:
        """The workers get what the program has written; `steps`, what its optimizer counts."""
        with self.lock:
            self._note_looks()
            self.bind()
            own = (
                _STILL * self._still.may_differ
                + _MODEL * self._trained.may_differ
                + _OPTIMIZER * self._optimizer.may_differ
            )
            given = own if self._meet is None else self._agreed(own)
            if given & _STILL:
                self._still.hand_over()
            if given & _MODEL:
                self._trained.hand_over()
            if given & _OPTIMIZER:
                values, found = self._optimizer.read()
                self._workers.put_optimizer_state(values)
                self.steps = self._state.steps_after_reading(found, self.steps)
                self._optimizer.leave()

    def _agreed(self, own: int) -> int:
        """Of several processes, what is handed over by all of them at once."""
        told = self._meet(own)
        if told <= _STILL:
            return told
        if -self._meet(-(own | _STILL)) != told | _STILL:
            raise HeterogError(
                "model, optimizer: this process or another has written into them since the last step, "
                "and not all have; every process does the same to them"
            )
        return told | _STILL

    def end_step(self) -> None:
        with self.lock:
            if self._meet is not None:
                shared = self._trained.is_shared or self._optimizer.is_shared
                if self._meet(int(shared)):
                    self._trained.bring()
                    self._optimizer.bring()
                return
            self._trained.after_step()
            self._optimizer.after_step()

    def bring_model(self) -> None:
        self.bind()
        self._trained.bring()

    def take_from_workers(self) -> None:
        """Of tensors that no step writes, what rank 0 began with."""
        for name, value in self._workers.fetch(list(self._still.tensors)).items():
            self.write(name, value)

    def write(self, name: str, value: torch.Tensor) -> None:
        """What the workers have been given of a tensor, where no look would bring it."""
        if name in self._still.tensors:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
                self._still.tensors[name].copy_(value)

    def bring(self) -> None:
        with self.lock:
            for mirror in self._mirrors:
                mirror.bring()

    def end(self, reachable: bool, why: str) -> None:
        """The program has its own from now on, if the workers can still be asked."""
        with self.lock:
            try:
                if reachable:
                    self.bring()
                    return
            except HeterogError as error:
                why = f"{why} ({error})"
            for mirror in self._mirrors:
                mirror.lose(
                    f"model, optimizer: {why}, and the newest values went with its workers; load a "
                    "checkpoint"
                )

    def bind(self) -> None:
        """Buffers and attributes that are other tensors now: what they hold was written."""
        if self._now() == self._ids:
            return
        parameters = {id(place) for place in _parameter_dicts(self._model)}
        for (name, place, key), known in zip(self._places, self._ids, strict=True):
            tensor = place.get(key)
            if id(tensor) == known:
                continue
            mirror = next((m for m in (self._still, self._trained) if name in m.tensors), None)
            if not isinstance(tensor, torch.Tensor):
                raise HeterogError(f"model: it has no '{name}' any more; make another runner")
            if mirror is not None:
                mirror.replace(name, tensor, may=id(place) not in parameters)
        self._ids = self._now()


def places_of(model: torch.nn.Module) -> list[tuple[str, dict, str]]:
    """Where the tensors of a model stand, by the names that graphs give them; one that stands in
    several places has the name of the first."""
    found, names = [], {}
    for kind in ("_parameters", "_buffers", "__dict__"):
        for path, module in model.named_modules():
            place = getattr(module, kind)
            for key, value in place.items():
                if not isinstance(value, torch.Tensor):
                    continue
                name = f"{path}.{key}" if path else key
                if kind != "__dict__":
                    name = names.setdefault(id(value), name)
                elif isinstance(value, torch.nn.Parameter):
                    continue
                found.append((name, place, key))
    return found


def _parameter_dicts(model: torch.nn.Module) -> list[dict]:
    return [module._parameters for module in model.modules()]
