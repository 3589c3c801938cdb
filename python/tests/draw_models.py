"""Small models that draw random numbers while they train, each in a way that libraries have."""

import torch
from torch import nn
from torch.nn import functional as F


class DropPath(nn.Module):
    """Leaves out a branch for some samples, as timm's and torchvision's stochastic depth do."""

    def __init__(self, p):
        super().__init__()
        self.drop_prob = p

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        kept = 1 - self.drop_prob
        noise = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(kept)
        return x * noise.div_(kept)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(6, 16)
        self.branch = nn.Linear(16, 16)
        self.drop = DropPath(0.3)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        x = self.into(x)
        return self.out(x + self.drop(torch.tanh(self.branch(x))))


def channels():
    """Whole channels are dropped; then single elements so that mean and variance stay."""
    return nn.Sequential(
        nn.Unflatten(1, (2, 3, 1)),
        nn.Conv2d(2, 4, 1),
        nn.Dropout2d(0.4),
        nn.Flatten(),
        nn.SELU(),
        nn.AlphaDropout(0.2),
        nn.Linear(12, 3),
    )


class Autoencoder(nn.Module):
    """Variational: its code is drawn, and differentiated through."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(6, 8)
        self.decode = nn.Linear(4, 3)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, 1)
        return self.decode(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())


class Categories(nn.Module):
    """Chooses by noise of Gumbel's distribution."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(6, 5)
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(F.gumbel_softmax(self.logits(x), tau=0.7))


def slopes():
    return nn.Sequential(
        nn.Linear(6, 16), nn.RReLU(), nn.Linear(16, 16), nn.RReLU(inplace=True), nn.Linear(16, 3)
    )


class Denoiser(nn.Module):
    """A step of diffusion: noise of a level that is drawn for each sample."""

    def __init__(self):
        super().__init__()
        self.register_buffer("levels", torch.linspace(0.05, 0.95, 10))
        self.embed = nn.Embedding(10, 6)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 3))

    def forward(self, x):
        level = torch.randint(0, 10, (x.shape[0],))
        share = self.levels[level].unsqueeze(1)
        noise = torch.randn(x.shape)
        return self.net(share.sqrt() * x + (1 - share).sqrt() * noise + self.embed(level))


class Mixed(nn.Module):
    """Each sample is mixed with another one of the batch."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        share = torch.rand(x.shape[0], 1)
        return self.net(share * x + (1 - share) * x[torch.randperm(x.shape[0])])


class Sampler(nn.Module):
    """Draws by probabilities that the model computes."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(6, 5)
        self.table = nn.Embedding(5, 3)

    def forward(self, x):
        logits = self.logits(x)
        chance = logits.softmax(1)
        chosen = torch.multinomial(chance.detach(), 2)
        gate = torch.bernoulli(logits.detach().sigmoid()) + torch.empty_like(logits).uniform_(0.5, 1)
        return (self.table(chosen) * chance.gather(1, chosen).unsqueeze(2)).sum(1) * (
            chance * gate
        ).sum(1, keepdim=True)


class Noisy(nn.Module):
    """Noise of every other kind, with sequences first and with the same numbers for all samples."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x):
        sequence = x.reshape(-1, 2, 3).transpose(0, 1)
        sequence = sequence * torch.empty_like(sequence).log_normal_(0, 0.1)
        x = sequence.transpose(0, 1).reshape(-1, 6)
        x = x + torch.empty_like(x).cauchy_().clamp(-2, 2)
        x = x * torch.normal(1.0, 0.1, (6,)) + 0.1 * torch.empty_like(x).geometric_(0.5)
        x = x + 0.1 * torch.empty_like(x).random_(4) + 0.01 * torch.randint_like(x, -3, 4)
        x = torch.normal(x.detach(), 0.01) - x.detach() + x[:, torch.randperm(6)]
        return self.net(x)


MODELS = {
    "drop path": Residual,
    "dropout of channels": channels,
    "variational": Autoencoder,
    "gumbel": Categories,
    "rrelu": slopes,
    "diffusion": Denoiser,
    "mixup": Mixed,
    "sampling": Sampler,
    "noise": Noisy,
}
