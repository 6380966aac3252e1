"""The study room: problems, many trials at once, records that survive a kill, search.

Here are the names that a problem or a method of a user's own is written with (docs/compare.md).
"""

from equilibrate.study.contenders import register
from equilibrate.study.methods import Method
from equilibrate.study.problem import Problem
from equilibrate.study.space import Choice, LogUniform

__all__ = ["Choice", "LogUniform", "Method", "Problem", "register"]
