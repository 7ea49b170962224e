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
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.core.formatting import format_size
from conductor_cli.core.mappings import names_of
from conductor_cli.models.llama.gguf import PART_NAME, part_names, read_header
from conductor_cli.models.weights import huggingface, registry
from conductor_cli.models.weights.huggingface import HubRepository
from conductor_cli.models.weights.model_store import ModelFile, ModelStore
from conductor_cli.models.weights.verify import is_adapter

PREFERRED_QUANTIZATION: Final = "Q4_K_M"  # The one that is taken where none is named

MAX_SHOWN: Final = 40  # How many models of one repository an error lists
_ADDRESS: Final = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co)/(?P<path>[^?#]*).*")
_PAGE: Final = re.compile(r"/(?:blob|resolve|tree)/main/?")
"""What stands between repository and file in the address of a page or a download."""

_QUANTIZATION: Final = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q[1-9]|TQ[12])(?:_[0-9A-Z]+)*|MXFP4(?:_MOE)?|BF16|FP?16|F32)(?=$|[-._])",
    re.IGNORECASE,
)
# Words in the names of GGUF files that belong to a model and are none
_COMPANION_WORDS: Final = ("mmproj", "imatrix")


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
        part = PART_NAME.fullmatch(name)
        if part:
            return part["name"]
        return name.removesuffix(".gguf")

    @property
    def quantization(self) -> str:
        """Such as `Q4_K_M`, from its name; empty where that does not say it."""
        names = _QUANTIZATION.findall(self.stem)
        if not names:
            return ""
        return str(names[-1]).upper()


def parse_reference(text: str) -> tuple[str, str] | None:
    """Return the repository and the choice of `OWNER/REPO[:CHOICE]` or of an address on the hub.

    None for other text, and for the path of a file on this machine.
    """
    address = _ADDRESS.fullmatch(text)
    if address is not None:
        text = _PAGE.sub(":", address["path"], count=1).rstrip("/")
    repo, _, choice = text.partition(":")
    if not registry.REPO_NAME.fullmatch(repo) or (not choice and repo.endswith(".gguf")):
        return None
    return repo, choice


def find_hub_model(
    repo: str, choice: str, store: ModelStore, environ: Mapping[str, str]
) -> registry.RegistryModel:
    """Return the model of a repository that is meant, by its quantization or file.

    A model of the registry is returned as such. Raises `ConductorUnusable`, with what there is to
    choose from.
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
    name = _stored_name(repo, chosen, store) or _name_model(repo, chosen, offered, store, environ)
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


def _stored_name(repo: str, chosen: OfferedModel, store: ModelStore) -> str | None:
    """Return what these files are called that an earlier pull has stored."""
    for manifest in store.manifests():
        if manifest.repo == repo and list(manifest.repo_files) == chosen.names:
            return manifest.name
    return None


def list_offered(files: Mapping[str, ModelFile]) -> list[OfferedModel]:
    """Return the models among the files of a repository, the smallest first.

    Everything else is left out.
    """
    parts_of_models = set()
    for name in files:
        if _is_model_file(name):
            parts_of_models.add(tuple(part_names(name)))
    offered = []
    for names in parts_of_models:
        if names[0] in files:
            parts = tuple(files.get(name, ModelFile(file=name)) for name in names)
            offered.append(OfferedModel(files=parts))
    return sorted(offered, key=lambda model: (model.size, model.names))


def _is_model_file(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    is_companion = any(word in name for word in _COMPANION_WORDS)
    is_gguf = path.endswith(".gguf") and registry.FILE_NAME.fullmatch(path) is not None
    return is_gguf and not is_companion


def choose_offered(repo: str, choice: str, offered: Sequence[OfferedModel]) -> OfferedModel:
    """Return the one model that is meant.

    Raises `ConductorUnusable` where it is none or several, or a part is missing.
    """
    if not offered:
        name = repo.rpartition("/")[2]
        raise ConductorUnusable(
            f"{repo} has no GGUF model, and llama.cpp reads no other format",
            hint=f"find a repository with GGUF files, often called {name}-GGUF, and pull that: "
            f"conductor model pull OWNER/{name}-GGUF\n"
            f"search: {huggingface.shown_endpoint()}/models?library=gguf&search={name}",
        )
    fitting = _fitting_models(choice, offered)
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise _choice_error(f"{repo} has no {choice}", repo, offered)
    if choice:
        problem = f"{repo} has {len(fitting)} models that are called {choice}"
        raise _choice_error(problem, repo, fitting)
    raise _choice_error(f"{repo} has {len(offered)} models", repo, offered)


def _fitting_models(choice: str, offered: Sequence[OfferedModel]) -> list[OfferedModel]:
    """Return the models that a choice may mean: a path, else a file's name, or a quantization."""
    if choice.lower().endswith(".gguf"):
        at_path = [model for model in offered if choice in model.names]
        return at_path or [model for model in offered if _has_file_called(model, choice)]
    quantization = choice.upper() or PREFERRED_QUANTIZATION
    fitting = [model for model in offered if model.quantization == quantization]
    if not choice and not fitting:
        return list(offered)
    return fitting


