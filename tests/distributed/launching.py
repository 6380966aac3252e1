"""Scenarios run by two or four real processes, with gloo on the CPU.

A scenario is a function at the top of a module: scenario(rank, world, *arguments). The processes
stay alive between scenarios (importing torch takes longer than most of them); each scenario gets a
new process group. They end by os._exit: gloo's threads may abort an ordinary exit, with or without
this package. Gloo sometimes fails to connect two processes of a machine under load, before anything
of ours has run: then others meet.
"""

import io
import os
import tempfile
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing as processes

LARGEST = 4
PATIENCE = 120.0  # seconds after which a scenario counts as hung
MEETINGS = 3  # tries to connect
_MET = b"met"


class NotMet(RuntimeError):
    """A process of the group was gone before the scenario began."""


def _packed(thing: Any) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


def _unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=False)


def _serve(rank: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            scenario, world, folder, limit, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        torch.manual_seed(0)
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{os.path.join(folder, 'store')}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=limit),
        )
        pipe.send_bytes(_MET)
        try:
            answer = (True, scenario(rank, world, *arguments))
        except BaseException as error:
            answer = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        finally:
            torch.distributed.destroy_process_group()
        pipe.send_bytes(_packed(answer))


class _Pool:
    def __init__(self) -> None:
        context = processes.get_context("spawn")
        pairs = [context.Pipe() for _ in range(LARGEST)]
        self.pipes = [ours for ours, _ in pairs]
        self.members = [
            context.Process(target=_serve, args=(rank, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for member in self.members:
            member.start()

    def close(self) -> None:
        for member in self.members:
            member.kill()


_pool: list[_Pool] = []


def close() -> None:
    while _pool:
        _pool.pop().close()


def outcomes(scenario: Any, world: int, *arguments: Any, limit: float = 60) -> list[tuple]:
    """Return, for each rank, (True, what the scenario returned) or (False, its error's text)."""
    for _ in range(MEETINGS - 1):
        try:
            return _asked(scenario, world, limit, arguments)
        except NotMet:
            close()
    return _asked(scenario, world, limit, arguments)


def _asked(scenario: Any, world: int, limit: float, arguments: tuple) -> list[tuple]:
    if not _pool:
        _pool.append(_Pool())
    pipes = _pool[0].pipes[:world]
    with tempfile.TemporaryDirectory() as folder:
        try:
            for pipe in pipes:
                pipe.send((scenario, world, folder, limit, arguments))
            for rank, pipe in enumerate(pipes):
                _awaited(rank, pipe, scenario)
        except (EOFError, ConnectionError) as error:
            raise NotMet(f"{scenario.__name__} did not begin") from error
        try:
            return [_unpacked(_awaited(rank, pipe, scenario)) for rank, pipe in enumerate(pipes)]
        except (EOFError, ConnectionError):
            close()  # this scenario has failed, and no other
            raise


def _awaited(rank: int, pipe: Connection, scenario: Any) -> bytes:
    if not pipe.poll(PATIENCE):
        close()
        raise TimeoutError(f"Rank {rank} of {scenario.__name__} does not come back.")
    return pipe.recv_bytes()


def run(scenario: Any, world: int, *arguments: Any) -> list[Any]:
    """Return what the scenario returned on each rank; fail where one raised."""
    answers = outcomes(scenario, world, *arguments)
    failed = [f"rank {r}: {text}" for r, (fine, text) in enumerate(answers) if not fine]
    assert not failed, "\n".join(failed)
    return [value for _, value in answers]


def errors(scenario: Any, world: int, *arguments: Any, limit: float = 60) -> list[str]:
    """Return the error of each rank; fail where one did not raise."""
    answers = outcomes(scenario, world, *arguments, limit=limit)
    assert not any(fine for fine, _ in answers), answers
    return [text for _, text in answers]
