"""The C++ library as Python reaches it, by ctypes."""

import atexit
import ctypes
import logging
import math
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

import torch

from heterog.base.errors import HeterogError, InputError, LossNotFinite
from heterog.base.own_files import PACKAGE
from heterog.base.reading import read_text
from heterog.base.version import NO_LIBRARY, libraries, library_for, native_packages, planner, wrong_torch

_API_VERSION = 8
_CHECKOUT = PACKAGE.resolve().parent.parent


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("graph", ctypes.c_char_p),
        ("cluster", ctypes.c_char_p),
        ("plan", ctypes.c_char_p),
        ("collectives", ctypes.c_char_p),
        ("profiles", ctypes.POINTER(ctypes.c_char_p)),
        ("profile_count", ctypes.c_int32),
        ("more_graphs", ctypes.POINTER(ctypes.c_char_p)),
        ("more_graph_count", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("slow_devices", ctypes.POINTER(ctypes.c_char_p)),
        ("slow_factors", ctypes.POINTER(ctypes.c_int32)),
        ("slow_count", ctypes.c_int32),
        ("one_rank", ctypes.c_int32),
        ("earlier", ctypes.c_int32),
        ("any_device", ctypes.c_int32),
        ("timeout_seconds", ctypes.c_double),
        ("transport", ctypes.c_char_p),
        ("terms", ctypes.c_char_p),
        ("tune_process", ctypes.c_int32),
    ]


class _Info(ctypes.Structure):
    _fields_ = [
        ("batch", ctypes.c_int64),
        ("ranks", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("predicted_step_seconds", ctypes.c_double),
    ]


class _Device(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("model", ctypes.c_char_p),
        ("runs_on", ctypes.c_char_p),
    ]


class _Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_int64), ("end", ctypes.c_int64)]


@dataclass
class NativeOptions:
    """What a runner is made of: files, and how they are run."""

    graph: str
    cluster: str
    plan: str
    collectives: str = "per-device"
    profiles: list[str] = field(default_factory=list)
    more_graphs: list[str] = field(default_factory=list)  # of the same step, at other shapes
    threads: int = 0
    seed: int = 0
    slow: dict[str, int] = field(default_factory=dict)
    one_rank: bool = False
    any_device: bool = False
    timeout: float = 300.0
    transport: str = "tcp"
    terms: str = ""
    tune_process: bool = False


def find_library() -> str:
    """libheterog.so for the PyTorch that is loaded: HETEROG_LIBRARY, or the wheel's, or what this
    checkout has built."""
    given = os.environ.get("HETEROG_LIBRARY")
    if given and not os.path.isfile(given):
        raise HeterogError(f"HETEROG_LIBRARY: {given} is no file")
    if given:
        found = {_built_for(Path(given)): Path(os.path.abspath(given))}
    else:
        found = {name: folder / "libheterog.so" for name, folder in libraries(native_packages()).items()}
        found = found or _of_checkout()
    if not found and (_CHECKOUT / "src/client").is_dir():
        raise HeterogError(
            f"libheterog.so was not found in {_CHECKOUT / 'build'}; build it (scripts/build_release.sh), or set "
            "HETEROG_LIBRARY"
        )
    if not found:
        raise HeterogError(NO_LIBRARY)
    if wrong := wrong_torch(torch.__version__, found):
        raise HeterogError(wrong)
    return str(found[library_for(torch.__version__, found)])


def find_planner() -> str | None:
    """The library that plans and explains beside any PyTorch: the wheel's, or what this checkout has
    built."""
    if folder := planner(native_packages()):
        return str(folder / "libheterog.so")
    built = [_CHECKOUT / "build" / kind / "lib" / "libheterog_planner.so" for kind in ("release", "dev")]
    return next((str(library) for library in built if library.is_file()), None)


def _of_checkout() -> dict[str, Path]:
    """By the PyTorch that they were built with; of several for one, that of users."""
    found: dict[str, Path] = {}
    for kind in ("release", "dev"):
        for folder in sorted((_CHECKOUT / "build").glob(f"{kind}*")):
            library = folder / "lib" / "libheterog.so"
            if library.is_file():
                found.setdefault(_built_for(library), library)
    return found


def _built_for(library: Path) -> str:
    """What its build folder says (cmake/LibTorch.cmake); the pinned PyTorch where it says nothing."""
    try:
        return read_text(library.parent.parent / "torch-version").strip()
    except InputError:
        return "2.11"


_library: ctypes.CDLL | None = None
_Listener = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p)
LOGGER = logging.getLogger("heterog")  # what the library logs


@_Listener
def _hear(level: int, line: bytes) -> None:
    LOGGER.log(10 * level, "%s", line.decode(errors="replace"))


