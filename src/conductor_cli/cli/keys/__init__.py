"""`conductor keys`: set, list, rm, test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError
from conductor_cli.core.redact import LEAST

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.keys.key_store import KeyStore

app = typer.Typer(help="Keys of providers: where they are, and whether they are good.", no_args_is_help=True)

Provider = Annotated[str, typer.Argument(metavar="PROVIDER", help="openai, anthropic, gemini …")]

MORE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For `set`: a key that is given as an argument must not be repeated by Typer's own error."""


def _settings(context: typer.Context) -> Settings:
    from conductor_cli.config import load_settings

    return load_settings(os.environ, {}, context.obj.config)


def _safe() -> KeyStore:
    from conductor_cli.config import app_paths
    from conductor_cli.keys.key_store import KeyStore

    return KeyStore(app_paths(os.environ).data, os.environ)


@app.command("set", context_settings=MORE)
def set_(
    context: typer.Context,
    provider: Provider,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="Send it to this address, not to the provider's own."),
    ] = None,
    insecure_storage: Annotated[
        bool, typer.Option("--insecure-storage", help="Keep it in a file that is not encrypted, after a yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Say yes to a file that is not encrypted.")] = False,
) -> None:
    """Keep a provider's key in the system's keyring. It is asked for, or read from stdin; it is no argument."""
    from conductor_cli.app.key_status import kept_in, variables_set
    from conductor_cli.cli.keys.asking import agree_to_file, key_from_user
    from conductor_cli.cli.output import print_notice, print_text
    from conductor_cli.keys.entry import address, is_open, known_provider, same_address

    if context.args:
        hint = "what stood there is in the shell's history now: if it is a key, renew it\n"
        hint += 'printf %s "$KEY" | conductor keys set PROVIDER'
        raise UsageError("keys set takes a provider, and no key: it is asked for, or read from stdin", hint=hint)
    name = known_provider(provider)
    url, safe = address(name, base_url), _safe()
    if is_open(url):
        print_notice(f"{url} is plain http: whoever is on the way there can read the key")
    if insecure_storage:
        agree_to_file(safe.path, yes=yes)
    before, key = safe.entries().get(name), key_from_user(name)
    entry = safe.set(name, url, key, plaintext=insecure_storage)
    print_text(
        f"stored the key of {name} in {kept_in(entry, safe.path)}, for {url}; check it with: conductor keys test {name}"
    )
    if before is not None and not same_address(before.base_url, url):
        print_notice(f"it takes the place of the key for {before.base_url}")
    if len(key) < LEAST:
        print_notice(f"a key with fewer than {LEAST} characters is not hidden in what is shown or stored")
    for variable in variables_set(name, os.environ):
        print_notice(f"{variable} is set, too; it wins")


@app.command("list")
def list_(context: typer.Context, json: opt.Json = False) -> None:
    """List the keys that are at hand: where each is, and how old. No key is shown."""
    from conductor_cli.app.key_status import list_keys
    from conductor_cli.cli.output import print_error, print_json, print_notice, print_table

    rows, fault = list_keys(_settings(context), _safe())
    if json:
        print_json([row.data() for row in rows])
    elif rows:
        heads = ("PROVIDER", "SOURCE", "AGE", "STATE", "ADDRESS")
        print_table(heads, [[row.provider, row.source, row.age, row.state, row.base_url] for row in rows])
    else:
        print_notice("no key is at hand; store one with: conductor keys set PROVIDER")
    if fault is not None:
        print_error(fault)


@app.command("rm")
def rm(provider: Provider) -> None:
    """Remove a stored key."""
    from conductor_cli.app.key_status import kept_in, variables_set
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.keys.entry import known_provider

    name, safe = known_provider(provider), _safe()
    entry, absent = safe.remove(name)
    if absent is None:
        print_line(f"removed the key of {name} from {kept_in(entry, safe.path)}")
    else:
        print_line(f"removed the key of {name} from the list of stored keys")
        print_notice(f"{absent.message}: the key may still lie in {kept_in(entry, safe.path)}")
    for variable in variables_set(name, os.environ):
        print_notice(f"{variable} still holds one")


@app.command("test")
def ask_providers(
    context: typer.Context,
    providers: Annotated[
        list[str] | None, typer.Argument(metavar="PROVIDER", help="Which; all where none is named.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Ask each provider whether it takes its key: one request each that costs nothing, all at once."""
    from conductor_cli.cli.keys.testing import exit_code, test_keys
    from conductor_cli.cli.output import print_json, print_table
    from conductor_cli.keys.entry import known_provider

    tested = test_keys(_settings(context), _safe(), [known_provider(name) for name in providers or ()])
    if json:
        print_json([item.data() for item in tested])
    else:
        heads = ("PROVIDER", "SOURCE", "STATE", "TIME", "SAID")
        print_table(heads, [[t.row.provider, t.row.source, t.state, t.time, t.said] for t in tested])
    raise typer.Exit(exit_code(tested))
