"""ESGD in the training loops people use; each runs from the root: python -m examples.plain_loop."""
