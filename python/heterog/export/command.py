"""The command `python -m heterog.export`: writes the training step that a Python file describes."""

import argparse
import importlib.util
import os
import sys
import traceback

from heterog.base.arguments import make_parser
from heterog.base.errors import ExporterLimit, ExportError, HeterogError, RunFailed, unexpected
from heterog.export.step import export_training_step
from heterog.export.training_step import TrainingStep

_EXAMPLE = """\
example: mlp.py holds

    import torch

    def training():
        return dict(
            model=torch.nn.Linear(32, 10),
            make_inputs=lambda batch: (torch.randn(batch, 32), torch.randint(0, 10, (batch,))),
            loss_fn=lambda model, x, y: torch.nn.functional.cross_entropy(model(x), y),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            name="mlp",
        )

and  python -m heterog.export mlp.py:training --out mlp.json.gz  writes its graph.
model may be a function that builds the model; then large weights take no memory.

exit codes: 0 done, 2 bad usage or a model that cannot be exported, 1 a limit or a bug of the
exporter (HETEROG_TRACEBACK=1 in the environment prints where)
"""
_FIELDS = ("model", "make_inputs", "loss_fn", "optimizer", "name")


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    try:
        fields = _load(options.source)
        if options.name:
            fields["name"] = options.name
        directory = os.path.dirname(os.path.abspath(options.out))
        if not os.path.isdir(directory):
            raise RunFailed(f"--out: {directory} is no directory; make it first")
        step = export_training_step(
            **fields,
            batches=options.batches,
            dropout=not options.no_dropout,
            double=options.double,
            autocast=options.autocast,
            param_dtype=options.param_dtype,
            reduce_dtype=options.reduce_dtype,
            clip_norm=options.clip_norm,
            gradient_norm=options.gradient_norm,
            batch_norm="exact" if options.exact_batch_norm else "per-slice",
            attention=options.attention,
            loss_scaling=False if options.no_loss_scaling else None,
            momentum_input=options.momentum_input,
            fused_update=not options.no_fused_update,
            check=options.check,
            cache=options.cache,
        )
        _save(step, options.out)
    except ExportError as error:
        limit = isinstance(error, ExporterLimit)
        _complain(error if limit else None, str(error))
        return 1 if limit else 2
    except HeterogError as error:
        _complain(None, str(error))
        return error.code
    except OSError as error:
        _complain(None, f"{error.filename}: {error.strerror}")
        return 2
    except Exception as error:
        _complain(error, str(unexpected("heterog.export", error)))
        return 1
    graph = step.graph
    if step.untrained:
        names = ", ".join(step.untrained[:3]) + (", …" if len(step.untrained) > 3 else "")
        print(
            f"{options.out}: the loss does not depend on {len(step.untrained)} "
            f"parameter{'s' if len(step.untrained) > 1 else ''}, which stay as they are: {names}",
            file=sys.stderr,
        )
    print(
        f"{options.out}: {graph['name']}, {len(graph['ops'])} operators, "
        f"{len(graph['tensors'])} tensors; {step.checked}",
        file=sys.stderr,
    )
    return 0


def _save(step: TrainingStep, out: str) -> None:
    try:
        step.save(out)
    except OSError as error:
        raise RunFailed(f"{out} cannot be written: {error.strerror}") from error


def _complain(error: Exception | None, line: str) -> None:
    """One line; of what nobody foresaw also where it was, if that is asked for."""
    if error is not None and os.environ.get("HETEROG_TRACEBACK"):
        traceback.print_exception(error)
    print(f"heterog.export: {line}", file=sys.stderr)


