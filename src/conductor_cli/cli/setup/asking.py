"""`conductor setup` with a person at the terminal: each step is shown, asked for, and done at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.output import print_error, print_line, print_text
from conductor_cli.cli.prompts import YES_NO, choose, confirm, read_line
from conductor_cli.core.errors import ConductorError

if TYPE_CHECKING:
    from conductor_cli.cli.setup import Setup
    from conductor_cli.cli.setup.steps import Step

OTHER: Final = {**YES_NO, "o": "o", "other": "o"}
EACH: Final = {**YES_NO, "e": "e", "each": "e"}


class Asking:
    """The questions, one after the other. A bare Enter takes what is proposed; the end of input is a no."""

    def __init__(self, work: Setup) -> None:
        self.work = work

    def run(self) -> int:
        """Ask everything that is not here yet; the exit code."""
        self.work.tell_found()
        self._keys()
        self._workers()
        self._limits()
        self._model()
        self._first_try()
        print_line()
        self.work.next_words()
        return self.work.code

    def _keys(self) -> None:
        from conductor_cli.cli.setup.found import keys_of, workers_at_hand

        _head("Keys")
        if not self.work.found.keyring:
            print_text("  no keyring works here: a key would go into a file that is not encrypted, after a yes")
        while name := read_line("Whose key to store? A provider, such as openai, or Enter for none:"):
            if self._key(name):
                settings = self.work.load()
                keys, workers = keys_of(settings), workers_at_hand(settings)
                self.work.found = replace(self.work.found, keys=keys, at_hand=workers)

    def _key(self, name: str) -> bool:
        """Ask for a key without showing it, keep it, and ask its provider. Whether it is kept."""
        from conductor_cli.app.keys import REFUSED, check_keys, open_key_store
        from conductor_cli.cli import keys

        try:
            keys.set_key(self.work.context, name, insecure_storage=not self.work.found.keyring)
            settings = self.work.load()
            tested = check_keys(settings, open_key_store(settings), [name])
            for item in tested:
                print_text(f"  {name}: {item.state}{f', {item.message}' if item.message else ''}")
            if any(item.state in REFUSED for item in tested) and confirm("Remove it again?", default=True):
                keys.remove_key(name)
                return False
        except ConductorError as error:
            print_error(error)
            return False
        return True

    def _workers(self) -> None:
        from conductor_cli.cli.setup.pool import worker_steps

        _head("Workers, the models that answer")
        steps = worker_steps(self.work.found, self.work.settings)
        for step in steps:
            print_text(f"  {step.line}")
        if not steps:
            print_text("  none at hand: the conductor model answers too")
        for step in _wanted([step for step in steps if not step.here]):
            self.work.do(step)

    def _limits(self) -> None:
        from conductor_cli.cli.setup.pool import limit_steps, pool_after

        steps = limit_steps(pool_after(self.work.settings, ()), self.work.settings)
        if steps:
            _head("Limits")
        for step in steps:
            print_text(f"  {step.line}")
        new = [step for step in steps if not step.here]
        if new and confirm("Set them?" if len(new) > 1 else "Set it?", default=True):
            for step in new:
                self.work.do(step)

    def _model(self) -> None:
        from conductor_cli.cli.setup.model import model_step

        _head("Conductor model, the one that plans")
        try:
            step = model_step(self.work.found, self.work.settings, self.work.wanted)
        except ConductorError as error:
            print_error(error)
            self.work.code = self.work.code or error.exit_code
            return
        if step is None:
            print_text("  none" if self.work.wanted else "  no model of the registry fits this machine")
        else:
            print_text(f"  {'here  ' if step.here else ''}{step.text}")
        if step is None or step.here:
            return
        answer = choose("Take it?", OTHER, "Y/n/other")
        if answer == "o":
            self._other()
        elif answer == "y":
            self.work.do(step)

    def _other(self) -> None:
        """Another model than the one proposed: asked for until there is one, or none is wanted after all."""
        from conductor_cli.cli.setup.model import model_step

        print_text("  conductor model list shows those that can be pulled")
        before = self.work.code
        while name := read_line("Its name, a GGUF file, a URL or provider/model; Enter for none:"):
            step = model_step(self.work.found, self.work.settings, name)
            if step is None or self.work.do(step):
                self.work.code = before  # what was mistyped is mended
                return

    def _first_try(self) -> None:
        """Offer a question to the shipped models, where nothing was ever asked."""
        from conductor_cli.app.doctor.live import DEMO_QUESTION
        from conductor_cli.cli.options import RunOptions
        from conductor_cli.cli.session import Session
        from conductor_cli.core.question import Question

        session = Session(self.work.context.obj, RunOptions(rehearsal=True))
        if session.store.runs():
            return
        _head("A first try")
        print_text("  tiny models that ship with conductor answer a question: no key, no cost")
        print_text(f'  conductor ask --rehearsal "{DEMO_QUESTION}"')
        if confirm("Run it?", default=True):
            session.run(Question(text=DEMO_QUESTION))


def _wanted(new: Sequence[Step]) -> list[Step]:
    """Those of the new workers that a person wants: all, none, or each by its own yes."""
    if not new:
        return []
    answer = choose(f"Add these {len(new)}?", EACH, "Y/n/each") if len(new) > 1 else "e"
    if answer == "e":
        return [step for step in new if confirm(f"Add {step.name}?", default=True)]
    return list(new) if answer == "y" else []


def _head(text: str) -> None:
    print_line()
    print_line(text)
