"""Optimizers of torch.optim, and some as people write their own."""

import math

import torch
from torch import optim

# Of torch.optim, each with what makes its formula another one.
OF_TORCH = {
    "SGD dampening": (optim.SGD, {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    "Adam": (optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "AdamW": (optim.AdamW, {}),
    "Adamax": (optim.Adamax, {"weight_decay": 0.1}),
    "NAdam": (optim.NAdam, {"weight_decay": 0.1}),
    "NAdam decoupled": (optim.NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "RAdam": (optim.RAdam, {"betas": (0.8, 0.95), "weight_decay": 0.1}),
    "Adadelta": (optim.Adadelta, {"weight_decay": 0.1}),
    "Adagrad": (optim.Adagrad, {"initial_accumulator_value": 0.25, "lr_decay": 0.1}),
    "Adagrad plain": (optim.Adagrad, {"maximize": True}),
    "ASGD": (optim.ASGD, {"t0": 2, "lambd": 0.1, "weight_decay": 0.1}),
    "RMSprop": (optim.RMSprop, {}),
    "RMSprop centered": (optim.RMSprop, {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    "Rprop": (optim.Rprop, {}),
    "Adafactor": (optim.Adafactor, {"weight_decay": 0.1}),
    "Muon": (optim.Muon, {"momentum": 0.9}),
}


class Lion(optim.Optimizer):
    """Chen et al. 2023."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                update = state["exp_avg"].clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(update, alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Lamb(optim.Optimizer):
    """You et al. 2020, with the count of steps and the norms as numbers of Python."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                grad = p.grad.data
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p.data)
                    state["exp_avg_sq"] = torch.zeros_like(p.data)
                state["step"] += 1
                m, v = state["exp_avg"], state["exp_avg_sq"]
                m.mul_(beta1).add_(grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                scale = math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                update = m / v.sqrt().add(group["eps"]) * scale
                if group["weight_decay"] > 0:
                    update.add_(p.data, alpha=group["weight_decay"])
                weight_norm = p.data.norm(2).item()
                update_norm = update.norm(2).item()
                if weight_norm == 0 or update_norm == 0:
                    trust = 1.0
                else:
                    trust = min(weight_norm, 10.0) / update_norm
                p.data.add_(update, alpha=-group["lr"] * trust)


class Switching(optim.Optimizer):
    """A first step of its own, a branch on the count of steps, which the groups keep, a number, a
    flag, the last gradient, and slow weights that begin as the parameter."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "every": 3})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                state = self.state[p]
                if "buffer" not in state:
                    state["buffer"] = p.grad.detach().clone()
                    state["last"] = torch.zeros_like(p)
                    state["slow"] = p.detach().clone()
                    state["decay"] = 1.0
                    state["begun"] = False
                else:
                    state["buffer"].mul_(0.9).add_(p.grad, alpha=0.5)
                rate = group["lr"] * state["decay"]
                state["decay"] *= 0.9
                if state["begun"]:
                    rate *= 2
                state["begun"] = True
                p.sub_(state["buffer"] + 0.1 * state["last"], alpha=rate)
                state["last"] = p.grad.clone()
                if group["step"] % group["every"] == 0:
                    state["slow"].lerp_(p, 0.5)
                    p.copy_(state["slow"])


class Lists(optim.Optimizer):
    """Adam by lists of tensors, with the step as a tensor of the state that is read before it
    counts."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            params = group["params"]
            grads = [p.grad for p in params]
            for p in params:
                if not self.state[p]:
                    self.state[p].update(
                        step=torch.tensor(0.0), m=torch.zeros_like(p), v=torch.zeros_like(p)
                    )
            states = [self.state[p] for p in params]
            m, v = [s["m"] for s in states], [s["v"] for s in states]
            done = states[0]["step"].item()
            torch._foreach_lerp_(m, grads, 0.1)
            torch._foreach_mul_(v, 0.99)
            torch._foreach_addcmul_(v, grads, grads, 0.01)
            root = torch._foreach_sqrt(v)
            torch._foreach_div_(root, (1 - 0.99 ** (done + 1)) ** 0.5)
            torch._foreach_add_(root, 1e-8)
            torch._foreach_addcdiv_(params, m, root, -group["lr"] / (1 - 0.9 ** (done + 1)))
            for state in states:
                state["step"] += 1


OWN = {
    "Lion": (Lion, {"weight_decay": 0.1}),
    "Lamb": (Lamb, {"weight_decay": 0.1}),
    "Switching": (Switching, {}),
    "Lists": (Lists, {}),
}
ALL = OF_TORCH | OWN


def maker(name: str, lr: float = 0.03):
    """A function parameters → optimizer."""
    kind, options = ALL[name]
    return lambda parameters: kind(parameters, lr=lr, **options)


def has_biases(name: str) -> bool:
    return name != "Muon"  # it takes matrices alone
