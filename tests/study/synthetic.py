"""Records as a study would write them, made up from a formula: nothing is trained."""

import math
import random

from equilibrate.study.methods import METHODS

PROVENANCE = {
    "versions": {"equilibrate": "0.1", "torch": "2.13", "python": "3.11"},
    "device": "cpu",
    "machine": "Linux x86_64",
    "threads": 2,
}


def record(method, errors, *, seed=0, status="finished", seconds=1.0, **fields):
    """One record with the errors given, one an epoch of 10 updates."""
    epochs = list(range(len(errors)))
    curve = {
        "epoch": epochs,
        "updates": [10 * epoch for epoch in epochs],
        "error": list(errors),
        "seconds": [seconds * epoch for epoch in epochs],
    }
    made = {
        "key": f"{method}-{seed}-{fields.get('settings')}",
        "problem": "mnist",
        "method": method,
        "settings": {"lr": 0.03},
        "seed": seed,
        "epochs": 3,
        "precision": "float32",
        "status": status,
        "curve": curve,
        "final_error": errors[-1] if errors else None,
        "together": 1,
        "provenance": PROVENANCE,
    }
    return {**made, **fields}


def study(names, *, trials=8, epochs=20, seeds=3, problem="CURVES-like", halving=False):
    """A whole study that looks like a real one: curves fall, large rates diverge, seeds differ."""
    records = []
    for place, name in enumerate(names):
        method, generator = METHODS[name], random.Random(name)
        quality = 1 + 0.35 * place * generator.random()
        searched = []
        for number, settings in enumerate(method.settings(trials)):
            low, high = method.space["lr"].low, method.space["lr"].high
            at = math.log(settings["lr"] / low) / math.log(high / low)
            status = "diverged" if at > 0.85 and number % 2 else "finished"
            if halving and status == "finished" and at < 0.4:
                status = "cut"
            searched.append(_trial(name, settings, 0, epochs, quality, at, status))
        records += searched
        done = [r for r in searched if r["status"] == "finished"]
        best = min(done, key=lambda r: r["final_error"])
        at = best["at"]
        records += [
            _trial(name, best["settings"], seed, epochs, quality, at, "finished")
            for seed in range(1, seeds)
        ]
    return [{**r, "problem": problem} for r in records]


def _trial(name, settings, seed, epochs, quality, at, status):
    generator = random.Random(f"{name}{settings}{seed}")
    length = {"finished": epochs, "diverged": max(2, epochs // 4), "cut": epochs // 4}[status]
    floor = quality * (2 + 6 * (at - 0.6) ** 2) * (1 + 0.06 * generator.gauss(0, 1))
    errors = [
        100 * (1 + 2.5 * epoch * (0.3 + at)) ** -1.3 + floor * (1 + 0.03 * generator.gauss(0, 1))
        for epoch in range(length + 1)
    ]
    pace = 1.4 * (1.3 if "jacobi" in name or "esgd" in name else 1.0)
    fields = record(name, errors, seed=seed, status=status, seconds=pace, settings=settings)
    updates = [100 * epoch for epoch in range(length + 1)]
    return {**fields, "epochs": epochs, "at": at, "curve": {**fields["curve"], "updates": updates}}
