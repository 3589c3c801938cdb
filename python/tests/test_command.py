"""The command `heterog` of the wheel."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import heterog
import heterog_command
from heterog import native
from heterog.version import TORCH, wrong_torch


def test_verbs_in_python_run_in_the_interpreter_of_the_wheel(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "heterog").touch()
    started = []
    monkeypatch.setattr(heterog_command, "_PACKAGE", tmp_path)
    monkeypatch.setattr(heterog_command.os, "execve", lambda *how: started.append(how))
    monkeypatch.setattr(sys, "argv", ["heterog", "discover", "--out", "x"])
    for given, expected in ((None, sys.executable), ("/opt/python", "/opt/python")):
        if given:
            monkeypatch.setenv("HETEROG_PYTHON", given)
        else:
            monkeypatch.delenv("HETEROG_PYTHON", raising=False)
        heterog_command.main()
        program, arguments, environment = started[-1]
        assert arguments == [str(program), "discover", "--out", "x"]
        assert environment["HETEROG_PYTHON"] == expected


def test_refuses_a_version_of_torch_that_the_library_is_not_for(monkeypatch, tmp_path, capsys):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "heterog").touch()
    monkeypatch.setattr(heterog_command, "_PACKAGE", tmp_path)
    monkeypatch.setattr(heterog_command.os, "execve", lambda *how: pytest.fail("started"))
    for version in ("2.10.0", "2.13.0+cpu", "3.0", "strange"):
        monkeypatch.setattr(heterog_command.importlib.metadata, "version", lambda name, v=version: v)
        with pytest.raises(SystemExit) as ended:
            heterog_command.main()
        assert ended.value.code == 2
        assert f"torch {version} is installed" in capsys.readouterr().err


def test_which_versions_of_torch_the_library_runs_with():
    for version in ("2.11.0", "2.11.0+cu130", "2.12.1+cpu", "2.12.0a0+git123"):
        assert wrong_torch(version) == ""
    for version in ("2.10.0", "2.13.0", "1.12.1", "3.11.0", ""):
        assert "torch>=2.11,<2.13" in wrong_torch(version)


def test_the_wheel_asks_for_the_versions_that_the_package_takes():
    file = Path(heterog_command.__file__).parent / "pyproject.toml"
    needs = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["dependencies"]
    (lowest, above) = TORCH
    assert f"torch>={lowest[0]}.{lowest[1]},<{above[0]}.{above[1]}" in needs


def test_the_library_is_refused_beside_another_torch(monkeypatch):
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    with pytest.raises(heterog.HeterogError, match="torch 2.9.1 is installed"):
        native.load_library()
    with pytest.warns(UserWarning, match="torch 2.9.1 is installed.*plans or runs is refused"):
        importlib.reload(heterog)
