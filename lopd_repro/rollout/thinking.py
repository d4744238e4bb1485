"""A bound on a turn's reasoning.

When a turn reaches `max_thinking_tokens` with its reasoning still open, the reasoning is closed by
ids that the policy did not sample: they are glue, never supervised, and the policy goes on from
there with its answer. The models' own chat formats mark reasoning by the same two tags.
"""

from __future__ import annotations

from lopd_repro.models.chat import ChatCodec

OPEN, CLOSE = "<think>", "</think>"
CLOSING = f"\n{CLOSE}\n\n"


def closing_ids(codec: ChatCodec, turn_so_far: list[int]) -> list[int]:
    """Ids that close the reasoning of an unfinished turn; none where it is not open.

    The tag that opens it may stand in the generation prompt instead of the turn.
    """
    text = codec.generation_prompt + codec.decode(turn_so_far)
    return codec.encode(CLOSING) if text.rfind(OPEN) > text.rfind(CLOSE) else []
