"""`conductor keys`: set, list, rm, test."""

from __future__ import annotations

import os
import sys
import warnings
from getpass import GetPassWarning, getpass
from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.app import keys
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_error, print_json, print_line, print_notice, print_table, print_text
from conductor_cli.cli.prompts import can_ask, confirm
from conductor_cli.config import app_paths
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import UNKNOWN, format_age
from conductor_cli.keys.entry import LONGEST_KEY, address, checked_key, known_provider
from conductor_cli.keys.key_store import KeyStore
from conductor_cli.models.known_secrets import KNOWN_SECRETS

app = typer.Typer(help="Store and check the API keys of providers.", no_args_is_help=True)

Provider = Annotated[str, typer.Argument(metavar="PROVIDER", help="openai, anthropic, gemini …")]

# A key given as an argument must not be repeated by Typer's own error for unexpected arguments.
EXTRA_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def _open_store() -> KeyStore:
    return KeyStore(app_paths(os.environ).data, os.environ)


@app.command("set", context_settings=EXTRA_ARGUMENTS)
def set_key(
    context: typer.Context,
    provider: Provider,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="Use the key for this address instead of the provider's own."),
    ] = None,
    insecure_storage: Annotated[
        bool, typer.Option("--insecure-storage", help="Store it in a file that is not encrypted, after a yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to a file that is not encrypted.")] = False,
) -> None:
    """Store a provider's key in the system's keyring. The key is asked for, or read from stdin."""
    if context.args:
        hint = "your shell may have saved the arguments in its history: if one was a key, revoke it\n"
        hint += 'printf %s "$KEY" | conductor keys set PROVIDER'
        raise UsageError("keys set takes a provider and no key: the key is asked for, or read from stdin", hint=hint)
    name = known_provider(provider)
    url, store = address(name, base_url), _open_store()
    # Said before the key is asked for, so that the user can still stop.
    if notice := keys.unencrypted_notice(url):
        print_notice(notice)
    if insecure_storage:
        _agree_to_file(store.path, yes=yes)
    stored = keys.store_key(store, name, url, _read_key(name), plaintext=insecure_storage)
    print_text(f"stored the key of {name} in {stored.place}, for {url}; check it with: conductor keys test {name}")
    for notice in stored.notices:
        print_notice(notice)


@app.command("list")
def list_keys(context: typer.Context, json: opt.Json = False) -> None:
    """List the keys that were found: where each one is, and how old. No key is shown."""
    rows, fault = keys.list_keys(opt.stored_settings(context), _open_store())
    if json:
        print_json([row.data() for row in rows])
    elif rows:
        ages = [UNKNOWN if (age := row.age_seconds()) is None else format_age(age) for row in rows]
        cells = [[row.provider, row.source, age, row.state, row.base_url] for row, age in zip(rows, ages, strict=True)]
        print_table(("PROVIDER", "SOURCE", "STORED", "STATE", "ADDRESS"), cells)
    else:
        print_notice("no keys found; store one with: conductor keys set PROVIDER")
    if fault is not None:
        print_error(fault)


@app.command("rm")
def remove_key(provider: Provider) -> None:
    """Remove a stored key."""
    name = known_provider(provider)
    removed = keys.remove_key(_open_store(), name)
    print_line(f"removed the key of {name} from {removed.place}")
    for notice in removed.notices:
        print_notice(notice)


@app.command("test")
def ask_providers(
    context: typer.Context,
    providers: Annotated[
        list[str] | None, typer.Argument(metavar="PROVIDER", help="Providers to ask; default: all that have a key.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Ask each provider whether it accepts its key: one free request each, all at once."""
    names = [known_provider(name) for name in providers or ()]
    checks = keys.check_keys(opt.stored_settings(context), _open_store(), names)
    if json:
        print_json([check.data() for check in checks])
    else:
        times = [UNKNOWN if check.seconds is None else f"{check.seconds:.2f} s" for check in checks]
        rows = [[c.row.provider, c.row.source, c.state, time, c.message] for c, time in zip(checks, times, strict=True)]
        print_table(("PROVIDER", "SOURCE", "STATE", "TIME", "MESSAGE"), rows)
    raise typer.Exit(keys.exit_code_of(checks))


def _read_key(provider: str) -> str:
    """The key, from a prompt that shows nothing or from stdin. Raises `UsageError`."""
    text = _prompt_for_key(provider) if sys.stdin.isatty() else _read_piped_key()
    KNOWN_SECRETS.add(*text.split())  # even when it is refused, no message may repeat it
    return checked_key(text)


def _prompt_for_key(provider: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"key of {provider} (not shown): ")
        except GetPassWarning:
            hint = f'printf %s "$KEY" | conductor keys set {provider}'
            raise UsageError("this terminal would show the key", hint=hint) from None
        except (EOFError, KeyboardInterrupt) as stop:
            # getpass ends its line only when it got one.
            if sys.stderr.isatty():
                print_notice("")
            if isinstance(stop, EOFError):
                return ""
            raise


def _read_piped_key() -> str:
    data = sys.stdin.buffer.read(64 * LONGEST_KEY)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("stdin holds no key: it is not text", hint="pass the key alone") from None


def _agree_to_file(path: Path, *, yes: bool) -> None:
    """Get a yes, by `--yes` or from a person, before a key is written to a file. Raises `UsageError`."""
    if yes:
        return
    if not can_ask():
        raise UsageError("storing a key in a file that is not encrypted needs a yes", hint="add --yes")
    print_notice(f"the key will be stored unencrypted in {path}: anyone who can read your files can read it")
    if not confirm("Store it anyway?", default=False):
        raise UsageError("no key was stored", hint="leave out --insecure-storage to store it encrypted in the keyring")
