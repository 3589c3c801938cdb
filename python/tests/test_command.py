"""The command `heterog` of the wheel, and which PyTorch what runs with."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import heterog
import heterog_command
from heterog.base import native
from heterog.base.version import (
    EXPORTER_FROM, NO_LIBRARY, PYTHON_FROM, VERSION, libraries, library_for, minor_version, native_packages, too_old,
    wrong_torch,
)  # fmt: skip

ROOT = Path(__file__).parents[2]


def install(monkeypatch, folder: Path, *libraries: str, package: str = "heterog_native") -> Path:
    """As a wheel does: its package, with libraries for these versions of PyTorch."""
    for name in libraries:
        (folder / package / name).mkdir(parents=True)
    (folder / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    return folder.resolve() / package


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A wheel of two libraries, and what has been started."""
    started = []
    monkeypatch.setattr(heterog_command.os, "execve", lambda *how: started.append(how))
    return install(monkeypatch, tmp_path, "torch-2.11", "torch-2.15"), started


def run_command(monkeypatch, torch_version: str, *words: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: torch_version)
    monkeypatch.setattr(sys, "argv", ["heterog", *words])
    heterog_command.main()


@pytest.mark.parametrize(
    "version, folder",
    [("2.11.0", "torch-2.11"), ("2.12.1+cpu", "torch-2.11"), ("2.15.0+cu132", "torch-2.15")],
)
def test_starts_the_program_for_the_installed_torch(monkeypatch, package, version, folder):
    path, started = package
    for given, expected in ((None, sys.executable), ("/opt/python", "/opt/python")):
        if given:
            monkeypatch.setenv("HETEROG_PYTHON", given)
        else:
            monkeypatch.delenv("HETEROG_PYTHON", raising=False)
        run_command(monkeypatch, version, "plan", "--out", "x")
        program, arguments, environment = started[-1]
        assert program == path / folder / "heterog"
        assert arguments == [str(program), "plan", "--out", "x"]
        assert environment["HETEROG_PYTHON"] == expected
        assert environment["LD_LIBRARY_PATH"].split(":")[0] == str(path / folder)


def test_refuses_a_version_of_torch_that_no_library_is_for(monkeypatch, package, capsys):
    for version in ("2.4.1", "2.10.0", "2.13.0+cpu", "3.0", "strange"):
        with pytest.raises(SystemExit) as ended:
            run_command(monkeypatch, version, "plan", "--out", "x")
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert f"torch {version} is installed" in said and said.count("\n") == 1
        if minor_version(version) < EXPORTER_FROM:
            assert "needs torch 2.11 or newer" in said
            continue
        assert "2.11 and 2.12 and 2.15" in said
        assert "pip install 'torch==2.15.*'" in said
        assert f"build_wheel.sh --torch {version.split('+')[0]}" in said
    assert package[1] == []


def test_the_planner_serves_any_torch(monkeypatch, package, capsys):
    """What it has not is refused with what to install."""
    path, started = package
    (path / "planner").mkdir()
    for version in ("2.4.1", "2.13.0+cpu", "3.0"):
        run_command(monkeypatch, version, "plan", "--out", "x")
        program, arguments, environment = started[-1]
        assert program == path / "planner" / "heterog" and arguments[1:] == ["plan", "--out", "x"]
        assert environment["LD_LIBRARY_PATH"].split(":")[0] == str(path / "planner")
        for verb in heterog_command._WITH_TORCH:
            with pytest.raises(SystemExit):
                run_command(monkeypatch, version, verb)
            assert f"torch {version} is installed" in capsys.readouterr().err
    assert len(started) == 3
    run_command(monkeypatch, "2.11.0", "plan")
    assert started[-1][0] == path / "torch-2.11" / "heterog"


