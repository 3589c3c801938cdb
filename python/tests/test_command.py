"""The command `heterog` of the wheel."""

import sys

import heterog_command


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
