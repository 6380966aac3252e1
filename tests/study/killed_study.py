"""Studies in processes that die by SIGKILL at a chosen moment; run as a program by test_kills.

Every line of standard input asks for one study in a fresh process (forked, for importing torch
takes longer than the study). A moment is the beginning of a step of training or of a call that
changes the disk; a write dies after half of its bytes. The dying process notes its moment first.
"""

import json
import os
import select
import signal
import sys
from pathlib import Path

import torch

from equilibrate.study.alone import Alone
from equilibrate.study.stack import Stack
from tests.study import real_study, small

NOTE = os.write  # what is noted of a death must not count as a moment of its own


class Moments:
    """Count the moments of this process; die at number `at`, or the next one of a kind."""

    def __init__(self, at, kind, log):
        self.at, self.kind, self.log = at, kind, log
        self.names, self.files = [], {}

    def pass_by(self, name, before_dying=lambda: None):
        self.names.append(name)
        if self.at and len(self.names) >= self.at and name.startswith(self.kind):
            before_dying()
            NOTE(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), f"{name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_disk(self):
        opened, write = os.open, os.write

        def open_named(path, *arguments):
            descriptor = opened(path, *arguments)
            self.files[descriptor] = Path(path).name
            return descriptor

        def write_half(descriptor, data):
            half = bytes(data)[: len(data) // 2]
            name = f"write {self.files.get(descriptor)}"
            self.pass_by(name, lambda: write(descriptor, half))
            return write(descriptor, data)

        os.open, os.write = open_named, write_half
        for name in ("replace", "unlink", "fsync", "ftruncate", "mkdir"):
            setattr(os, name, self.watched(name, getattr(os, name)))

    def watched(self, name, function):
        def call(*arguments, **options):
            self.pass_by(name)
            return function(*arguments, **options)

        return call

    def watch_training(self, trainer):
        for name in ("advance", "errors", "keep", "state_dict", "load_state_dict"):
            setattr(trainer, name, self.watched(name, getattr(trainer, name)))


def study(request):
    moments = Moments(request.get("at"), request.get("kind", ""), request["log"])
    moments.watch_disk()
    for trainer in (small.SmallTrainer, Stack, Alone):
        moments.watch_training(trainer)
    run = real_study.run if request["real"] else small.run
    run(request["folder"], halving=request["halving"])
    return moments.names


def in_a_process(request):
    """Run a study in a child; return how it ended and the moments that it passed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(_child(request, writer))
    os.close(writer)
    if "after" in request and not select.select([reader], [], [], request["after"])[0]:
        os.kill(child, signal.SIGKILL)  # from outside, wherever the study is after these seconds
    with os.fdopen(reader) as pipe:
        names = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"status": status, "names": json.loads(names or "[]")}


def _child(request, writer):
    try:
        names = json.dumps(study(request)).encode()
        NOTE(writer, names)
        return 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(in_a_process(json.loads(line))), flush=True)
