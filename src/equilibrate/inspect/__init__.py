"""Inspect the curvature of a model: one report for any network, data and loss.

Here are the names for a model at hand, in a notebook say (docs/inspect.md).
"""

from equilibrate.inspect.findings import Findings
from equilibrate.inspect.live import inspect_model
from equilibrate.inspect.subject import InspectError
from equilibrate.inspect.verdict import verdict

__all__ = ["Findings", "InspectError", "inspect_model", "verdict"]
