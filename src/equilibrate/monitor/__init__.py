"""What a person watches while training: diagonals, their errors, sharpness, layer by layer."""

from equilibrate.monitor.interval import Interval
from equilibrate.monitor.monitor import Monitor
from equilibrate.monitor.probes import Probes
from equilibrate.monitor.sinks import JSONLines, TensorBoard, numbers
from equilibrate.monitor.spectrum import Spectrum, spectrum

__all__ = [
    "Interval",
    "JSONLines",
    "Monitor",
    "Probes",
    "Spectrum",
    "TensorBoard",
    "numbers",
    "spectrum",
]
