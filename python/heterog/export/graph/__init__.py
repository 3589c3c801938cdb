"""The graph of a training step: tensors and operators, their names, the file, what cannot be said."""
