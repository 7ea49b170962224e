"""Installing an adapter that lies beside the registry: checked, unpacked, and put into the store.

The store has a file of its own, so that a planner in use outlives an update of this package.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models.llama import gguf
from conductor_cli.models.weights.model_store import (
    PACKAGE_SOURCE,
    Manifest,
    ModelFile,
    ModelStore,
)
from conductor_cli.models.weights.registry import RegistryModel
from conductor_cli.models.weights.verify import Report, hash_file
from conductor_cli.system.disk import make_private_directory, temporary_path


def source_of(model: RegistryModel) -> str:
    """Return the source that the manifest of this packaged adapter names."""
    return f"{PACKAGE_SOURCE}{model.parts[0].sha256}"


def install_packaged(
    model: RegistryModel, base: Manifest, store: ModelStore, report: Report
) -> Manifest:
    """Put a packaged adapter into the store, for its base that is stored; return its manifest.

    Raises `ConductorUnusable` for a file that is not what its record says, or does not fit its
    base; `ConfigError` where the manifest cannot be written.
    """
    [part] = model.parts
    folder = store.folder(model.name)
    target = folder / Path(part.file).name
    try:
        _check_hash(model, part, report)
        with store.lock(lambda: report("waiting for another import", 0, 0)):
            make_private_directory(folder)
            _unpack_checked(part.path, target, base.path)
            file = ModelFile(path=target, size=target.stat().st_size, sha256=hash_file(target))
            manifest = Manifest(
                name=model.name,
                files=(file,),
                source=source_of(model),
                hash_source="registry",
                licence=model.licence,
                profile=model.profile,
                base=base.name,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            store.write(manifest)
            return manifest
    except ModelError as error:
        _remove_empty(folder)
        raise ConductorUnusable(error.message, hint=error.hint) from None
    except OSError as error:
        _remove_empty(folder)
        problem = f"cannot write {error.filename or folder}: {error.strerror}"
        raise ConductorUnusable(problem, hint="check the disk and its permissions") from None


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # an earlier adapter is in it
        folder.rmdir()


def _unpack_checked(packed: Path, target: Path, base: Path) -> None:
    """Unpack an adapter to `target` once it is known to fit its base.

    Raises `ModelError` of kind `file`, which names the packed file, and `OSError`.
    """
    # Slow to import, and few models have an adapter
    from conductor_cli.models.llama.lora import check_adapter, unpack_adapter

    with temporary_path(target) as unpacked:
        unpack_adapter(packed, unpacked)
        try:
            check_adapter(unpacked, gguf.check_model_file(base), base)
        except ModelError as error:
            problem = error.message.replace(str(unpacked), str(packed))
            raise ModelError("file", problem, hint=error.hint) from None
        unpacked.replace(target)


def _check_hash(model: RegistryModel, part: ModelFile, report: Report) -> None:
    sha256 = hash_file(part.path, report, model.name)
    if sha256 != part.sha256:
        problem = f"{part.path} has the SHA-256 {sha256}, not {part.sha256}"
        raise ModelError("file", problem, hint="it is damaged: install conductor-llm again")
