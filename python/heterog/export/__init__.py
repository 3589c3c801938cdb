"""From a PyTorch model to the graph of one whole training step.

graph        the graph, its file, and what is said of it before and while it is traced
operators    operators that are traced in a form of ours, or with other precision
optimizer    what an optimizer's own step() does to a parameter
state        what a step depends on, and what it changes, in Python
tracing      the trace, and traces at several batch sizes as one graph
Here: the export itself (step), its check beside PyTorch, its cache, its command.
"""
