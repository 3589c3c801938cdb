"""A step as it runs, operator by operator, and the traces of several batch sizes as one graph."""
