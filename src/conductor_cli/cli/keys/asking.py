"""Getting a key from a person or a pipe, and a person's yes to a file that is not encrypted."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from conductor_cli.core.errors import UsageError
from conductor_cli.keys.entry import LONGEST, checked_key
from conductor_cli.models.known_secrets import KNOWN_SECRETS


def key_from_user(provider: str) -> str:
    """The key of a provider: from a prompt that shows nothing, or from stdin. Raises `UsageError`."""
    text = _prompted(provider) if sys.stdin.isatty() else _piped()
    KNOWN_SECRETS.add(*text.split())  # whatever it is, no message repeats it
    return checked_key(text)


def _prompted(provider: str) -> str:
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"key of {provider} (it is not shown): ")
        except GetPassWarning:
            hint = f'printf %s "$KEY" | conductor keys set {provider}'
            raise UsageError("this terminal would show the key", hint=hint) from None
        except EOFError:
            _end_line()
            return ""
        except KeyboardInterrupt:
            _end_line()
            raise


def _end_line() -> None:
    """What getpass leaves out where it got no line, so that what comes next does not stand behind the prompt."""
    from conductor_cli.cli.output import print_notice

    if sys.stderr.isatty():
        print_notice("")


def _piped() -> str:
    data = sys.stdin.buffer.read(64 * LONGEST)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("this is no key: it is no text", hint="give the key alone") from None


def agree_to_file(path: Path, *, yes: bool) -> None:
    """Have a yes, by `--yes` or a person, before a key is written to a file. Raises `UsageError`."""
    from conductor_cli.cli.output import print_notice
    from conductor_cli.cli.prompts import confirm

    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("a key goes into a file that is not encrypted only after a yes", hint="add --yes")
    print_notice(f"the key will stand unencrypted in {path}: whoever reads your files has it")
    if not confirm("store it so?", default=False):
        raise UsageError("no key was stored", hint="the keyring keeps it encrypted: leave --insecure-storage out")
