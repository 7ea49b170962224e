"""Ask `conductor serve` as any client of OpenAI's API does.

The answer is printed as it comes.

Start a server with: conductor serve --demo
Then run:            python examples/client.py http://127.0.0.1:8080 "Find the capital of Italy."
"""

from __future__ import annotations

import json
import os
import sys

import httpx

SECONDS = 120.0


def main(address: str, question: str) -> None:
    """Stream one chat completion."""
    # `conductor serve keys add NAME` makes a key; without keys, a server answers this machine only.
    key = os.environ.get("CONDUCTOR_KEY", "none")
    body = {
        "model": "conductor",
        "stream": True,
        "messages": [{"role": "user", "content": question}],
    }
    headers = {"authorization": f"Bearer {key}"}
    url = f"{address.rstrip('/')}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=SECONDS) as answer:
        if answer.status_code != 200:
            answer.read()
            sys.exit(f"{answer.status_code}: {answer.json()['error']['message']}")
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue  # an empty line, a comment or the end
            choices = json.loads(line.removeprefix("data: "))["choices"]
            if choices:
                print(choices[0]["delta"].get("content") or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1], " ".join(sys.argv[2:]))
