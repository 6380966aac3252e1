"""Other people's optimizers where they need a wrapper: for `equilibrate compare` and `wins`."""
