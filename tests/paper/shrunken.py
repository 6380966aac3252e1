"""Figures small enough for tests, and a command that runs on them."""

from dataclasses import replace

from equilibrate.paper import demonstration, figure1, figure2, figures

# Text from settings must reach the page as text: this one would run if it did not.
HOSTILE = '<script>console.error("injected")</script><img src=x onerror="console.error(1)">'


def shrink() -> None:
    """Replace the settings of every figure by tiny ones, in this process."""
    small = {
        "demonstration": demonstration.Settings(images=60, epochs=2, batch=20, sizes=(784, 8, 784)),
        "figure1": figure1.Settings(starts=20),
        "figure2": figure2.Settings(("main", "small"), problems=8, other_problems=4, hidden=6,
                                    chunk=2),
    }  # fmt: skip
    for name, settings in small.items():
        figure = figures.FIGURES[name]
        figures.FIGURES[name] = replace(figure, settings=lambda quick, s=settings: s)


if __name__ == "__main__":
    import os
    import sys
    import time

    from equilibrate.cli import main

    shrink()
    measure = figure2.measure

    def slow(size, seed):
        time.sleep(float(os.environ.get("SECONDS_A_PROBLEM", "0")))
        return measure(size, seed)

    figure2.measure = slow
    sys.exit(main())
