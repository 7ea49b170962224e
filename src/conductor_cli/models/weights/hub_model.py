"""A GGUF model of the hub that the registry does not list.

Which files `OWNER/REPO[:QUANTIZATION or FILE]` means, what the model is called on this machine, and
what it needs. All names are the hub's and are not trusted: a file whose name could lead out of a
directory is left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.core.formatting import format_size
from conductor_cli.models.llama.gguf import PART_NAME, part_names, read_header
from conductor_cli.models.weights import huggingface, registry
from conductor_cli.models.weights.huggingface import HubRepository
from conductor_cli.models.weights.model_store import ModelFile, ModelStore
from conductor_cli.models.weights.verify import is_adapter

PREFERRED: Final = "Q4_K_M"  # The quantization that is taken where none is named

MAX_SHOWN: Final = 40  # How many models of one repository an error lists
_ADDRESS: Final = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co)/(?P<path>[^?#]*).*")
_PAGE: Final = re.compile(r"/(?:blob|resolve|tree)/main/?")
"""What stands between repository and file in the address of a page or a download."""

_QUANTIZATION: Final = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q[1-9]|TQ[12])(?:_[0-9A-Z]+)*|MXFP4(?:_MOE)?|BF16|FP?16|F32)(?=$|[-._])",
    re.IGNORECASE,
)
# Words in the names of GGUF files that belong to a model and are none
_NO_PLANNER: Final = ("mmproj", "imatrix")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedModel:
    """A model that a repository offers: its only file, or its parts in order.

    A part that it lacks has no size.
    """

    files: tuple[ModelFile, ...]

    @property
    def names(self) -> list[str]:
        return [file.file for file in self.files]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def stem(self) -> str:
        """The name of its first file without directory, number of the part and `.gguf`."""
        name = PurePosixPath(self.files[0].file).name
        match = PART_NAME.fullmatch(name)
        return match["name"] if match else name.removesuffix(".gguf")

    @property
    def quantization(self) -> str:
        """Such as `Q4_K_M`, from its name; empty where that does not say it."""
        found = _QUANTIZATION.findall(self.stem)
        return str(found[-1]).upper() if found else ""


def parse_reference(text: str) -> tuple[str, str] | None:
    """Return the repository that `OWNER/REPO[:CHOICE]` or an address on the hub names, and the
    choice.

    None for other text, and for the path of a file on this machine.
    """
    if (address := _ADDRESS.fullmatch(text)) is not None:
        text = _PAGE.sub(":", address["path"], count=1).rstrip("/")
    repo, _, choice = text.partition(":")
    if not registry.REPO_NAME.fullmatch(repo) or (not choice and repo.endswith(".gguf")):
        return None
    return repo, choice


def find_hub_model(
    repo: str, choice: str, store: ModelStore, environ: Mapping[str, str]
) -> registry.RegistryModel:
    """Return the model of a repository that is meant, by its quantization or file.

    A listed one is found as such.

    Raises `ConductorUnusable`, with what there is to choose from.
    """
    if huggingface.is_offline():
        raise huggingface.offline(f"the hub cannot be asked what {repo} has")
    repository = huggingface.ask_repository(repo, "main")
    offered = list_offered(repository.files)
    chosen = choose_offered(repo, choice, offered)
    for model in registry.load_registry(environ):
        if model.repo == repo and [part.file for part in model.parts] == chosen.names:
            return model  # its hash is known without the hub
    memory, source = _memory_needed(repository, chosen)
    manifests = store.manifests()
    stored = next(
        (
            found
            for found in manifests
            if (found.repo, list(found.repo_files)) == (repo, chosen.names)
        ),
        None,
    )
    name = stored.name if stored is not None else _name_model(repo, chosen, offered, store, environ)
    return registry.RegistryModel(
        name=name,
        repo=repo,
        revision=repository.commit,
        parts=tuple(replace(file, sha256="", etag="") for file in chosen.files),
        licence=repository.licence or "unknown",
        about="",
        memory=memory,
        memory_source=source,
        listed=False,
    )


def list_offered(files: Mapping[str, ModelFile]) -> list[OfferedModel]:
    """Return the models among the files of a repository, the smallest first.

    Everything else is left out.
    """
    ggufs = [
        name for name in files if registry.FILE_NAME.fullmatch(name) and name.endswith(".gguf")
    ]
    wanted = {
        tuple(part_names(name))
        for name in ggufs
        if not any(word in name.rpartition("/")[2].lower() for word in _NO_PLANNER)
    }
    offered = [
        OfferedModel(files=tuple(files.get(name, ModelFile(file=name)) for name in names))
        for names in wanted
        if names[0] in files
    ]
    return sorted(offered, key=lambda model: (model.size, model.names))


def choose_offered(repo: str, choice: str, offered: Sequence[OfferedModel]) -> OfferedModel:
    """The one model that is meant.

    Raises `ConductorUnusable` where it is none or several, or a part is missing.
    """
    if not offered:
        name = repo.rpartition("/")[2]
        raise ConductorUnusable(
            f"{repo} has no GGUF model, and llama.cpp reads no other format",
            hint=f"find a repository with GGUF files, often called {name}-GGUF, and pull that: "
            "conductor model pull "
            f"OWNER/{name}-GGUF\nsearch: "
            f"{huggingface.shown_endpoint()}/models?library=gguf&search={name}",
        )
    if choice.lower().endswith(".gguf"):
        found = [model for model in offered if choice in model.names]
        found = found or [
            model
            for model in offered
            if choice in [PurePosixPath(name).name for name in model.names]
        ]
    elif choice:
        found = [model for model in offered if model.quantization == choice.upper()]
    else:
        found = [model for model in offered if model.quantization == PREFERRED] or list(offered)
    if len(found) != 1:
        if found:
            several = found if choice else offered
            message = f"{repo} has {len(several)} models" + (
                f" that are called {choice}" if choice else ""
            )
        else:
            several = offered
            message = f"{repo} has no {choice}"
        # A model is named by its quantization where only one has it, else by its file.
        kinds = [model.quantization for model in several]
        labels = [
            model.quantization if kinds.count(model.quantization) == 1 else "" for model in several
        ]
        labels = [label or model.names[0] for label, model in zip(labels, several, strict=True)]
        shown = [
            f"{label} ({format_size(model.size)})"
            for label, model in zip(labels, several, strict=True)
        ]
        more = f" and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
        hint = (
            f"conductor model pull {repo}:{labels[0]}\nthere are "
            f"{', '.join(shown[:MAX_SHOWN])}{more}"
        )
        raise ConductorUnusable(message, hint=f"choose one: {hint}")
    return found[0]


def _name_model(
    repo: str,
    chosen: OfferedModel,
    offered: Sequence[OfferedModel],
    store: ModelStore,
    environ: Mapping[str, str],
) -> str:
    """Return what the model is called.

    By repository and quantization, in small letters, as no other model is.
    """
    taken = {model.name for model in registry.load_registry(environ)} | {
        other.name for other in store.manifests()
    }
    taken |= {*store.damaged()}
    owner, _, tail = repo.partition("/")
    tail = re.sub(r"[-._]gguf$", "", tail, flags=re.IGNORECASE)
    kinds = [model.quantization for model in offered]
    if chosen.quantization and kinds.count(chosen.quantization) == 1:
        base = tail
        kind = chosen.quantization
    else:
        base = chosen.stem
        kind = ""
    numbered = (_clean_name(base, f"{kind}-{number}".strip("-")) for number in count(2))
    names = chain((_clean_name(base, kind), _clean_name(f"{owner}-{base}", kind)), numbered)
    return next(name for name in names if name not in taken)


def _clean_name(base: str, kind: str) -> str:
    """Return a name that a model may have.

    The end, which tells models of one repository apart, is never cut.
    """
    end = f"-{kind}".lower() if kind else ""
    start = re.sub(r"[^a-z0-9._-]+", "-", base.lower()).strip("-._").removesuffix(end) or "model"
    return start[: registry.MAX_MODEL_NAME - len(end)].rstrip("-._") + end


def _memory_needed(
    repository: HubRepository, chosen: OfferedModel
) -> tuple[int, Literal["header", "size"]]:
    """Bytes that the model needs, and from what that is known.

    Raises `ConductorUnusable` for a file of another format.

    This is also the first request for the file itself, which the hub refuses where the repository
    is gated.
    """
    first = chosen.files[0]
    name = f"{first.file} of {repository.name}"
    # What memory depends on stands before that
    start = huggingface.read_start(repository, first, 256 << 10)
    if start[:4] != b"GGUF":
        raise ConductorUnusable(
            f"{name} is not a GGUF file", hint="nothing was downloaded; check HF_ENDPOINT"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "header.gguf"
        path.write_bytes(start)
        with suppress(ModelError):  # the header may be longer than its beginning
            if is_adapter(read_header(path, brief=True)):
                hint = (
                    "download it with its makers' tools, then: conductor model import FILE "
                    "--base NAME"
                )
                raise ConductorUnusable(f"{name} is a LoRA adapter, not a model", hint=hint)
        memory = registry.file_memory(path, chosen.size)
    # Where the header does not say it, a context needs a tenth of the weights.
    return (memory, "header") if memory else (int(chosen.size * 1.1) + registry.OVERHEAD, "size")
