"""Steps of other numbers of samples than the plan's, and of several lengths, beside plain PyTorch."""

import pytest
import torch
from runner_cases import BATCH, CASES, DEVICES, Case, build, sgd
from runner_support import check_optimizer, check_state
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heterog
from heterog.base.errors import HeterogError
from heterog.export.check import _copy

# More and fewer samples than the plan's, and than it has slices.
SIZES = [BATCH, 7, 5, BATCH, 2, 29, 7]
RUNS = [(name, "1:7:4-ps") for name in ("mlp", "convnet", "embedding", "tied", "records")]
RUNS += [("transformer", "1:7:4-ar"), ("convnet", "random"), ("embedding", "random")]
RUNS += [("mlp", plan) for plan in ("1:7:4-ar", "ev-ar", "ev-ps", "cp-ar", "single", "random")]


def given(case: Case, sizes) -> list[tuple]:
    made = []
    for number, size in enumerate(sizes):
        torch.manual_seed(300 + number)
        made.append(case.make_inputs(size))
    return made


def beside_pytorch(runner, case: Case, batches, tolerance=1e-9) -> None:
    """Losses, parameters, buffers and optimizer state after every step."""
    torch.manual_seed(11)
    model = _copy(case.model()).double()  # with its hooks
    optimizer = case.optimizer(list(model.parameters()))
    for inputs in batches:
        found = runner.step(inputs)
        inputs = [x.double() if x.is_floating_point() else x for x in inputs]
        optimizer.zero_grad()
        loss = case.loss_fn(model, *inputs)
        loss.backward()
        if "clip_norm" in case.config:
            nn.utils.clip_grad_norm_(model.parameters(), case.config["clip_norm"])
        optimizer.step()
        assert found == pytest.approx(loss.item(), rel=tolerance)
        check_state(runner.state_dict(), model.state_dict(), tolerance)
    check_optimizer(runner.optimizer_state_dict(), optimizer.state_dict(), tolerance)


@pytest.mark.parametrize(("name", "planner"), RUNS)
def test_batches_of_any_size_train_as_in_pytorch(make, name, planner):
    beside_pytorch(make(name, planner), CASES[name], given(CASES[name], SIZES))


@pytest.mark.parametrize("name", ["dropout", "convnet"])
def test_plans_agree_on_batches_of_any_size(make, name):
    """Masks are those of the whole batch's elements, whatever its size."""
    batches = given(CASES[name], SIZES)
    one = make(name, "single")
    losses = [one.step(batch) for batch in batches]
    for planner in ("ev-ar", "1:7:4-ps"):
        runner = make(name, planner)
        assert [runner.step(batch) for batch in batches] == pytest.approx(losses, rel=1e-9)
        check_state(runner.state_dict(), one.state_dict(), 1e-9)


def test_the_last_batch_of_an_epoch(make):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(30, 6), torch.randn(30, 3))
    loader = DataLoader(data, batch_size=BATCH)  # 12, 12, 6
    runner = make("mlp")
    losses = runner.run(6, loader, drop_last=False)
    again = make("mlp", "single")
    assert losses == pytest.approx([again.step(batch) for _ in range(2) for batch in loader], rel=1e-9)
    beside_pytorch(make("mlp"), CASES["mlp"], [*loader, *loader])


def test_a_checkpoint_between_batches_of_other_sizes(make, tmp_path):
    batches = given(CASES["mlp"], SIZES)
    runner = make("mlp", "1:7:4-ps")
    for batch in batches[:3]:
        runner.step(batch)
    runner.save(tmp_path / "at.safetensors")
    rest = [runner.step(batch) for batch in batches[3:]]
    other = make("mlp", "1:7:4-ps")
    other.load(tmp_path / "at.safetensors")
    assert [other.step(batch) for batch in batches[3:]] == rest


# ---- gradient accumulation ----


@pytest.mark.parametrize(
    ("name", "planner"),
    [("mlp", plan) for plan in ("ev-ar", "cp-ps", "single", "random")]
    + [("transformer", "cp-ps"), ("embedding", "random"), ("convnet", "ev-ar")],
)
def test_accumulated_gradients_are_those_of_the_batch(make, name, planner):
    runner = make(name, planner, accumulate=3)
    beside_pytorch(runner, CASES[name], given(CASES[name], [BATCH, 7, BATCH, 2]))