def _has_file_called(model: OfferedModel, name: str) -> bool:
    return any(PurePosixPath(path).name == name for path in model.names)


def _choice_error(problem: str, repo: str, models: Sequence[OfferedModel]) -> ConductorUnusable:
    """Return the error that lists models to choose from."""
    labels = _labels(models)
    shown = []
    for label, model in zip(labels, models, strict=True):
        shown.append(f"{label} ({format_size(model.size)})")
    listed = ", ".join(shown[:MAX_SHOWN])
    if len(shown) > MAX_SHOWN:
        listed += f" and {len(shown) - MAX_SHOWN} more"
    hint = f"choose one: conductor model pull {repo}:{labels[0]}\nthere are {listed}"
    return ConductorUnusable(problem, hint=hint)


def _labels(models: Sequence[OfferedModel]) -> list[str]:
    """Return a word for each model: its quantization where only one has it, else its file."""
    quantizations = [model.quantization for model in models]
    labels = []
    for model in models:
        if model.quantization and quantizations.count(model.quantization) == 1:
            labels.append(model.quantization)
        else:
            labels.append(model.names[0])
    return labels


def _name_model(
    repo: str,
    chosen: OfferedModel,
    offered: Sequence[OfferedModel],
    store: ModelStore,
    environ: Mapping[str, str],
) -> str:
    """Return what the model is called: by repository and quantization, in small letters.

    No other model is called so.
    """
    used_names = set(names_of(registry.load_registry(environ)))
    used_names.update(names_of(store.manifests()))
    used_names.update(store.damaged())
    owner, _, tail = repo.partition("/")
    tail = re.sub(r"[-._]gguf$", "", tail, flags=re.IGNORECASE)
    kinds = [model.quantization for model in offered]
    if chosen.quantization and kinds.count(chosen.quantization) == 1:
        base = tail
        kind = chosen.quantization
    else:
        base = chosen.stem
        kind = ""
    for start in (base, f"{owner}-{base}"):
        name = _clean_name(start, kind)
        if name not in used_names:
            return name
    number = 2
    while True:
        name = _clean_name(base, f"{kind}-{number}".strip("-"))
        if name not in used_names:
            return name
        number += 1


def _clean_name(base: str, kind: str) -> str:
    """Return a name that a model may have.

    The end, which tells models of one repository apart, is never cut.
    """
    end = ""
    if kind:
        end = f"-{kind}".lower()
    start = re.sub(r"[^a-z0-9._-]+", "-", base.lower()).strip("-._").removesuffix(end) or "model"
    return start[: registry.MAX_MODEL_NAME - len(end)].rstrip("-._") + end


def _memory_needed(
    repository: HubRepository, chosen: OfferedModel
) -> tuple[int, Literal["header", "size"]]:
    """Return the bytes that the model needs, and from what that is known.

    Raises `ConductorUnusable` for a file of another format. This is also the first request for the
    file itself, which the hub refuses where the repository is gated.
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
    if memory:
        return memory, "header"
    # Where the header does not say it, a context needs a tenth of the weights.
    return int(chosen.size * 1.1) + registry.OVERHEAD_BYTES, "size"
