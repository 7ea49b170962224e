"""What a developer writes first.

The whole prompt, `create_completion`, a grammar for JSON, everything else by default.

`naive_conductor.py JOB BEGAN [plain]`: JOB is a JSON file with model, context, prompt, grammar and
the plan to force, BEGAN the monotonic time at which this process was started. Prints how long
everything took, in seconds from there, and the most memory that was held. `plain` leaves weights as
they are in the file, for machines on which llama.cpp's default (to rearrange them) crashes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
began = float(sys.argv[2])
took: dict[str, float] = {}


def note(text: str) -> None:
    """Keep when something was reached, the first time."""
    took.setdefault(text, time.monotonic() - began)


import llama_cpp  # noqa: E402 - its import is measured

note("import")
if "plain" in sys.argv:
    ours = llama_cpp.llama_model_default_params()
    ours.use_extra_bufts = False
    llama_cpp.llama_cpp.llama_model_default_params = lambda: ours
llm = llama_cpp.Llama(model_path=job["model"], n_ctx=job["context"], verbose=False)
note("load")

# Random weights write nonsense, so the next token of the plan is lifted above all others before
# each draw.
wanted = [*llm.tokenize(job["plan"].encode(), add_bos=False), llm.token_eos()]
written = 0


def lift(_: Any, logits: Any) -> Any:
    """Make the wanted token the likeliest."""
    global written  # noqa: PLW0603 - it is a short script
    note("first token")
    logits[wanted[min(written, len(wanted) - 1)]] = 1e4
    written += 1
    return logits


answer = llm.create_completion(
    job["prompt"],
    max_tokens=1200,
    temperature=0.0,
    grammar=llama_cpp.LlamaGrammar.from_string(job["grammar"], verbose=False),
    logits_processor=llama_cpp.LogitsProcessorList([lift]),
)
plan = json.loads(answer["choices"][0]["text"])
note("plan")
assert answer["choices"][0]["text"] == job["plan"], answer
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(
    json.dumps({"took": took, "peak": peak, "usage": answer["usage"], "steps": len(plan["steps"])})
)
