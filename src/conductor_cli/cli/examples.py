"""Examples of each command, for its help, its man page and docs/cli.md.

What it does, and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "": (
        (
            "Try it with the demo models",
            'conductor ask --demo "What is the capital of France?"',
        ),
        ("Set up a model that plans and the workers, step by step", "conductor setup"),
        ("Hold a conversation", "conductor"),
    ),
    "ask": (
        ("Ask one model, in one call", 'conductor ask -m fast "What is a monad?"'),
        ("Ask about some files", 'conductor ask "Which schema survives a rename?" -f *.sql'),
        ("Review a change", 'git diff | conductor ask "Review this change" -'),
        (
            "Review a change by a template, by other workers",
            "git diff | conductor ask -t review -p judge=fast -",
        ),
        (
            "Spend at most 25 cents, and see the plan first",
            'conductor ask "…" --max-cost 0.25 --approve',
        ),
    ),
    "chat": (
        ("Continue the last conversation, with a file", "conductor chat -c -f notes.md"),
        ("Go on with a conversation by its name, or begin it", "conductor chat --name migration"),
    ),
    "plan": (
        ("See the plan, what it may cost, and who reads what", 'conductor plan "…" --flow'),
        ("Change the plan before it runs", 'conductor plan "…" > plan.json'),
    ),
    "run": (
        ("Run a plan that you have edited", "conductor run plan.json"),
        ("Run one plan for many inputs", "git diff | conductor run review.json -"),
        ("Plan and run in one pipe", 'conductor plan "…" | conductor run - --no-approve'),
    ),
    "do": (
        ("Have a command proposed, and decide", 'conductor do "which process uses port 8080"'),
        ("Ask a certain worker for it", 'conductor do -m fast "count the lines of all .py files"'),
    ),
    "batch": (
        (
            "Ask each line of a file, for at most 5 dollars",
            "conductor batch questions.txt -o answers.jsonl --max-cost 5",
        ),
        (
            "Ask those again that failed",
            "conductor batch answers.failed.jsonl -o answers.jsonl --yes",
        ),
    ),
    "template": (
        ("See which there are", "conductor template list"),
        ("Make one of the last run", "conductor template save weekly"),
        ("Change it", "conductor template edit weekly"),
    ),
    "trace": (
        ("Find the runs about a subject", "conductor trace list migration --since 7d"),
        ("See what the second step was sent", "conductor trace show last --step 2"),
        (
            "Repeat that step with another worker",
            "conductor trace rerun last --from 2 --worker fast",
        ),
        ("Share a run as a page", "conductor trace export last > run.html"),
    ),
    "cost": (
        ("See what this week has cost", "conductor cost --days 7"),
        (
            "Write the costs of a quarter for a script",
            "conductor cost --days 92 --json > costs.json",
        ),
    ),
    "setup": (
        ("Answer questions and set up the rest", "conductor setup"),
        ("Set up everything without a question", "conductor setup --yes"),
    ),
    "doctor": (
        ("Check everything", "conductor doctor"),
        ("Check without a network", "conductor doctor --offline"),
    ),
    "model": (
        ("See which models there are", "conductor model list"),
        ("Download the default model and use it", "conductor model pull"),
    ),
    "workers": (
        ("Add a model of Ollama", "conductor workers add fast --kind ollama --model llama3.2"),
        (
            "Add a program of your own, in a sandbox",
            "conductor workers add p --kind command --sandbox -- ./p",
        ),
        ("Change a worker", "conductor workers set fast price=1.25,10 context=200000"),
        ("See which models a key offers, and at what price", "conductor workers models openai"),
    ),
    "tools": (
        ("Let workers look into a repository", "conductor tools add git -- uvx mcp-server-git"),
        ("Add a server by its address", "conductor tools add web https://example.com/mcp"),
        ("See what a server offers", "conductor tools test git"),
        ("Use its tools for one question", 'conductor ask "…" --tools git'),
    ),
    "keys": (
        ("Store a key in the keyring; it is asked for", "conductor keys set openai"),
        ("See which keys are found, and where", "conductor keys list"),
    ),
    "config": (
        ("See every setting and where it comes from", "conductor config show"),
        ("Go back to the default", "conductor config set policy.approve default"),
    ),
    "completions": (
        ("Complete in bash", "source <(conductor completions bash)"),
        (
            "Complete in zsh; the directory must be in $fpath",
            "conductor completions zsh > ~/.zfunc/_conductor",
        ),
        ("Complete in fish", "conductor completions fish | source"),
        (
            "Complete in PowerShell",
            "conductor completions powershell | Out-String | Invoke-Expression",
        ),
    ),
    "try": (
        ("Find out whether a plan pays, for at most 50 cents", "conductor try"),
        ("Find out on questions of your own kind", "conductor try cases.jsonl --max-cost 2"),
    ),
    "state": (
        ("See what the database of the setting state has", "conductor state check"),
        ("Copy the runs and the spending of this machine into it", "conductor state import"),
    ),
    "eval": (
        ("Compare the demo models on 40 small questions", "conductor eval rehearsal --n 40"),
        ("Compare your workers, for at most 2 dollars", "conductor eval cases.jsonl --max-cost 2"),
        ("See the report again", "conductor eval --show last"),
    ),
    "tune": (
        ("Learn from your cases, for at most 5 dollars", "conductor tune cases.jsonl --max-cost 5"),
        (
            "Read the questions with a small model",
            "conductor tune cases.jsonl --encoder smollm2.gguf",
        ),
        ("Ask as it was learned", "conductor ask --planner tuned.planner 'What is a monad?'"),
    ),
    "serve": (
        ("Serve at http://127.0.0.1:8080", "conductor serve"),
        (
            "Use only the workers of a pool, at another port",
            "conductor serve --pool cheap --port 9000",
        ),
    ),
    "serve keys": (
        (
            "Make a key for a client that may spend five dollars a day",
            "conductor serve keys add laptop --max-cost-day 5",
        ),
        ("Serve to other machines, which need a key", "conductor serve --host 0.0.0.0"),
    ),
    "launch": (
        ("Start Codex over your own workers", "conductor launch codex"),
        (
            "Give a client arguments of its own",
            'conductor launch claude --pool cheap -- -p "Explain this repository"',
        ),
    ),
    "mcp": (
        ("What an MCP client is told to start", "conductor mcp"),
        ("Spend at most 25 cents for each call", "conductor mcp --max-cost 0.25"),
    ),
    "acp": (
        ("What an editor is told to start", "conductor acp"),
        ("Try it with the demo models", "conductor acp --demo"),
    ),
    "train": (
        ("Check memory, workers and cost; train nothing", "conductor train --dry-run"),
        ("Train a small adapter", "conductor train --lora --cases cases.jsonl --steps 50"),
    ),
}
"""The examples of a command by its words. Those of a group show its commands."""
