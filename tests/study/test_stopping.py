"""A signal is told from an error, also where something else is raised in its place."""

import os
import signal

import pytest

from equilibrate.study.stopping import exit_status, stoppable


def interrupted():
    raise KeyboardInterrupt


def terminated():
    os.kill(os.getpid(), signal.SIGTERM)


def as_it_is(stop):
    stop()


def called_back(stop):
    """Compiled code that was interrupted in a function of Python's."""
    try:
        stop()
    except KeyboardInterrupt as error:
        raise SystemError("returned a result with an exception set") from error


def cleaning_up(stop):
    try:
        stop()
    finally:
        raise RuntimeError("half done")


def cleaning_up_after(stop):
    try:
        called_back(stop)
    finally:
        raise OSError("half done")


@pytest.mark.parametrize(("stop", "status"), [(interrupted, 130), (terminated, 143)])
@pytest.mark.parametrize("way", [as_it_is, called_back, cleaning_up, cleaning_up_after])
def test_a_signal_comes_out_as_itself(way, stop, status):
    with pytest.raises(KeyboardInterrupt) as found, stoppable():
        way(stop)
    assert exit_status(found.value) == status


@pytest.mark.parametrize("error", [RuntimeError("own"), SystemExit(3)], ids=repr)
def test_any_other_error_comes_out_as_it_is(error):
    with pytest.raises(type(error)) as found, stoppable():
        raise error
    assert found.value is error


def test_the_signal_is_what_it_was_before():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stoppable():
        cleaning_up(interrupted)
    assert signal.getsignal(signal.SIGTERM) is before
