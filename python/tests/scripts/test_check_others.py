"""What compares scripts of others with one process: on scripts of our own, right ones and wrong ones."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/others")]
import check_others  # noqa: E402
from recipes import IMPORT, RECIPES, Recipe  # noqa: E402

# Wants GPUs, draws by its own, and drops.
SCRIPT = """
import os
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Noisy(Dataset):
    def __len__(self):
        return 22
    def __getitem__(self, index):
        return torch.rand(4), torch.tensor(index % 3)

def main(device):
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl")
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).cuda(device)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[device])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = Noisy()
    batches = DataLoader(data, int(sys.argv[1]), sampler=DistributedSampler(data), pin_memory=True)
    loss_of = lambda b: nn.functional.cross_entropy(model(b[0].to(device)), b[1].to(f"cuda:{device}"))
    for epoch in range(2):
        for batch in batches:
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

main(int(os.environ["LOCAL_RANK"]))
"""
SHARED = ("before", "for epoch in", ["batches = heterog.auto_shares(model, batches, loss_of)"])
WRONG = ("for", "loss = loss_of(batch)", ["loss = loss_of(batch) * (1 + int(os.environ['RANK']))"])


@pytest.mark.slow
def test_what_is_wrong_is_found(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/train.py").write_text(SCRIPT, encoding="utf-8")
    for name, edits, right in (("right", [IMPORT, SHARED], True), ("wrong", [IMPORT, SHARED, WRONG], False)):
        recipe = Recipe("theirs/train.py", "{batch}", edits)
        with check_others.Ranks() as ranks:
            found = check_others.try_script(ranks, recipe, tmp_path, tmp_path / name, {"data": tmp_path})
        changed, shares, off = found
        assert changed == len(edits) and shares == [[6, 2]]
        assert (off <= recipe.most) == right, off


def test_lines_are_changed_where_they_are():
    text = "import a\n\nif x:\n    call(1)\n    other()\n"
    edits = [IMPORT, ("behind", "call(", ["more()", "  deeper()"]), ("for", "other", ["new()"]), ("before", "if", ["y"])]
    assert check_others.edited(text, edits) == (
        "import heterog\nimport a\n\ny\nif x:\n    call(1)\n    more()\n      deeper()\n    new()\n"
    )
    with pytest.raises(LookupError, match="no line begins with 'gone'"):
        check_others.edited(text, [("for", "gone", [])])


def test_at_most_four_lines_are_ours():
    for name, recipe in RECIPES.items():
        assert sum(len(new) for _, _, new in recipe.ours) <= 4, name


def test_versions_are_said(tmp_path):
    (tmp_path / "vision").mkdir()
    repository = tmp_path / "examples"
    repository.mkdir()
    git = ["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-qm", "a", "--allow-empty", "--date=2024-01-02"], check=True)
    subprocess.run([*git, "tag", "v7"], check=True)
    packages, checkouts = check_others.versions(tmp_path)
    assert f"torch {torch.__version__.split('+')[0]}" in packages
    day = check_others.git(repository, "log", "-1", "--format=%cs")
    assert checkouts == f"checkouts: examples v7 of {day}, vision of no known commit"
    assert check_others.versions(tmp_path / "vision")[1] == "checkouts: none"
