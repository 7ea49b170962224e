"""Write the generated documents: `python -m scripts.reference`.

With --check say which of them are stale; with --freeze write the surface of this version, which a
release promises.
"""

from __future__ import annotations

import sys
from pathlib import Path

from conductor_cli import __version__
from conductor_cli.cli.command_tree import app
from scripts.reference import commands, completion, man, markdown, surface, topics

ROOT = Path(__file__).resolve().parent.parent.parent


def documents(root: commands.Command, version: str) -> dict[str, str]:
    """The text of every generated document by its path in the checkout."""
    listed = topics.topics()
    pages = {
        f"man/man{name[-1]}/{name}": text for name, text in man.pages(root, listed, version).items()
    }
    return {
        "completions/words.json": completion.words_table(root),
        "docs/cli.md": markdown.page(root),
        "docs/surface.json": surface.current_surface(root, version).text(),
        **{f"docs/{topic.name}.md": markdown.topic(topic) for topic in listed},
        **pages,
    }


def stale(wanted: dict[str, str], directory: Path) -> list[str]:
    """The documents that are missing, differ, or describe a command that is gone."""
    there = {name: directory / name for name in wanted if (directory / name).exists()}
    differ = [
        name
        for name in wanted
        if name not in there or there[name].read_text("utf-8") != wanted[name]
    ]
    gone = [
        path.relative_to(directory).as_posix() for path in sorted(directory.glob("man/*/*.[0-9]"))
    ]
    return differ + [name for name in gone if name not in wanted]


def write(wanted: dict[str, str], directory: Path) -> list[str]:
    """Make the documents what they should be. The names of those that changed."""
    names = stale(wanted, directory)
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in wanted:
            path.write_text(wanted[name], encoding="utf-8")
        else:
            path.unlink()
    return names


def wanted() -> dict[str, str]:
    """What the program as it stands asks for."""
    return documents(commands.read(app, "conductor"), __version__)


def main() -> int:
    """0, or 1 with --check when a document is stale."""
    if "--check" in sys.argv[1:]:
        names = stale(wanted(), ROOT)
        print(
            "\n".join(f"{name} is stale: make docs" for name in names)
            or "generated documents: up to date"
        )
        return 1 if names else 0
    if "--freeze" in sys.argv[1:]:
        from scripts.reference.outputs import print_on_a_stage  # a server and commands: only here

        frozen = surface.current_surface(
            commands.read(app, "conductor"), __version__, print_on_a_stage()
        )
        print(f"wrote {surface.freeze(frozen, ROOT)}")
        return 0
    names = write(wanted(), ROOT)
    print("\n".join(f"wrote {name}" for name in names) or "generated documents: up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
