"""Memory in vectors of the size of the model: ten million parameters here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("what", [[], ["--monitor"]], ids=["inspect", "monitor"])
def test_at_most_five_vectors_beyond_the_model_and_its_gradient(what):
    """The larger the model, the less the rest of the process weighs: ten million overstate it."""
    command = [sys.executable, "-m", "benchmarks.inspect_memory", "--million", "10", *what]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    beyond = float(run.stdout.splitlines()[-1].split()[0])
    assert 3.5 < beyond <= 5  # four are in use: less would mean that nothing was measured
