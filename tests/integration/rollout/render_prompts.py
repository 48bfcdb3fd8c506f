"""Run by the node Python: `render_prompts.py MODEL MESSAGES.json`, what transformers makes of the messages."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    rendered = []
    for messages in json.loads(Path(sys.argv[2]).read_text()):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        token_ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        rendered.append({"text": text, "token_ids": token_ids})
    print(json.dumps(rendered))


if __name__ == "__main__":
    main()
