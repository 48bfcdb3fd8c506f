"""1 for the right last number of the completion; a small part of it only if the completion is short."""

import re


def score(
    prompt: str, completion: str, answer: str, *, brevity: float = 0.1, max_characters: int = 2000
) -> dict:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", completion.replace(",", ""))
    correct = 1.0 if numbers and float(numbers[-1]) == float(answer) else 0.0
    brief = correct if len(completion) <= max_characters else 0.0
    total = (1 - brevity) * correct + brevity * brief
    return {"score": total, "parts": {"correct": correct, "brief": brief}}