def test_accumulation_is_part_of_a_plan(make):
    made = make("mlp", "ev-ar", accumulate=4)
    assert make("mlp", plan=made.plan_path).run(2) == made.run(2)
    with pytest.raises(HeterogError, match="accumulate 2 given beside a plan"):
        make("mlp", plan=made.plan_path, accumulate=2)
    with pytest.raises(HeterogError, match="13 micro-batches of a batch of 12"):
        make("mlp", accumulate=13)
    with pytest.raises(HeterogError, match="accumulate 0"):
        make("mlp", accumulate=0)


# ---- several lengths ----

WORDS = 23


class Causal(nn.Module):
    """Attention under a mask that is made of the length, positions out of a table."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.places = nn.Parameter(torch.randn(32, 16) * 0.1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, WORDS)

    def forward(self, tokens):
        length = tokens.shape[1]
        # Numbers of Python: a part of the graph, another one at each length.
        mask = torch.tensor([[j > i for j in range(length)] for i in range(length)])
        return self.out(self.encoder(self.embed(tokens) + self.places[:length], mask=mask))


def of_length(length: int):
    def make(batch: int):
        return torch.randint(0, WORDS, (batch, length)), torch.randint(0, WORDS, (batch, length))

    return make


def words_loss(model, tokens, label):
    return F.cross_entropy(model(tokens).flatten(0, 1), label.flatten())


LENGTHS = [9, 6, 17]
SENTENCES = Case(Causal, [of_length(n) for n in LENGTHS], words_loss, sgd)


def sentences(forms) -> list[tuple]:
    made = []
    for number, (size, length) in enumerate(forms):
        torch.manual_seed(500 + number)
        made.append(of_length(length)(size))
    return made


@pytest.fixture
def make_sentences(cache):
    made = []

    def make(planner, makers=SENTENCES.make_inputs, devices=DEVICES, model=None, **config):
        own, optimizer = build(SENTENCES)
        if model is not None:
            own, optimizer = model, sgd(model.parameters())
        settings = {
            "batch": BATCH, "planner": planner, "cache": cache, "double": True, "threads": 1,
            "any_device": True,
        }  # fmt: skip
        runner = heterog.get_runner(own, makers, words_loss, optimizer, devices, settings | config)
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.close()


@pytest.mark.parametrize("planner", ["ev-ar", "cp-ps", "single", "random"])
def test_lengths_train_as_in_pytorch(make_sentences, planner):
    forms = [(12, 9), (12, 17), (12, 6), (7, 17), (12, 9), (5, 6), (3, 9), (12, 17)]
    beside_pytorch(make_sentences(planner), SENTENCES, sentences(forms))


def test_lengths_and_accumulation(make_sentences):
    forms = [(12, 9), (12, 17), (7, 6), (12, 9)]
    beside_pytorch(make_sentences("ev-ar", accumulate=2), SENTENCES, sentences(forms))


def test_a_checkpoint_between_lengths(make_sentences, tmp_path):
    batches = sentences([(12, 17), (12, 6), (12, 9), (5, 17)])
    runner = make_sentences("ev-ps")
    for batch in batches[:2]:
        runner.step(batch)
    runner.save(tmp_path / "at.safetensors")
    rest = [runner.step(batch) for batch in batches[2:]]
    other = make_sentences("ev-ps")
    other.load(tmp_path / "at.safetensors")
    assert [other.step(batch) for batch in batches[2:]] == rest


def test_own_batches_go_through_the_lengths(make_sentences):
    runner = make_sentences("ev-ar")
    losses = runner.run(4)
    assert losses == make_sentences("ev-ar").run(4)
    assert len(set(losses)) == 4


def test_lengths_that_do_not_fit_are_refused(make_sentences):
    runner = make_sentences("ev-ar")
    with pytest.raises(HeterogError, match=r"tokens \[B, 9\].*tokens \[B, 6\].*tokens \[B, 17\]"):
        runner.step(of_length(10)(12))
    runner.step(of_length(9)(12))


class Branching(Causal):
    def forward(self, tokens):
        made = super().forward(tokens)
        return torch.relu(made) if tokens.shape[1] > 12 else made


def test_a_model_that_is_another_at_another_length_is_refused(make_sentences):
    torch.manual_seed(0)
    with pytest.raises(HeterogError, match="the graphs differ: op .*relu"):
        make_sentences("ev-ar", model=Branching())


def test_what_is_no_list_of_functions_is_refused(make_sentences):
    for makers in ([], [of_length(9), 7]):
        with pytest.raises(HeterogError, match="a list of them, one for each length"):
            make_sentences("ev-ar", makers=makers)
