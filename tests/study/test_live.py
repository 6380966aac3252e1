"""Live progress: redrawn in place on a terminal, lines now and then elsewhere; the time left."""

import io
import time

from equilibrate.study.course import Moment
from equilibrate.study.files import say
from equilibrate.study.live import Live
from equilibrate.study.progress import Progress


class Screen:
    """A terminal that keeps what is on it: it understands 'up', 'clear line' and newline."""

    def __init__(self):
        self.lines, self.row = [], 0

    def isatty(self):
        return True

    def flush(self):
        pass

    def write(self, text):
        for part in text.replace("\x1b[2K", "").split("\n"):
            while part.startswith("\x1b["):
                up, _, part = part[2:].partition("A")
                self.row -= int(up)
            if part:
                self.lines[self.row : self.row + 1] = [part]
                self.row += 1


def moments(live, now):
    for method, place in (("sgd", 0), ("adam", 1)):
        for epoch in range(5):
            done = 8 * (4 * place + epoch)
            best = None if epoch == 0 else 3.0 / epoch
            now[0] += 1
            live(Moment(method, 8, epoch, best, float(done), float(done), 64.0))


def test_a_terminal_is_redrawn_in_place():
    now, screen = [0.0], Screen()
    live = Live("search", {"sgd": "SGD", "adam": "Adam"}, 4, screen, lambda: now[0])
    moments(live, now)
    live.finish()
    assert len(screen.lines) == 3
    assert "100%" in screen.lines[0]
    assert "0:00 left" in screen.lines[0]
    assert screen.lines[1].split() == ["SGD", "epoch", "4", "of", "4", "best", "0.75", "done"]


def test_the_time_left_counts_only_what_was_computed():
    now = [0.0]
    live = Live("search", {"sgd": "SGD"}, 4, None, lambda: now[0])
    now[0] = 30.0  # 10 epochs computed in 30 s, 40 found recorded, 50 to go: 150 s
    live(Moment("sgd", 8, 1, None, trained=10.0, done=50.0, total=100.0))
    assert "0:30 spent, 2:30 left" in live.lines()[0]


def test_what_comes_before_the_first_small_piece_is_no_pace():
    now = [0.0]
    live = Live("search", {"sgd": "SGD"}, 4, None, lambda: now[0])
    now[0] = 100.0  # compiling, and a ten-thousandth of the work
    live(Moment("sgd", 8, 0, None, trained=0.1, done=0.1, total=1000.0))
    assert "1:40 spent, ? left" in live.lines()[0]
    now[0] = 101.0  # ten a second from here on, 980 to go
    live(Moment("sgd", 8, 0, None, trained=10.1, done=20.0, total=1000.0))
    assert "1:41 spent, 1:38 left" in live.lines()[0]


def test_the_progress_of_a_figure_tells_no_time_from_one_small_piece(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    going = Progress("figure", total=1000.0, stream=None, started=now[0])
    now[0] = 100.0
    going.advance(0.1)
    assert going.left() == "? left"
    now[0] = 101.0
    going.advance(9.9, computed=False)
    going.advance(10.0)
    assert going.left() == "1:38 left"


def test_elsewhere_a_line_now_and_then():
    now, stream = [0.0], io.StringIO()
    live = Live("search", {"sgd": "SGD", "adam": "Adam"}, 4, stream, lambda: now[0])
    for _ in range(4):
        moments(live, now)
    live.finish()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4 + 1  # one in 10 s, and the end
    assert "\x1b" not in stream.getvalue()
    assert "Adam: epoch 4 of 4 best 0.75 8 training" in lines[0]
    assert lines[-1] == "search: done, 0:40 spent"


def test_more_methods_than_lines_show_the_present_one(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda: (40, 3))
    now, screen = [0.0], Screen()
    live = Live("search", {"sgd": "SGD", "adam": "Adam"}, 4, screen, lambda: now[0])
    moments(live, now)
    assert len(screen.lines) == 2
    assert "Adam" in screen.lines[1]
    assert max(map(len, screen.lines)) < 40


def test_a_method_that_needed_nothing_is_recorded_already_and_a_later_one_waits():
    live = Live("search", {"sgd": "SGD", "adam": "Adam", "esgd": "ESGD"}, 4, None)
    live(Moment("adam", 8, 1, None, 8.0, 40.0, 96.0))
    assert ["recorded already" in live.lines()[1], "waiting" in live.lines()[3]] == [True, True]


def test_the_best_error_of_a_method_is_kept_over_its_groups():
    live = Live("search", {"sgd": "SGD"}, 4, None)
    for best in (0.5, 3.0):
        live(Moment("sgd", 1, 1, best, 1.0, 1.0, 2.0))
    assert "best 0.5" in live.lines()[1]


def test_nothing_to_compute_is_said():
    stream = io.StringIO()
    Live("search", {"sgd": "SGD"}, 4, stream).finish()
    assert stream.getvalue() == "search: everything is recorded already\n"


def test_trials_that_diverged_are_counted():
    live = Live("search", {"sgd": "SGD"}, 4, None)
    live(Moment("sgd", 6, 1, 0.5, 6.0, 8.0, 32.0, diverged=2))
    assert live.lines()[1].endswith("6 training, 2 diverged")


def test_what_is_said_meanwhile_stays_on_the_screen(monkeypatch):
    now, screen = [0.0], Screen()
    monkeypatch.setattr("sys.stderr", screen)
    live = Live("search", {"sgd": "SGD", "adam": "Adam"}, 4, screen, lambda: now[0])
    moments(live, now)
    say("a checkpoint was damaged")
    moments(live, now)
    say("the disk is nearly full")
    moments(live, now)
    live.finish()
    told = [line for line in screen.lines if "[" not in line and "epoch" not in line]
    assert told == ["a checkpoint was damaged", "the disk is nearly full"]
    assert len(screen.lines) == 3 * 3 + 2  # the display begins anew below each


def test_on_a_cluster_methods_train_at_the_same_time():
    names = {"sgd": "SGD", "adam": "Adam", "esgd": "ESGD"}
    live = Live("search", names, 4, None, lambda: 1.0)

    def hear(method, training, waiting):
        more = {"trained": 1.0, "done": 1.0, "total": 96.0, "waiting": waiting, "alone": False}
        live(Moment(method, training, 1, 2.0, **more))

    for method, training, waiting in (("sgd", 0, 8), ("adam", 2, 6), ("esgd", 0, 0)):
        hear(method, training, waiting)
    assert [line.split()[-1] for line in live.lines()[1:]] == ["waiting", "training", "done"]
    assert "2 training" in live.lines()[2]
