"""Curves of a training of a policy: what they are made of, where they go, and what is no log."""

import json
import re
import subprocess
import xml.etree.ElementTree

import pytest

import heterog
from heterog.training_curves import main, page, read_training_log, scalars, to_tensorboard
from program import find_program


def case(name, best, plain, taught=0.0):
    return {"case": name, "best_step_seconds": best, "baseline_step_seconds": plain,
            "mean_step_seconds": 0.0, "taught_step_seconds": taught}  # fmt: skip


def step(number, *cases, loss=1.0):
    return {"step": number, "evaluations": 10 * number, "mean_reward": 0.0, "entropy_nats": 2.0,
            "loss": loss, "cases": list(cases)}  # fmt: skip


STEPS = [
    step(1, case("a", 1.0, 2.0, 0.5), loss=3.0),
    step(2, case("b", 1.0, 8.0), case("none", 0.0, 0.0), loss=-2.0),
    step(3, case("a", 2.0, 2.0, 0.5)),
]


def write(path, steps, end="\n"):
    path.write_text("\n".join(json.dumps(one) for one in steps) + end)
    return path


def test_a_case_counts_as_it_was_seen_last():
    curves = scalars(STEPS)
    # 1/2; then 1/2 and 1/8; then 1 and 1/8: geometric means.
    assert [number for number, _ in curves["best_over_plain"]] == [1, 2, 3]
    assert [ratio for _, ratio in curves["best_over_plain"]] == pytest.approx([0.5, 0.25, 8**-0.5])
    assert [ratio for _, ratio in curves["best_over_taught"]] == pytest.approx([2, 2, 4])
    assert curves["cases/a"] == [(1, 1.0), (3, 2.0)]
    assert "cases/none" not in curves
    assert "mean_reward" not in curves  # nothing was sampled
    assert curves["evaluations"][-1] == (3, 30)


def test_tensorboard_gets_every_figure():
    class Writer:
        def __init__(self):
            self.given = []

        def add_scalar(self, name, value, number):
            self.given.append((name, value, number))

    writer = Writer()
    to_tensorboard(STEPS, writer)
    assert ("policy/loss", -2.0, 2) in writer.given
    assert ("policy/cases/b", 1.0, 2) in writer.given
    assert len(writer.given) == sum(len(curve) for curve in scalars(STEPS).values())


def test_a_page_has_a_line_a_run_and_is_well_formed():
    text = page({"runs/<one>": STEPS, "two": STEPS[:1]})
    assert "http" not in text and "<script" not in text
    charts = re.findall(r"<svg.*?</svg>", text, re.S)
    assert len(charts) == 5
    for chart in charts:
        lines = xml.etree.ElementTree.fromstring(chart).findall("polyline")
        assert len(lines) == 2
        assert lines[0].find("title").text == "runs/<one>"
        assert lines[0].get("stroke") != lines[1].get("stroke")
    # Within the chart, the greatest value at its top.
    points = xml.etree.ElementTree.fromstring(charts[3]).find("polyline").get("points").split()
    assert [float(point.split(",")[1]) for point in points] == [8.0, 176.0, pytest.approx(75.2)]


def test_long_runs_are_thinned():
    text = page({"long": [step(n, case("a", 1.0, 2.0), loss=n) for n in range(1, 5001)]})
    assert max(len(points.split()) for points in re.findall(r'points="(.*?)"', text)) <= 400


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    log = write(tmp_path / "train.log", STEPS, end="\n" + json.dumps(STEPS[0])[:40])
    assert len(read_training_log(tmp_path)) == 3
    log.write_text(log.read_text() + "\n")  # and was never finished
    with pytest.raises(heterog.InputError, match="line 4: no JSON"):
        read_training_log(log)


@pytest.mark.parametrize("text", ["", "[]\n", '{"step": 1}\n', '{"step": "1", "loss": 0, "entropy_nats": 0, "cases": []}\n'])
def test_what_is_no_log_is_refused_in_one_line(tmp_path, capsys, text):
    (tmp_path / "train.log").write_text(text)
    assert main([str(tmp_path), "--page", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "train.log" in said.err
    assert not (tmp_path / "page.html").exists()


def test_no_file_and_no_folder_for_the_page(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "none: No such file" in capsys.readouterr().err
    write(tmp_path / "train.log", STEPS)
    assert main([str(tmp_path), "--page", str(tmp_path / "none" / "page.html")]) != 0
    assert "cannot be written" in capsys.readouterr().err


def test_curves_of_a_real_run(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({
        "graphs": [{"graph": "models/lenet5-tiny.json.gz", "batches": [16]}],
        "clusters": ["configs/clusters/heterog-4gpu.json"], "steps": 3, "samples": 4, "max_groups": 8,
    }))  # fmt: skip
    subprocess.run(
        [find_program(), "train", "--config", tmp_path / "config.json", "--out", tmp_path / "run"],
        check=True,
    )
    assert main([str(tmp_path / "run"), "--page", str(tmp_path / "page.html")]) == 0
    assert "3 steps" in capsys.readouterr().out
    curves = scalars(read_training_log(tmp_path / "run"))
    assert {"loss", "entropy_nats", "mean_reward", "best_over_plain"} < set(curves)
    assert "<svg" in (tmp_path / "page.html").read_text()
