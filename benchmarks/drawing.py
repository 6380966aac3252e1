"""What a probe vector costs against torch's own generators, for 2.8 million elements on the CPU.

python -m benchmarks.drawing
"""

import torch

from benchmarks.timing import interleaved
from equilibrate.curvature import draw_elements

COUNT = 2_837_314


def _draw(distribution):
    return lambda: draw_elements(distribution, 0, COUNT, seed=0, probe=0, parameter=0)


def main() -> None:
    generator = torch.Generator()
    times = interleaved(
        {
            "torch.randn": lambda: torch.randn(COUNT, generator=generator),
            "torch bernoulli": lambda: torch.empty(COUNT).bernoulli_(0.5, generator=generator),
            "normals, counter-based": _draw("gaussian"),
            "signs, counter-based": _draw("rademacher"),
        }
    )
    print("| generator | time over torch.randn |\n| --- | --- |")
    for name, seconds in times.items():
        print(f"| {name} | {seconds / times['torch.randn']:.2f} |")


if __name__ == "__main__":
    main()