def test_without_a_library_one_line_says_which_wheel_has_it(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run_command(monkeypatch, "2.12.1", "plan", "--out", "x")
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"heterog: error: {NO_LIBRARY}\n"
    monkeypatch.delenv("HETEROG_LIBRARY", raising=False)
    monkeypatch.setattr(native, "_CHECKOUT", Path("/nowhere"))
    with pytest.raises(heterog.InputError, match="pip install heterog .or heterog-cu13 for GPUs., version 0"):
        native.find_library()


def test_libraries_lie_in_packages_of_their_own(monkeypatch, tmp_path):
    """So that no wheel has a file of another."""
    cpus = install(monkeypatch, tmp_path / "a", "torch-2.15", "torch-2.11")
    gpus = install(monkeypatch, tmp_path / "b", "torch-2.11-cuda", package="heterog_native_cu13")
    assert native_packages() == [gpus, cpus]
    found = libraries(native_packages())
    assert list(found) == ["2.11-cuda", "2.11", "2.15"]
    assert library_for("2.11.0+cu130", found) == "2.11-cuda" and library_for("2.12.1", found) == "2.11"
    assert found["2.11"] == cpus / "torch-2.11"


def test_verbs_in_python_need_no_library(monkeypatch, package, capsys):
    monkeypatch.delenv("HETEROG_PYTHON", raising=False)
    run_command(monkeypatch, "2.4.1", "discover", "--out", "x")
    program, arguments, _ = package[1][-1]
    assert program == sys.executable
    assert arguments == [sys.executable, "-m", "heterog.discover", "--out", "x"]
    with pytest.raises(SystemExit):  # the exporter is not for it, and says so
        run_command(monkeypatch, "2.4.1", "export", "x.py:f", "--out", "x")
    assert "needs torch 2.11 or newer" in capsys.readouterr().err
    run_command(monkeypatch, "2.13.0", "export", "x.py:f", "--out", "x")
    assert package[1][-1][1][:3] == [sys.executable, "-m", "heterog.export"]
    source = (ROOT / "src/cli/python_verbs.cc").read_text()
    assert heterog_command._VERBS == dict(re.findall(r'\{"([\w-]+)", "(heterog\.\w+)"', source))


def test_which_library_is_for_which_torch():
    both = ["2.11", "2.13"]
    for version, library in (("2.11.0", "2.11"), ("2.11.0+cu130", "2.11"), ("2.12.1+cpu", "2.11"),
                             ("2.12.0a0+git123", "2.11"), ("2.13.0", "2.13"), ("2.14.1", ""), ("2.10.2", ""),
                             ("3.11.0", ""), ("", "")):  # fmt: skip
        assert library_for(version, both) == library
        assert bool(wrong_torch(version, both)) == (library == "")
    assert library_for("2.12.1", ["2.11", "2.12"]) == "2.12"
    # On GPUs 2.12 has other tables of virtual functions.
    assert library_for("2.11.0+cu130", ["2.11-cuda"]) == "2.11-cuda"
    assert library_for("2.12.0+cu130", ["2.11-cuda"]) == ""


def test_pip_takes_no_torch_away():
    shares, plan = (project(file) for file in ("pyproject.toml", "native/pyproject.toml"))
    assert f"torch>={'.'.join(map(str, PYTHON_FROM))}" in shares["dependencies"]
    # Both wheels are of one version, each asks for the other's, and it is what files are signed with.
    assert plan["dependencies"] == [f"heterog-shares=={VERSION}"]
    assert shares["optional-dependencies"]["plan"] == [f"heterog=={VERSION}"]
    assert shares["version"] == plan["version"] == VERSION
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def project(file: str) -> dict:
    return tomllib.loads((ROOT / "python" / file).read_text(encoding="utf-8"))["project"]


def test_the_library_is_refused_beside_another_torch(monkeypatch):
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    with pytest.raises(heterog.HeterogError, match="torch 2.9.1 is installed"):
        native.load_library()


def test_the_library_is_the_one_for_the_loaded_torch(monkeypatch, tmp_path):
    package = install(monkeypatch, tmp_path, "torch-2.11", "torch-2.14")
    monkeypatch.delenv("HETEROG_LIBRARY", raising=False)
    monkeypatch.setattr(torch, "__version__", "2.14.1+cpu")
    assert native.find_library() == str(package / "torch-2.14" / "libheterog.so")
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    with pytest.raises(heterog.HeterogError, match="torch 2.13.0 is installed"):
        native.find_library()


def test_what_is_python_alone_loads_neither_the_exporter_nor_the_library():
    names = "auto_shares, weighted_gradients, UnevenBatchSampler, ShareSampler, uneven_trainer"
    script = (
        f"import sys; from heterog import {names}; import heterog.discover.command\n"
        "print([name for name in sys.modules if name.startswith(('heterog.export', 'heterog.base.native'))])"
    )
    environment = os.environ | {"HETEROG_LIBRARY": "/nowhere", "PYTHONPATH": str(ROOT / "python")}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert ran.stdout == "[]\n", ran.stderr


def test_an_old_torch_is_named_where_the_exporter_does_not_run(monkeypatch):
    assert too_old("2.11.0") == "" and "needs torch 2.11 or newer" in too_old("2.10.0+cpu")
    assert minor_version(torch.__version__) >= EXPORTER_FROM
    monkeypatch.setattr(torch, "__version__", "2.4.1")
    monkeypatch.setitem(sys.modules, "heterog.planning.verbs", None)  # as if an import in it failed
    monkeypatch.delitem(vars(heterog), "plan", raising=False)
    with pytest.raises(heterog.InputError, match=r"torch 2.4.1 is installed; .* needs torch 2.11"):
        heterog.plan  # noqa: B018

    def without_buffers(_name):
        raise AttributeError("module 'torch.nn' has no attribute 'Buffer'")

    monkeypatch.setattr(heterog.importlib, "import_module", without_buffers)
    with pytest.raises(heterog.InputError, match=r"torch 2.4.1 is installed; .* needs torch 2.11"):
        heterog.plan  # noqa: B018


def test_everything_that_is_named_is_there():
    for name in heterog.__all__:
        assert getattr(heterog, name) is not None
    assert set(heterog.__all__) <= set(dir(heterog))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        heterog.nothing  # noqa: B018
    # What type checkers are told is what is loaded.
    tree = ast.parse(Path(heterog.__file__).read_text(encoding="utf-8"))
    told = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in heterog.__all__
    }
    assert told == {name: f"heterog.{home}" for name, home in heterog._HOME.items()}


def test_submodules_are_attributes_of_the_package():
    code = "import heterog; assert heterog.writer.read_graph and heterog.export.__path__"
    subprocess.run([sys.executable, "-c", code], check=True)
