"""How settings name things: one canonical text, one hash."""

import hashlib
import json


def canonical(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces.

    Example:
        >>> canonical({"b": 1, "a": [0.1, None]})
        '{"a":[0.1,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: object) -> str:
    """Return the SHA-256 of a value's canonical text.

    Example:
        >>> digest({"lr": 0.1}) == digest({"lr": 0.1}) != digest({"lr": 0.2})
        True
    """
    return hashlib.sha256(canonical(value).encode()).hexdigest()
