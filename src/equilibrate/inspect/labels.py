"""Names of layers for charts: short, and all different."""

from collections import Counter
from collections.abc import Sequence


def labels(names: Sequence[str], most: int) -> list[str]:
    """Return a label of at most so many letters for every name, no two of them alike.

    Of a long name the first parts become letters, as few of them as need to, and what is still too
    long is cut in front: its end says what it is. Those that are alike then get their numbers.

    Example:
        >>> labels(["inward.weight", "encoder.layers.0.self_attn.in_proj_weight"], 24)
        ['inward.weight', 'e.l.0.s.in_proj_weight']
        >>> labels(["first_of_all.weight", "final_one.weight"], 8)
        ['1 …eight', '2 …eight']
    """
    found = [_cut(_abbreviated(name, most), most) for name in names]
    times = Counter(found)
    return [
        label if times[label] == 1 else f"{place} {_cut('…' + name, most - len(f'{place} '))}"
        for place, (label, name) in enumerate(zip(found, names, strict=True), start=1)
    ]


def _abbreviated(name: str, most: int) -> str:
    parts = name.split(".")
    for i, part in enumerate(parts[:-1]):
        if len(".".join(parts)) <= most:
            break
        parts[i] = part if part.isdigit() else part[:1]
    return ".".join(parts)


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else "…" + name[len(name) - most + 1 :]