def _parse(arguments):
    parser = make_parser(
        prog="python -m heterog.export",
        description="Exports one training step (forward, backward, update) as a graph file.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "source",
        metavar="FILE.py:FUNCTION",
        help="a function without arguments that returns a dict, or an object, with "
        + ", ".join(_FIELDS),
    )
    parser.add_argument("--out", required=True, metavar="F", help="the .json.gz to write")
    parser.add_argument("--name", help="name of the graph, instead of the function's")
    parser.add_argument(
        "--batches",
        type=int,
        nargs="+",
        metavar="N",
        help="batch sizes to trace at, three or more; the graph holds from the smallest on "
        "(default: 2 3 64, else 4 5 64)",
    )
    parser.add_argument("--no-dropout", action="store_true", help="as if every rate were 0")
    parser.add_argument("--double", action="store_true", help="parameters and inputs in float64")
    parser.add_argument("--autocast", choices=["bfloat16", "float16"],
                        help="forward under torch.autocast; float16 with a dynamic loss scale")  # fmt: skip
    parser.add_argument("--param-dtype", choices=["bfloat16", "float16"],
                        help="compute with copies of the float32 parameters in this precision")  # fmt: skip
    parser.add_argument("--reduce-dtype", choices=["float32", "bfloat16", "float16"],
                        help="with --param-dtype: of gradients, as they are summed (default: float32)")  # fmt: skip
    parser.add_argument(
        "--clip-norm", type=float, metavar="X", help="clip gradients to this global 2-norm"
    )
    parser.add_argument(
        "--gradient-norm",
        action="store_true",
        help="the global 2-norm of the gradients, before clipping, is an output of the step",
    )
    parser.add_argument(
        "--exact-batch-norm",
        action="store_true",
        help="batch normalisation by the statistics of the whole batch, however it is sliced",
    )
    parser.add_argument(
        "--no-loss-scaling", action="store_true", help="float16 without a loss scale"
    )
    parser.add_argument(
        "--attention",
        choices=["one", "math"],
        default="one",
        help="scaled_dot_product_attention as one operator, or written out (default: one)",
    )
    parser.add_argument(
        "--momentum-input",
        action="store_true",
        help="the momentum (or the first of betas) is an input of the step, as the rate is",
    )
    parser.add_argument(
        "--no-fused-update",
        action="store_true",
        help="Adam, AdamW and SGD operator by operator, not by one kernel",
    )
    parser.add_argument(
        "--cache",
        metavar="FOLDER",
        help="keep the step there, and take it from there while nothing that it depends on has "
        "changed",
    )
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        help="compare the graph with eager PyTorch on random data before it is written (default: if "
        "it takes a few seconds)",
    )
    return parser.parse_args(arguments)


def _load(source: str) -> dict:
    """The fields that FUNCTION of FILE.py returns."""
    path, colon, function = source.rpartition(":")
    if not colon or not function.isidentifier():
        raise ExportError(f"{source}: expected FILE.py:FUNCTION")
    if not os.path.isfile(path):
        raise ExportError(f"{path}: no such file")
    directory = os.path.dirname(os.path.abspath(path))
    if directory not in sys.path:
        sys.path.insert(0, directory)
    spec = importlib.util.spec_from_file_location("heterog_exported", path)
    if spec is None or spec.loader is None:
        raise ExportError(f"{path}: not a Python file; give FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules["heterog_exported"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ExportError(f"{path}: importing it stopped at {_brief(error)}") from error
    make = getattr(module, function, None)
    if not callable(make):
        raise ExportError(f"{path}: it defines no function {function}")
    try:
        made = make()
    except Exception as error:
        raise ExportError(f"{path}: {function}() stopped at {_brief(error)}") from error
    found = made if isinstance(made, dict) else _attributes(made)
    fields = {key: found[key] for key in _FIELDS if key in found}
    fields.setdefault("name", function)
    missing = [key for key in _FIELDS if key not in fields]
    if missing:
        raise ExportError(
            f"{path}: {function}() returned no {missing[0]}; it must return a dict or an object "
            f"with {', '.join(_FIELDS)}"
        )
    return fields


def _attributes(made) -> dict:
    return {key: getattr(made, key) for key in _FIELDS if hasattr(made, key)}


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
