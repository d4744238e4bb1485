"""How micro-batches and episodes are handed out."""

from __future__ import annotations

from lopd_repro.parallel.turns import Turn, turns
from lopd_repro.rollout.divided import divided


def test_one_rank_takes_the_micro_batches_as_they_come() -> None:
    parts = [range(0, 2), range(2, 3)]
    assert turns(parts, [1, 2, 9], [True] * 3, 0, 1) == [Turn(parts[0]), Turn(parts[1])]


def test_every_micro_batch_is_taken_once_and_the_longest_first() -> None:
    parts = [range(0, 2), range(2, 4), range(4, 5)]
    lengths = [5, 5, 20, 1, 7]  # 10, 21 and 7 tokens
    taken = [turns(parts, lengths, [False] * 5, rank, 2) for rank in range(2)]
    assert [[t.part for t in own] for own in taken] == [[parts[1], parts[2]], [parts[0], None]]
    # The rank without one runs the student on the shortest trajectory.
    assert taken[1][1] == Turn(None, student=True, stand_in=3)
    assert not any(t.student or t.teacher for t in taken[0])


def test_a_rank_with_nothing_to_distil_runs_the_teacher_beside_one_that_has() -> None:
    parts = [range(i, i + 1) for i in range(5)]
    lengths, distilled = [9, 8, 7, 6, 5], [True, False, False, False, True]
    first, second = (turns(parts, lengths, distilled, rank, 2) for rank in range(2))
    assert first == [
        Turn(parts[0], stand_in=4),
        Turn(parts[2], stand_in=4),
        Turn(parts[4], stand_in=4),
    ]
    # Beside 0: its own student, and the teacher on trajectory 4. Beside 2: nobody has a teacher.
    assert second[0] == Turn(parts[1], teacher=True, stand_in=4)
    assert second[1] == Turn(parts[3], stand_in=4)
    assert second[2] == Turn(None, student=True, teacher=True, stand_in=4)


def test_groups_of_episodes_stay_together() -> None:
    assert divided("aabbccd", 2) == [[0, 1, 4, 5], [2, 3, 6]]
    assert divided("ab", 3) == [[0], [1], []]
    assert divided("abab", 1) == [[0, 1, 2, 3]]
