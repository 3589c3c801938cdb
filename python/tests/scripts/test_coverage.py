"""scripts/coverage/run.py: what its tables promise, and that it tells what is verified from what is not."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(os.environ.get("HETEROG_BIN", ROOT / "build" / "dev" / "bin" / "heterog"))
TINY = ["timm/vit_tiny_patch16_224", "transformers/bert", "torchvision/squeezenet1_1"]


def coverage(*arguments) -> str:
    command = [sys.executable, ROOT / "scripts/coverage/run.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def listed() -> dict[str, str]:
    """The kind of each architecture, by name."""
    lines = [line.removesuffix("  heavy").split("  ") for line in coverage("--list").splitlines()]
    return dict(lines)


def test_every_classifier_segmenter_and_video_network_of_torchvision(listed):
    from torchvision import models

    modules = {"classification": models, "segmentation": models.segmentation, "video": models.video}
    for kind, module in modules.items():
        ours = {n for n, k in listed.items() if n.startswith("torchvision/") and k == kind}
        assert ours == {f"torchvision/{name}" for name in models.list_models(module=module)}


def test_eighty_families_of_timm(listed):
    import timm

    names = [name.partition("/")[2] for name in listed if name.startswith("timm/")]
    assert len({timm.model_entrypoint(name).__module__ for name in names}) >= 80


def test_sixty_architectures_of_transformers_of_every_kind(listed):
    kinds = Counter(kind for name, kind in listed.items() if name.startswith("transformers/"))
    assert kinds.total() >= 60
    for kind in ("causal", "experts", "masked", "sequence", "vision", "recognition", "speech",
                 "contrast", "image and text"):  # fmt: skip
        assert kinds[kind] >= 3, kind


def test_quick_leaves_the_heavy_out(listed):
    quick = {line.split("  ")[0] for line in coverage("--list", "--quick").splitlines()}
    assert quick < set(listed)
    assert "torchvision/inception_v3" in set(listed) - quick


@pytest.mark.skipif(not PROGRAM.exists(), reason="heterog is not built")
def test_exports_and_verifies(tmp_path):
    out = tmp_path / "coverage.jsonl"
    coverage("--only", *TINY, "--out", out, "--bin", PROGRAM)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(r["name"] for r in records) == sorted(TINY)
    for record in records:
        assert record["exported"] and record["verified"], record
        assert record["checked"].startswith("equal to PyTorch"), record

    # What the file holds is not run again; what is run again counts with its last line.
    assert coverage("--only", *TINY, "--out", out, "--bin", PROGRAM) == ""
    # Where a stage fails, its line is said, and the table tells it from the others.
    coverage("--only", TINY[0], "--out", out, "--bin", PROGRAM, "--again", "--planner", "nobody")
    assert len(out.read_text().splitlines()) == 4
    text = coverage("--table", "--out", out)
    assert "| all |  | 3 | 3 | 3 | 2 |" in text
    row = next(line for line in text.splitlines() if line.startswith(f"| {TINY[0]} |"))
    assert "nobody" in row, row


def test_the_table_puts_one_reason_of_many_in_one_row(tmp_path):
    base = {"kind": "causal", "exported": False, "verified": False, "export_seconds": 1.0}
    exported = base | {"exported": True, "checked": "not checked", "verify_seconds": 1.0}
    records = [
        base | {"name": "a/one", "refusal": "module h.0.attn: a size is [4, 5] at batch sizes [2, 3]"},
        base | {"name": "a/two", "refusal": "module h.7.attn: a size is [8, 9] at batch sizes [2, 3]"},
        base | {"name": "a/three", "refusal": "another reason"},
        exported | {"name": "b/four", "stage": "verify", "reason": "gradient 'w.1' is off by 1.1e+00"},
        exported | {"name": "b/five", "verified": True, "checked": "equal to PyTorch at batches 5 and 6"},
    ]  # fmt: skip
    out = tmp_path / "coverage.jsonl"
    # A line that a kill has cut short is as if it had not been written.
    out.write_text("".join(json.dumps(r) + "\n" for r in records) + '{"name": "a/si')
    lines = coverage("--table", "--out", out).splitlines()
    assert "| a | causal | 3 | 0 | 0 | 0 |" in lines
    assert "| b | causal | 2 | 2 | 1 | 1 |" in lines
    assert "| all |  | 5 | 2 | 1 | 1 |" in lines
    assert f"| a/one, a/two | {records[0]['refusal']} |" in lines
    assert "| a/three | another reason |" in lines
    assert f"| b/four | {records[3]['reason']} |" in lines