def load_library(planner_will_do: bool = False) -> ctypes.CDLL:
    """Loaded once; `import torch` has loaded the libraries that it needs. `planner_will_do`: where
    none is for this PyTorch, that of the planner, which runs nothing."""
    global _library
    if _library is not None and (planner_will_do or hasattr(_library, "heterog_open")):
        return _library
    try:
        path = find_library()
    except HeterogError:
        instead = find_planner() if planner_will_do and not os.environ.get("HETEROG_LIBRARY") else None
        if instead is None:
            raise
        path = instead
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        if re.search(r"lib(torch_cuda|c10_cuda|cudart|nccl)\b", str(error)):
            raise HeterogError(
                f"{path} is built for CUDA 13, and torch {torch.__version__} is not ({error}): install "
                "torch for CUDA 13, or heterog in place of heterog-cu13"
            ) from error
        raise HeterogError(
            f"{path} cannot be loaded with torch {torch.__version__}: {error}; it must be built "
            "with the version that is installed"
        ) from error
    library.heterog_last_error.restype = ctypes.c_char_p
    version = library.heterog_api_version()
    if version != _API_VERSION:
        raise HeterogError(
            f"{path} has interface {version}, this package needs {_API_VERSION}; build it again"
        )
    if not planner_will_do and not hasattr(library, "heterog_open"):
        raise HeterogError(f"{path} is the library of the planner alone; what runs plans is libheterog.so")
    number = ctypes.POINTER(ctypes.c_int32)
    library.heterog_run_verb.argtypes = [
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.c_int32,
        number,
        ctypes.POINTER(ctypes.c_char_p),
    ]
    library.heterog_log_to.argtypes = [_Listener]
    library.heterog_log_to.restype = None
    library.heterog_log_to(_hear)
    atexit.register(library.heterog_log_to, _Listener())  # Python cannot be called any more then
    library.heterog_xxh3.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.heterog_xxh3.restype = ctypes.c_uint64
    if hasattr(library, "heterog_open"):
        _declare_runner(library)
    _library = library
    return library


def _declare_runner(library: ctypes.CDLL) -> None:
    runner = ctypes.c_void_p
    number = ctypes.POINTER(ctypes.c_int32)
    value = ctypes.POINTER(ctypes.c_double)
    library.heterog_open.argtypes = [ctypes.POINTER(_Options), ctypes.POINTER(runner)]
    library.heterog_close.argtypes = [runner, ctypes.c_int32]
    library.heterog_get_info.argtypes = [runner, ctypes.POINTER(_Info)]
    library.heterog_get_device.argtypes = [runner, ctypes.c_int32, ctypes.POINTER(_Device)]
    library.heterog_is_kept.argtypes = [runner, ctypes.c_uint32, number]
    library.heterog_set.argtypes = [runner, ctypes.c_uint32, ctypes.POINTER(_Tensor)]
    library.heterog_get.argtypes = [runner, ctypes.c_uint32, ctypes.POINTER(_Tensor)]
    library.heterog_launch.argtypes = [
        runner,
        ctypes.c_int64,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_uint32),
        ctypes.POINTER(_Tensor),
        ctypes.c_int32,
        ctypes.c_int32,
    ]
    library.heterog_finish.argtypes = [runner, value, value]
    library.heterog_get_rows.argtypes = [
        runner,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.POINTER(_Range),
        ctypes.c_int32,
        number,
    ]
    library.heterog_get_output.argtypes = library.heterog_get.argtypes
    library.heterog_add_up.argtypes = [runner, value, ctypes.c_int32]
    library.heterog_meet.argtypes = [runner, ctypes.c_int32, number]


def xxh3(buffer) -> int:
    """The checksum of files; `buffer` can be written to, as a bytearray."""
    memory = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    try:
        return load_library(planner_will_do=True).heterog_xxh3(ctypes.addressof(memory), len(buffer))
    finally:
        del memory  # else a map of a file could not be closed


def _view(tensor: torch.Tensor) -> _Tensor:
    """The memory of a contiguous tensor, which must outlive the view."""
    sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    name = str(tensor.dtype).removeprefix("torch.").encode()
    return _Tensor(tensor.data_ptr(), sizes, tensor.dim(), name, str(tensor.device).encode())


def _texts(values) -> ctypes.Array:
    return (ctypes.c_char_p * len(values))(*[value.encode() for value in values])


