"""How probes are averaged over time: the running mean of Algorithm 1, or a mean that forgets.

Both are one weighted mean, kept by its total weight W. Every probe enters with weight one; between
probes all earlier weights are multiplied by `decay` once per optimizer step:

    W <- decay^steps W + 1,        mean <- mean + (new - mean) / W.

With decay = 1 (spelled None) W is the number of probes k and this is Algorithm 1. With decay < 1 it
is the bias-corrected exponential average of Adam, stated per *step*, so that measuring more or less
often changes how noisy the mean is but not how far back it remembers. Vectors drawn at the same
step (the warm-up) weigh the same.
"""


def next_weight(weight: float, steps: int, decay: float | None) -> float:
    """Return the total weight after one more probe, `steps` optimizer steps after the last one.

    Example:
        >>> next_weight(weight=3.0, steps=20, decay=None)
        4.0
        >>> round(next_weight(weight=3.0, steps=20, decay=0.9), 3)
        1.365
    """
    return weight * (1.0 if decay is None else decay**steps) + 1.0
