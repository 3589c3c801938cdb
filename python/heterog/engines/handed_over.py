"""The file of `heterog hand-over --to torch-pipelining`."""

from dataclasses import dataclass

from heterog.base.errors import InputError
from heterog.base.reading import read_json
from heterog.base.values import as_int, as_list, as_object, as_string, check_format, required, shown

SCHEDULES = ("Schedule1F1B", "ScheduleGPipe", "csv")
# All that `hand-over` writes: what else a file says would have to be heeded.
FIELDS = (
    "format", "version", "to", "graph", "cluster", "batch", "micro_batches", "samples", "schedule", "stages",
    "step_seconds", "feasible", "free_step_seconds", "changes",
)  # fmt: skip
STAGE_FIELDS = ("devices", "begins", "modules")


@dataclass(frozen=True)
class HandedOver:
    """Stages of a model, by the names of its modules.

    Each stage is on as many devices, the replicas: the first device of every stage takes the first
    part of each micro-batch, and so on. Ranks go stage by stage, in a stage replica by replica.

    samples   of a micro-batch that each replica takes
    modules   of each stage, the modules that it alone runs
    begins    of each stage but the first, the module whose first argument the stage before hands on
    """

    path: str
    batch: int
    micro_batches: int
    samples: tuple[int, ...]
    schedule: str  # a class of torch.distributed.pipelining; "csv": none, a file has its order
    modules: tuple[tuple[str, ...], ...]
    begins: tuple[str, ...]

    @property
    def micro_batch(self) -> int:
        return self.batch // self.micro_batches

    @property
    def replicas(self) -> int:
        return len(self.samples)

    @property
    def ranks(self) -> int:
        return len(self.modules) * self.replicas

    def rows(self, replica: int) -> slice:
        """Of a micro-batch, those of a replica."""
        begin = sum(self.samples[:replica])
        return slice(begin, begin + self.samples[replica])

    def stage_of(self, name: str) -> int | None:
        """The stage that has the parameter or module of this name; None if all run it."""
        for stage, modules in enumerate(self.modules):
            if any(name == module or name.startswith(module + ".") for module in modules):
                return stage
        return None


def read_handed_over(path) -> HandedOver:
    source = f"{path}"
    found = as_object(read_json(path), source)
    check_format(found, source, "heterog-hand-over", 2)
    _check_fields(found, FIELDS, source)
    to = as_string(required(found, "to", source), f"{source}: to")
    if to != "torch-pipelining":
        raise InputError(f'{source}: to: "{to}"; expected what `--to torch-pipelining` writes')
    batch = as_int(required(found, "batch", source), f"{source}: batch", 1, 1 << 31)
    micro = as_int(required(found, "micro_batches", source), f"{source}: micro_batches", 1, batch)
    if batch % micro:
        raise InputError(f"{source}: micro_batches: {micro} of a batch of {batch}; expected a divisor of it")
    samples = _samples(required(found, "samples", source), batch // micro, f"{source}: samples")
    schedule = as_string(required(found, "schedule", source), f"{source}: schedule")
    if schedule not in SCHEDULES:
        raise InputError(f'{source}: schedule: "{schedule}"; expected {" or ".join(SCHEDULES)}')
    modules: list[tuple[str, ...]] = []
    begins: list[str] = []
    stages = as_list(required(found, "stages", source), f"{source}: stages")
    for number, stage in enumerate(stages):
        where = f"{source}: stages[{number}]"
        fields = as_object(stage, where)
        _check_fields(fields, STAGE_FIELDS, where)
        devices = as_list(required(fields, "devices", where), f"{where}.devices")
        if len(devices) != len(samples):
            raise InputError(f"{where}.devices: {len(devices)}; expected {len(samples)}, one for each of `samples`")
        names = as_list(required(fields, "modules", where), f"{where}.modules")
        modules.append(tuple(as_string(name, f"{where}.modules[{i}]") for i, name in enumerate(names)))
        if number:
            begins.append(as_string(required(fields, "begins", where), f"{where}.begins"))
    if len(modules) < 2:
        raise InputError(f"{source}: stages: {len(modules)}; expected at least 2")
    return HandedOver(source, batch, micro, samples, schedule, tuple(modules), tuple(begins))


def _samples(value, micro_batch: int, where: str) -> tuple[int, ...]:
    each = as_list(value, where)
    samples = tuple(as_int(one, f"{where}[{i}]", 1, micro_batch) for i, one in enumerate(each))
    if sum(samples) != micro_batch:
        raise InputError(f"{where}: {sum(samples)} together; expected the {micro_batch} of a micro-batch")
    return samples


def _check_fields(fields: dict, known: tuple[str, ...], where: str) -> None:
    for key in fields:
        if key not in known:
            raise InputError(f"{where}: unknown field {shown(key)}; expected what this version's hand-over writes")
