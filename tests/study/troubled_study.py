"""A study on a disk that gives trouble; run as a program by test_disk, which says how.

    full FOLDER       FOLDER is a small file system: a file takes its last byte
    read-only FOLDER  FOLDER is a file system: it is mounted again for reading only
    limit FOLDER      no file may grow beyond a little more than the records have now

The first trials are recorded, then the trouble begins, then it ends. Printed: what the study said,
and the records before, during and after.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import torch

from equilibrate.study.files import StudyError
from equilibrate.study.journal import read_records
from tests.study import small


@contextlib.contextmanager
def full(folder):
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


@contextlib.contextmanager
def read_only(folder):
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)


@contextlib.contextmanager
def limit(folder):
    size = (folder / "study" / "records.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def tried(folder):
    try:
        small.run(folder)
    except StudyError as error:
        return str(error)


def main(trouble, folder):
    torch.set_num_threads(1)
    study = folder / "study"
    small.run(study, small.trials()[:3])
    answer = {"before": small.numbers(read_records(study))}
    with trouble(folder):
        answer["said"] = [tried(study), tried(study)]
        answer["during"] = small.numbers(read_records(study))
    answer["after"] = small.numbers(small.run(study))
    answer["left"] = sorted(os.listdir(study))
    print(json.dumps(answer))


if __name__ == "__main__":
    kinds = {"full": full, "read-only": read_only, "limit": limit}
    main(kinds[sys.argv[1]], Path(sys.argv[2]))
