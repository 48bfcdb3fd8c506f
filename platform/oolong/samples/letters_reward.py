"""A reward function for the letter-sum dataset: 1 for the right sum in a box, 0.1 for a box with a wrong one."""

import re


def score(prompt: str, completion: str, answer: str) -> float:
    boxes = re.findall(r"\\boxed\{(\d{1,6})\}", completion)
    if not boxes:
        return 0.0
    return 1.0 if boxes[-1] == answer else 0.1
