"""Where a trace stopped, and why, in one line that a person can act on."""

import os
import re
import traceback

import torch

from heterog.base.errors import ExportError
from heterog.base.own_files import PACKAGE
from heterog.export.graph.recorder import Recorder

# Of classes: MixtralSparseMoeBlock, Glm4MoeMoE, GptOssExperts; not Qwen3MoeForCausalLM around them.
_EXPERTS = re.compile(r"(Moe|MoE|MOE)(Block|Layer|Gate)?$|Experts?$|Router$")


def explain(error: Exception, recorder: Recorder, model: torch.nn.Module) -> ExportError:
    """The one line that a person can act on, from whatever the trace stopped at."""
    where, path = place_of(error, recorder, model)
    name = type(error).__name__
    reason = str(error).strip().split("\n")[0][:200]
    asks = ("DataDependent", "DynamicOutputShape", "_local_scalar_dense", "AskedNumber")
    if any(word in name or word in reason for word in asks):
        if _routes(model, path):
            return ExportError(
                f"{where}: which tokens an expert gets depends on the data, so the sizes of its "
                "operators do; give every expert all tokens, weighed by the router (zero where it "
                "was not chosen), or a fixed number of tokens (a capacity, by topk and gather)"
            )
        return ExportError(
            f"{where}: the step reads the value of a tensor (.item(), if, nonzero or a mask as an "
            "index), so its operators depend on the data; compute it with tensors "
            "(torch.where) or take it out of the step"
        )
    return ExportError(f"{where}: {name}: {reason}")


def _routes(model: torch.nn.Module, path: str) -> bool:
    """Whether a module, or one around it, is a mixture of experts, as such are called."""
    names = path.split(".") if path else []
    around = [model.get_submodule(".".join(names[:n])) for n in range(len(names) + 1)]
    return any(_EXPERTS.search(type(module).__name__) for module in around)


def place_of(error: Exception, recorder: Recorder, model: torch.nn.Module) -> tuple[str, str]:
    """Where a trace stopped, in words, and the path of the module that ran."""
    where = python_line(error)
    module = recorder.stack[-1] if recorder.stack else ""
    if module:
        where = f"{where} in module {module} ({type(model.get_submodule(module)).__name__})"
    return where, module


def python_line(error: BaseException) -> str:
    """`file.py:12` of the innermost frame that is neither torch's nor the exporter's."""
    packages = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    library = None
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.abspath(frame.filename)
        if path.startswith((os.path.join(packages, "torch") + os.sep, f"{PACKAGE}{os.sep}")):
            continue
        if path.startswith((packages + os.sep, os.path.dirname(os.__file__) + os.sep)):
            library = library or f"{os.path.basename(path)}:{frame.lineno}"
            continue
        if not os.path.exists(path):
            continue
        return f"{os.path.basename(path)}:{frame.lineno}"
    return library or "model"
