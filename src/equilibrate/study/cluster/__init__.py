"""Studies on a Ray cluster: the extra `equilibrate[cluster]`, imported only where it is asked for.

The process that runs the command owns the study's folder: the one journal, the checkpoints, the
choices. A worker gets an *errand*, a group of trials with their last checkpoint, and streams
*messages* back: records, checkpoints, progress. So a worker needs no disk of its own and may be
lost at any moment: its group goes to another worker from the last checkpoint that arrived. What is
in the folder is as it would be after a local run; a head that was killed is no more than a study
that was stopped.
"""

from equilibrate.study.cluster.connection import connected

__all__ = ["connected"]
