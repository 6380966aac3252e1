"""The list of figures, in the order of the report."""

from equilibrate.paper import (
    demonstration,
    figure1,
    figure2,
    figure3,
    figure4,
    momentum,
    robustness,
)
from equilibrate.paper.figure import Figure

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        demonstration.FIGURE,
        figure1.FIGURE,
        figure2.FIGURE,
        figure3.FIGURE,
        figure4.FIGURE,
        robustness.FIGURE,
        momentum.FIGURE,
        momentum.FALLING,
        momentum.DAMPED_FIGURE,
    )
}
