"""What a person watches while training: diagonals, their errors, sharpness, layer by layer."""

from equilibrate.monitor.compare_probes import ComparedProbes, Way, compare_probes
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.learning_rate import suggest_learning_rate
from equilibrate.monitor.monitor import Monitor
from equilibrate.monitor.probes import Probes
from equilibrate.monitor.sinks import JSONLines, TensorBoard, numbers
from equilibrate.monitor.spectrum import Spectrum, spectrum
from equilibrate.monitor.suggested_rate import SuggestedRate
from equilibrate.monitor.summary import summary

__all__ = [
    "ComparedProbes",
    "Interval",
    "JSONLines",
    "Monitor",
    "Probes",
    "Spectrum",
    "SuggestedRate",
    "TensorBoard",
    "Way",
    "compare_probes",
    "numbers",
    "spectrum",
    "suggest_learning_rate",
    "summary",
]
