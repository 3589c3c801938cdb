"""Exports one architecture; measure.py runs it in a process of its own, which has these imports."""

import os
import resource
import sys
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch  # noqa: E402
from tables import entry_named  # noqa: E402

import heterog  # noqa: E402


def _not_of_pytorch(entry) -> str:
    """The line with which PyTorch itself refuses the step, if it does."""
    try:
        torch.manual_seed(0)
        entry.loss_fn(entry.build(), *entry.make_inputs(4)).backward()
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0][:500]
        return f"{type(error).__name__}: {line}"
    return ""


def export_entry(name: str, out: str, dropout: bool, limit, answers) -> None:
    """Sends {"line": what was checked, …}, or {"refusal": the line}, or {"broken": …} where what
    stopped is not the exporter: a mistake of the table, or the library itself."""
    limit()
    traced = bool(os.environ.get("HETEROG_TRACEBACK"))
    if not traced:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries warn of much
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    entry = entry_named(name)
    try:
        torch.manual_seed(0)
        model = entry.build()
        step = heterog.export_training_step(
            model, entry.make_inputs, entry.loss_fn, entry.optimizer, name.replace("/", "-"),
            dropout=dropout, check=None if entry.heavy else True)  # fmt: skip
        step.save(out)
        answer = {"line": step.checked, "operators": len(step.graph["ops"]),
                  "parameters": sum(p.numel() for p in model.parameters())}  # fmt: skip
    except Exception as error:
        if traced:
            traceback.print_exc()
        line = (str(error).strip().splitlines() or [""])[0][:500]
        own = isinstance(error, heterog.HeterogError)
        broken = _not_of_pytorch(entry) if own else f"{type(error).__name__}: {line}"
        answer = {"broken": broken} if broken else {"refusal": line}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    answers.send(answer | {"seconds": usage.ru_utime + usage.ru_stime})
