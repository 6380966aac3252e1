"""Times of an update: trainers take turns, and a turn is counted by its updates."""

from equilibrate.study import timing


class Steady:
    """A trainer whose updates take so many seconds, by a clock of the test's own."""

    def __init__(self, now, seconds):
        self.now, self.seconds, self.turns = now, seconds, []

    def advance(self, updates):
        self.turns.append(self.now[0])
        self.now[0] += updates * self.seconds


def test_trainers_take_turns_and_each_is_told_its_own_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    trainers = {"quick": Steady(now, 0.25), "slow": Steady(now, 2.0)}
    assert timing.in_turn(trainers, updates=4, rounds=3) == {"quick": [0.25] * 3, "slow": [2.0] * 3}
    assert trainers["quick"].turns == [0.0, 9.0, 18.0]
    assert trainers["slow"].turns == [1.0, 10.0, 19.0]
