"""`conductor keys`: set, list, rm, test."""

from __future__ import annotations

import os
import sys
import warnings
from datetime import UTC, datetime
from getpass import GetPassWarning, getpass
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from conductor_cli.app import keys
from conductor_cli.cli import options as opt
from conductor_cli.cli.keypress import unseen_typing
from conductor_cli.cli.output import (
    print_check,
    print_done,
    print_json,
    print_json_rows,
    print_line,
    print_notice,
    print_table,
)
from conductor_cli.config.settings import app_paths
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import UNKNOWN, format_time
from conductor_cli.core.redact import MIN_SECRET_CHARS
from conductor_cli.models.addresses import is_loopback
from conductor_cli.state.key_store import (
    MAX_KEY,
    POSTGRESQL,
    KeyStore,
    address,
    checked_key,
    known_provider,
)
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.system.terminal_tables import Column

app = typer.Typer(help="Store and check the API keys of providers.", no_args_is_help=True)

Provider = Annotated[str, opt.argument("PROVIDER", "openai, anthropic, gemini …")]

KEY_COLUMNS: Final = (
    Column("PROVIDER", shrink=12),
    Column("SOURCE", shrink=12, drop=1),
    Column("STORED", drop=4),
    Column("STATE"),
    Column("WORKERS", shrink=12, drop=3),
    Column("ADDRESS", shrink=20, drop=2),
)

# What asks for something by a key of no provider of models: nothing else tries one.
_OTHER_TESTS: Final = {
    "github": "conductor plan … -f issue:OWNER/REPO#N",
    "brave": "conductor config set web.search brave, and a question",
    "tavily": "conductor config set web.search tavily, and a question",
    POSTGRESQL: "conductor state check",
}

# A key given as an argument must not be repeated by Typer's own error for unexpected arguments.
EXTRA_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command("set", context_settings=EXTRA_ARGUMENTS)
def set_key_command(
    context: typer.Context,
    provider: Provider,
    base_url: Annotated[
        str | None,
        opt.option(
            "--base-url", "Use the key for this address instead of the provider's own.", "URL"
        ),
    ] = None,
    insecure_storage: opt.InsecureStorage = False,
) -> None:
    """Store a provider's key in the system's keyring. The key is asked for, or read from stdin."""
    if context.args:
        hint = (
            "your shell may have saved the arguments in its history: if one was a key, revoke it\n"
        )
        hint += 'printf %s "$KEY" | conductor keys set PROVIDER'
        raise UsageError(
            "keys set takes a provider and no key: the key is asked for, or read from stdin",
            hint=hint,
        )
    name = known_provider(provider)
    store = KeyStore(app_paths(os.environ).data, os.environ)
    url = _database_address(context) if name == POSTGRESQL else address(name, base_url)
    test = _OTHER_TESTS.get(name, f"conductor keys test {name}")
    # Said before the key is asked for, so that the user can still stop.
    if urlsplit(url).scheme == "http" and not is_loopback(url):
        print_notice(f"{url} is not encrypted (http): others on the network can read the key")
    # A key that was typed and then cannot be stored would have to be looked up and typed again.
    if not insecure_storage and sys.stdin.isatty():
        store.check_keyring()
    key = checked_key(read_secret(f"key of {name}", f"conductor keys set {name}"))
    store.set(name, url, key, plaintext=insecure_storage)
    storage = "the keyring"
    if insecure_storage:
        storage = f"{store.path}, which is not encrypted"
    print_done(f"stored the key of {name} in {storage}, for {url}; check it with: {test}")
    if len(key) < MIN_SECRET_CHARS:
        print_notice(
            f"a key of fewer than {MIN_SECRET_CHARS} characters cannot be hidden in output and "
            "traces"
        )
    _print_set_variables(name)


def _database_address(context: typer.Context) -> str:
    from conductor_cli.state.opening import FileState, open_state  # the other commands stay quick

    state = open_state(opt.stored_settings(context).paths)
    if isinstance(state, FileState):
        hint = 'the setting state names it first: state = "postgresql://USER@HOST/DATABASE"'
        raise UsageError("there is no database that a password is for", hint=hint)
    return state.place


def read_secret(name: str, command: str) -> str:
    """Return what is typed without being shown, or the text of stdin. Raises `UsageError`."""
    if not sys.stdin.isatty():
        text = sys.stdin.buffer.read(64 * MAX_KEY).decode("utf-8-sig", errors="replace")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error", GetPassWarning)
            try:
                with unseen_typing(sys.stdin.fileno()):
                    text = getpass(f"{name} (not shown): ")
            except GetPassWarning:
                hint = f'printf %s "$KEY" | {command}'
                raise UsageError("this terminal would show the key", hint=hint) from None
            except EOFError:
                text = ""
    KNOWN_SECRETS.add(*text.split())  # even when it is refused, no message may repeat it
    return text


def _print_set_variables(provider: str) -> None:
    for variable in keys.set_variables(provider, os.environ):
        print_notice(f"{variable} is also set, and is used before a stored key")


@app.command("list")
def list_keys_command(context: typer.Context, json: opt.Json = False) -> None:
    """List the keys that were found: where each one is, and how old. No key is shown."""
    settings = opt.stored_settings(context)
    stored = keys.find_keys(settings, KeyStore(settings.paths.data, os.environ))
    if json:
        print_json_rows(stored)
        return
    if not stored:
        print_notice("no keys found; store one with: conductor keys set PROVIDER")
        return
    now = datetime.now(UTC)
    rows = []
    for key in stored:
        since = format_time(key.since, now)
        workers = ", ".join(key.workers) or UNKNOWN
        rows.append([key.provider, key.source, since, key.state, workers, key.base_url])
    print_table(KEY_COLUMNS, rows)


@app.command("rm")
def remove_key_command(provider: Provider) -> None:
    """Remove a stored key."""
    store = KeyStore(app_paths(os.environ).data, os.environ)
    # A server of tools is no provider
    name = provider
    if provider not in store.entries() and not provider.startswith("tool:"):
        name = known_provider(provider)
    entry, fault = store.remove(name)
    if fault is None:
        print_line(f"removed the key of {name} from the {entry.where}")
    else:
        print_line(f"removed the key of {name} from the list of stored keys")
        print_notice(f"{fault.message}: the key may still be in the keyring")
    _print_set_variables(name)


@app.command("test")
def check_keys_command(
    context: typer.Context,
    providers: Annotated[
        list[str] | None,
        opt.argument("PROVIDER", "Providers to ask; default: all that have a key."),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Ask each provider whether it accepts its key: one free request each, all at once."""
    names = [known_provider(name) for name in providers or ()]
    for name in names:
        if name in _OTHER_TESTS:
            hint = f"to check that key: {_OTHER_TESTS[name]}"
            raise UsageError(f"keys test asks providers of models, and {name} is none", hint=hint)
    settings = opt.stored_settings(context)
    checks = keys.check_keys(settings, KeyStore(settings.paths.data, os.environ), names)
    if json:
        print_json([check.to_json("provider") for check in checks])
    else:
        for check in checks:
            print_check(check)
    # That a key is refused, or cannot be read, counts for more than a provider that cannot be
    # reached.
    codes = {check.code for check in checks}
    raise typer.Exit(4 if 4 in codes else max(codes, default=0))
