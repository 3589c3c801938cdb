"""The library and the program of heterog, a folder for each version of PyTorch and one for the planner
alone, and what they read.

The package heterog (the wheel heterog-shares) finds them here; nothing else is to be imported.
"""
