"""The policy answers, reads a hint after a wrong answer, and tries again. Each retry is worth less."""

from oolong.workflow import Episode, OutOfRoom


async def run(
    episode: Episode,
    *,
    attempts: int = 2,
    discount: float = 0.8,
    hint: str = "That is not correct. Try again.",
) -> float:
    for attempt in range(attempts):
        turn = await episode.sample()
        worth = await episode.score()
        if worth > 0 or turn.finish_reason == "length" or attempt == attempts - 1:
            return worth * discount**attempt
        try:
            await episode.append_messages([{"role": "user", "content": hint}])
        except OutOfRoom:
            break
    return 0.0
