"""The vocabulary of Qwen2 and the chat template of Qwen2.5, from the source distribution of llama-cpp-python.

That holds llama.cpp's own source, and in it a GGUF of the vocabulary alone. pip fetches it (77 MB) exactly as
requirements.lock has it and compiles nothing; what is needed is kept, the rest goes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

LOCK: Final = Path(__file__).resolve().parent.parent / "requirements.lock"
PACKAGE: Final = "llama-cpp-python"

WANTED: Final = ("ggml-vocab-qwen2.gguf", "templates/Qwen-Qwen2.5-7B-Instruct.jinja")
"""Under vendor/llama.cpp/models of the source distribution."""

TEXT_END: Final = "<|endoftext|>"
END: Final = "<|im_end|>"

_UNUSED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The tokens, what kind each is, how they merge, and how a conversation is written."""

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    template: str

    def padded(self, size: int) -> Vocabulary:
        """The same with `size` tokens."""
        more = range(len(self.tokens), size)
        tokens = [*self.tokens, *(f"[PAD{number}]" for number in more)]
        return replace(self, tokens=tokens, kinds=[*self.kinds, *(_UNUSED for _ in more)])


def fetched(place: Path) -> tuple[Path, Path]:
    """The vocabulary's GGUF and the template, in `place`; fetched where they are not there yet."""
    vocabulary, template = (place / Path(name).name for name in WANTED)
    if not (vocabulary.exists() and template.exists()):
        with tempfile.TemporaryDirectory(dir=place) as here:
            _extract(_download(Path(here)), Path(here), place)
    return vocabulary, template


def _download(place: Path) -> Path:
    """The source distribution. Without isolation pip needs no other package to look at its metadata."""
    found = re.search(rf"^{PACKAGE}==.*(?:\n[ \t]+.*)*", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{LOCK} does not name {PACKAGE}")
    wanted = place / "wanted.txt"
    wanted.write_text(found[0], encoding="utf-8")
    print(f"fetching the source distribution of {PACKAGE}, 77 MB …", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE,
               "--no-build-isolation", "--require-hashes", "--dest", str(place), "-r", str(wanted)]  # fmt: skip
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"the source distribution of {PACKAGE} could not be fetched")
    return next(place.glob("*.tar.gz"))


def _extract(source: Path, here: Path, place: Path) -> None:
    """Put what is wanted into `place`, each file only when it is whole."""
    with tarfile.open(source) as archive:
        for member in archive:
            name = member.name.partition("/vendor/llama.cpp/models/")[2]
            data = archive.extractfile(member) if name in WANTED else None
            if data is not None:
                part = here / Path(name).name
                part.write_bytes(data.read())
                part.replace(place / part.name)


def read(vocabulary: Path, template: Path) -> Vocabulary:
    """What the two files say."""
    import gguf

    fields = gguf.GGUFReader(vocabulary).fields
    tokens, kinds, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges"))
    return Vocabulary(
        tokens=tokens, kinds=[int(kind) for kind in kinds], merges=merges, template=template.read_text(encoding="utf-8")
    )
