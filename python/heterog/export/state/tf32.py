"""What PyTorch is set to multiply in TF32, of operands in float32 on GPUs that have it."""

import torch

PYTORCHS_OWN = ["convolutions"]


def tf32_allowed() -> list[str]:
    cublas, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    parts = {"products": (cublas, cublas), "convolutions": (cudnn, cudnn.conv)}
    allowed = []
    for name, (old, new) in parts.items():
        try:
            allows = old.allow_tf32
        except RuntimeError:  # it was set by the newer name
            allows = new.fp32_precision == "tf32"
        if allows:
            allowed.append(name)
    return allowed
