"""The tree of commands.

`app` holds the options before a command, `COMMANDS` says where each command is.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from conductor_cli import __version__
from conductor_cli.cli.chat_banner import is_interactive
from conductor_cli.cli.options import GlobalOptions, option
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.typer_classes import MORE, CommandGroup, CommandTable, help_width
from conductor_cli.core.errors import UsageError

COMMANDS: Final[CommandTable] = {
    "Everyday": {
        "ask": ("conductor_cli.cli.ask:ask_command", "Ask a question and print the answer."),
        "chat": ("conductor_cli.cli.chat:chat_command", "Hold a conversation in the terminal."),
        "plan": ("conductor_cli.cli.ask:plan_command", "Plan a question without running the plan."),
        "run": ("conductor_cli.cli.ask:run_command", "Run a plan from a file or from stdin."),
        "do": (
            "conductor_cli.cli.do:do_command",
            "Propose one command for this shell, and run it after your yes.",
        ),
        "batch": ("conductor_cli.cli.batch:batch_command", "Ask every question of a file."),
        "template": (
            "conductor_cli.cli.template:template_command",
            "Save, list and edit templates of questions.",
        ),
    },
    "Setup": {
        "setup": ("conductor_cli.cli.setup:setup_command", "Set up what is missing, step by step."),
        "doctor": (
            "conductor_cli.cli.doctor:doctor_command",
            "Check the installation, the model and every worker.",
        ),
        "config": ("conductor_cli.cli.config:app", "Show and change settings."),
    },
    "Models, workers and keys": {
        "model": ("conductor_cli.cli.model:app", "Download and choose the model that plans."),
        "workers": (
            "conductor_cli.cli.workers:app",
            "List, add, change and test the models that answer.",
        ),
        "tools": ("conductor_cli.cli.tools:app", "Add and test tools that workers may call (MCP)."),
        "keys": ("conductor_cli.cli.keys:app", "Store and check the API keys of providers."),
    },
    "Records": {
        "trace": ("conductor_cli.cli.trace:app", "List, show, replay, rate and rerun stored runs."),
        "cost": (
            "conductor_cli.cli.cost:cost_command",
            "Show what was spent, by day, provider and worker.",
        ),
    },
    "Advanced": {
        "try": (
            "conductor_cli.cli.try_command:try_command",
            "Find out on a few questions whether a plan pays.",
        ),
        "eval": (
            "conductor_cli.cli.eval:eval_command",
            "Compare ways of using the workers on the same cases.",
        ),
        "tune": (
            "conductor_cli.cli.tune:tune_command",
            "Learn from cases whom to ask, and whether planning pays.",
        ),
        "serve": (
            "conductor_cli.cli.serve:app",
            "Serve the workers as one model to other programs (HTTP).",
        ),
        "launch": (
            "conductor_cli.cli.serve:launch_command",
            "Start a coding client over a server of its own.",
        ),
        "mcp": (
            "conductor_cli.cli.serve:mcp_command",
            "Serve ask, plan, run and trace to other programs (MCP).",
        ),
        "acp": (
            "conductor_cli.cli.serve:acp_command",
            "Be the agent of an editor: Zed, JetBrains, Neovim (ACP).",
        ),
    },
    MORE: {
        "completions": (
            "conductor_cli.cli.completions:completions_command",
            "Print the completion script of a shell.",
        ),
        "state": (
            "conductor_cli.cli.state:state_command",
            "Check, move and migrate a shared database.",
        ),
        "train": (
            "conductor_cli.cli.train:train_command",
            "Train a planner by reinforcement learning.",
        ),
    },
}


class RootGroup(CommandGroup):
    """The commands of this program."""

    table = COMMANDS
    everywhere = ("config", "debug", "quiet")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Typer's own
        """Return the command that a command line names; a question is asked."""
        if is_question(args[0]):
            self._refuse_quoted_command(ctx, args[0])
            args = ["ask", *args]
        return super().resolve_command(ctx, args)

    def _refuse_quoted_command(self, ctx: Any, text: str) -> None:  # noqa: ANN401
        """Raise `UsageError` where quotes around a command and its words make a question of it."""
        first, second, *_ = text.split()
        if first not in self.list_commands(ctx):
            return
        below = getattr(self.get_command(ctx, first), "commands", {})
        if second in below or second.startswith("-"):
            hint = f'the command, without quotes: conductor {text}; to ask it: conductor ask "…"'
            raise UsageError(f"{text!r:.60} is a command in quotes", hint=hint)


def is_question(text: str) -> bool:
    """Return whether the first word of a command line is a question: several words in quotes."""
    return len(text.split()) > 1


app = typer.Typer(
    name="conductor",
    cls=RootGroup,
    help="Plan, run and show how a team of models answers a question.\n\n"
    'conductor "…" asks a question. conductor COMMAND --help explains a command. '
    "All options below but --version may also follow it.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration or policy, 4 key, 5 planner, 6 "
    "limit, "
    "7 partial answer, 8 no worker reachable, 130 cancelled (Ctrl-C), 143 terminated.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], **help_width()},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"conductor {__version__}")
        raise typer.Exit


@app.callback()
def orchestra(
    context: typer.Context,
    config: Annotated[
        str | None, option("--config", "Settings file to use instead of config.toml.", "FILE")
    ] = None,
    debug: Annotated[
        bool, option("--debug", "Log internals to stderr and show tracebacks.")
    ] = False,
    quiet: Annotated[bool, option("--quiet -q", "Print nothing but errors on stderr.")] = False,
    version: Annotated[
        bool, option("--version", "Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Plan, run and show how a team of models answers a question."""
    del version
    context.obj = GlobalOptions(config=config, debug=debug, quiet=quiet)
    if context.invoked_subcommand is not None:
        return
    if is_interactive():
        # prompt_toolkit: only where a chat begins
        from conductor_cli.cli.chat_loop import start_chat

        raise typer.Exit(start_chat(context.obj, quiet=context.obj.quiet))
    print_notice(context.get_help())
    raise typer.Exit(UsageError("").exit_code)