class NativeRunner:
    """The workers of a plan. Tensors are named by their place in the graph file."""

    _made = 0  # in this process

    def __init__(self, options: NativeOptions):
        self._library = load_library()
        self._handle = ctypes.c_void_p()
        self._turn = threading.RLock()  # the library takes one call of a runner at a time
        given = _Options(
            graph=os.fsencode(options.graph),
            cluster=os.fsencode(options.cluster),
            plan=os.fsencode(options.plan),
            collectives=options.collectives.encode(),
            profiles=_texts(options.profiles),
            profile_count=len(options.profiles),
            more_graphs=_texts(options.more_graphs),
            more_graph_count=len(options.more_graphs),
            threads=options.threads,
            seed=options.seed,
            slow_devices=_texts(list(options.slow)),
            slow_factors=(ctypes.c_int32 * len(options.slow))(*options.slow.values()),
            slow_count=len(options.slow),
            one_rank=options.one_rank,
            earlier=NativeRunner._made,
            any_device=options.any_device,
            timeout_seconds=options.timeout,
            transport=options.transport.encode(),
            terms=options.terms.encode(),
            tune_process=options.tune_process,
        )
        NativeRunner._made += 1
        self._call("open", ctypes.byref(given), ctypes.byref(self._handle))
        info = _Info()
        self._call("get_info", self._handle, ctypes.byref(info))
        self.batch: int = info.batch
        self.ranks: int = info.ranks
        self.rank: int = info.rank
        self.predicted_step_seconds: float = info.predicted_step_seconds

    def _call(self, name: str, *arguments) -> None:
        with self._turn:
            code = getattr(self._library, f"heterog_{name}")(*arguments)
        if code != 0:
            raise HeterogError(self._library.heterog_last_error().decode(errors="replace"), code)

    def devices(self) -> dict[str, str]:
        """Of the plan, in the order of ranks: name → what runs it, "cpu" or "cuda:0"."""
        found = {}
        for rank in range(self.ranks):
            device = _Device()
            self._call("get_device", self._open(), rank, ctypes.byref(device))
            found[device.name.decode()] = device.runs_on.decode()
        return found

    def keeps(self, index: int) -> bool:
        """Whether any rank keeps this tensor between steps."""
        kept = ctypes.c_int32()
        self._call("is_kept", self._open(), index, ctypes.byref(kept))
        return bool(kept.value)

    def set(self, index: int, value: torch.Tensor) -> None:
        value = value.detach().cpu().contiguous()
        self._call("set", self._open(), index, ctypes.byref(_view(value)))

    def get(self, index: int, value: torch.Tensor) -> torch.Tensor:
        """Fills `value`: contiguous, with the tensor's own shape and dtype."""
        self._call("get", self._open(), index, ctypes.byref(_view(value)))
        return value

    def output(self, index: int, value: torch.Tensor) -> torch.Tensor:
        """Fills `value`, as get() does, with what the last step made of an output."""
        self._call("get_output", self._open(), index, ctypes.byref(_view(value)))
        return value

    def add_up(self, numbers: list[float]) -> list[float]:
        """Their sums over all processes."""
        places = (ctypes.c_double * len(numbers))(*numbers)
        self._call("add_up", self._open(), places, len(numbers))
        return list(places)

    def rows(self, graph: int, samples: int) -> list[tuple[int, int]]:
        """Which of so many samples the ranks of this process read: from, and up to below."""
        count = ctypes.c_int32()
        found = (_Range * samples)()
        arguments = (graph, samples, found, len(found), ctypes.byref(count))
        self._call("get_rows", self._open(), *arguments)
        return [(one.begin, one.end) for one in found[: count.value]]

    def launch(
        self,
        number: int,
        graph: int,
        samples: int,
        inputs: dict[int, torch.Tensor],
        own_rows: bool = False,
    ) -> None:
        """Begins a step of a graph (0: the first) on so many samples; finish() waits for it. Inputs
        are contiguous, on the CPU or on GPUs. `own_rows`: they hold values in the rows of rows()
        alone."""
        count = len(inputs)
        indices = (ctypes.c_uint32 * count)(*inputs)
        views = (_Tensor * count)(*[_view(tensor) for tensor in inputs.values()])
        self._call(
            "launch", self._open(), number, graph, samples, indices, views, count, own_rows
        )

    def finish(self) -> tuple[float, float]:
        """Loss and seconds of the earliest step that was launched and not finished; of two at most."""
        loss, seconds = ctypes.c_double(), ctypes.c_double()
        try:
            self._call("finish", self._open(), ctypes.byref(loss), ctypes.byref(seconds))
        except HeterogError as error:
            if math.isnan(loss.value):
                raise LossNotFinite(str(error), error.code) from None
            raise
        return loss.value, seconds.value

    def meet(self, own: int) -> int:
        """Waits for all ranks; the largest number that any of them gives."""
        worst = ctypes.c_int32()
        self._call("meet", self._open(), own, ctypes.byref(worst))
        return worst.value

    def close(self, finished: bool) -> None:
        """`finished`: waits for the other ranks, which else are told that this one gave up."""
        if not self._handle:
            return
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._call("close", handle, finished)

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise HeterogError("the runner is closed; make another")
        return self._handle
