"""Values that strict JSON can hold."""

import math
from collections.abc import Mapping
from typing import Any


def strict(value: Any) -> Any:
    """Return a value with null for every number that is not finite, lists for tuples.

    Example:
        >>> strict({"errors": (1.5, float("inf")), "seeds": 3})
        {'errors': [1.5, None], 'seeds': 3}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value
