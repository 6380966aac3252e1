"""Records of arms that were never trained, for sentences that are judged from records alone."""


def made_up(methods, task, arm, errors, seed=0, epochs=1000, status="finished", **settings):
    """A trial whose errors were measured at equal distances over its epochs of 300 updates."""
    own = {**methods[arm].fixed, "lr": 0.03, **settings}
    points = [epochs * i // (len(errors) - 1) for i in range(len(errors))]
    curve = {"epoch": points, "updates": [300 * p for p in points], "error": errors,
             "seconds": points}  # fmt: skip
    return {"task": task, "method": arm, "settings": own, "seed": seed, "epochs": epochs,
            "status": status, "curve": curve, "final_error": errors[-1]}  # fmt: skip


def falling(last, points=21, start=60.0):
    """Errors that fall by an equal factor from point to point."""
    return [start * (last / start) ** (i / (points - 1)) for i in range(points)]


def cut_short(run, points):
    """The same run without its last points, as `study.conclude` leaves it."""
    kept = {name: values[:-points] for name, values in run["curve"].items()}
    run |= {"status": "cut", "curve": kept, "final_error": kept["error"][-1]}
    return kept
