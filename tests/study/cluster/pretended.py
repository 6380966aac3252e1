"""Workers of a pretended cluster: errands run in this process, and are lost on demand."""

import pickle

from ray import cloudpickle

from equilibrate.study.cluster import errand
from equilibrate.study.cluster.messages import Lost, Said
from equilibrate.study.course import Moment


class Pretended:
    """As many workers as slots. `lose(n)` tells whether the worker of the n-th is lost."""

    threads = 1

    def __init__(self, slots=2, lose=lambda number: False):
        self._slots, self._lose = slots, lose
        self.heard, self.errands = 0, []

    def slots(self):
        return self._slots

    def share(self, course):
        return cloudpickle.dumps(course)  # nothing but bytes reaches a worker

    def start(self, work, asked):
        self.errands.append(asked)
        copy = pickle.loads(cloudpickle.dumps(asked))
        return errand.run(copy, pickle.loads(work))

    def ready(self, streams):
        return streams

    def next(self, stream):
        # What was said in this process is no news to it.
        own = (message for message in stream if not isinstance(message, Said))
        message = pickle.loads(cloudpickle.dumps(next(own)))
        if isinstance(message, Moment):  # sent now and then: their number is chance
            return message
        self.heard += 1
        if self._lose(self.heard):
            raise Lost("as the test wants it")
        return message
