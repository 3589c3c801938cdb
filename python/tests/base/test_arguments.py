"""Options given twice, and outputs that cannot be written, in the verbs in Python."""

import pytest

from discover_support import OUTPUTS, described
from heterog import training_curves
from heterog.base.errors import RunFailed
from heterog.base.files import make_folder, replace_file
from heterog.discover import command
from heterog.export import command as export
from heterog.profiles import command as import_profile, timings_command


def models(cluster: dict) -> list[tuple[str, int]]:
    return [(device["model"], device.get("count", 1)) for m in cluster["machines"] for device in m["devices"]]


def test_cards_of_both_gpus_options_are_there(tmp_path):
    one = described(tmp_path, "--gpus", "NVIDIA L4:2,NVIDIA A10")
    two = described(tmp_path, "--gpus", "NVIDIA L4:2", "--gpus", "NVIDIA A10")
    assert models(two) == models(one)
    assert sum(count for _, count in models(two)) == 3


def test_hosts_of_both_options_are_asked(monkeypatch, tmp_path):
    asked = []

    def ask(hosts, _ssh):
        asked.extend(hosts)
        raise RunFailed("enough")

    monkeypatch.setattr(command, "ask_hosts", ask)
    command.main(["--hosts", "a,b", "--hosts", "c", "--out", "-"])
    assert asked == ["a", "b", "c"]


@pytest.mark.parametrize(
    "main, arguments",
    [
        (command.main, ["--gpus", "NVIDIA L4", "--nic", "10", "--out", "-", "--nic", "25"]),
        (command.main, ["--topo", OUTPUTS / "4-a10g.topo.txt", "--topo", "x", "--gpus", "NVIDIA L4:4", "--out", "-"]),
        (export.main, ["a.py:f", "--out", "a.json.gz", "--out", "b.json.gz"]),
        (import_profile.main, ["g", "--batch", "1", "--batch", "2", "--format", "pipedream", "--device", "T4",
                               "--out", "g", "--profile", "p"]),
        (timings_command.main, ["t.json", "--graph", "g", "--cluster", "c", "--out", "a", "--out", "b"]),
        (training_curves.main, ["--page", "a.html", "--page", "b.html", "train.log"]),
    ],
)  # fmt: skip
def test_an_option_of_one_value_is_refused_the_second_time(main, arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 2
    assert "given twice; it takes one value" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_no_wrong_input(tmp_path, capsys):
    nowhere = tmp_path / "file" / "x.json"
    nowhere.parent.write_text("")
    for write in (lambda: replace_file(nowhere, b"x"), lambda: make_folder(nowhere)):
        with pytest.raises(RunFailed) as failed:
            write()
        assert failed.value.code == 4
    assert command.main(["--gpus", "NVIDIA L4", "--out", str(nowhere)]) == 4
    assert str(nowhere) in capsys.readouterr().err
