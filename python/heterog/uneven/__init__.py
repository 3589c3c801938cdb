"""Data parallelism on unequal shares, under PyTorch's own loops: how many samples a rank takes, which, and
by what its gradients are weighed. Loads no library, and runs with PyTorch from 2.4 on."""
