"""A trained directory as GGUF: what llama.cpp computes with the file is what torch computes with the directory."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
    pytest.skip("torch is not installed: pip install 'conductor-llm[train]'", allow_module_level=True)

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models import disk
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.bindings import load_bindings
from conductor_cli.models.llama.lora_check import check_adapter
from conductor_cli.models.llama.model_info import read_all_tensors
from conductor_cli.models.llama.prompt import Piece
from conductor_cli.models.llama.vocabulary import Vocabulary
from conductor_cli.train.gguf_export import SPLIT, export_adapter, export_model
from tests.cli.stage import Stage
from tests.tiny_gguf import CHATML, END, SPECIAL, TEXT

ROWS = 448
"""Rows of the embedding, more than there are tokens, as Qwen2.5 has it."""

MESSAGES = [{"role": "user", "content": "Check the sum of 12 and 7,\n  then WRITE it's répétition: 日本 <think> 🙂"}]


def save_tokenizer(directory: Path) -> None:
    """A byte-level BPE in the manner of Qwen2, with special tokens, one that a user added, and a chat template."""
    made = Tokenizer(models.BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), bytes_])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[], initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([TEXT], trainer)
    made.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    made.add_tokens([AddedToken("<think>", special=False)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=END, pad_token=SPECIAL[0], chat_template=CHATML
    )
    tokenizer.save_pretrained(directory)


def save_model(directory: Path, *, tied: bool, shard: str = "5GB") -> None:
    """Random weights, biases and norms, all of which 16 bits hold exactly, whichever 16."""
    torch.manual_seed(5)
    config = Qwen2Config(
        vocab_size=ROWS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, max_position_embeddings=8192, rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
        tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = torch.randn_like(weight) * 0.15 + (1 if "norm" in name else 0)
            weight.copy_(drawn.to(torch.bfloat16).float())
    model.save_pretrained(directory, max_shard_size=shard)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A directory as training leaves it, and what is in it."""

    directory: Path
    model: Any
    tokenizer: Any

    def prompt(self) -> list[int]:
        text = self.tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def logits(self, tokens: list[int], model: Any = None) -> Any:
        with torch.inference_mode():
            return (model or self.model)(input_ids=torch.tensor([tokens])).logits[0, -1].numpy()

    def greedy(self, count: int) -> list[int]:
        tokens = self.prompt()
        for _ in range(count):
            tokens.append(int(self.logits(tokens).argmax()))
        return tokens[-count:]


@pytest.fixture(scope="module", params=["tied", "own-output"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One with an output of its own is in several files."""
    directory = tmp_path_factory.mktemp("trained")
    save_tokenizer(directory)
    save_model(directory, tied=request.param == "tied", **({} if request.param == "tied" else {"shard": "100KB"}))
    if request.param != "tied":
        assert len([*directory.glob("model-*.safetensors")]) > 2
    model = Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    return Trained(directory=directory, model=model, tokenizer=PreTrainedTokenizerFast.from_pretrained(directory))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied one in one file, to be spoilt."""
    directory = tmp_path_factory.mktemp("plain")
    save_tokenizer(directory)
    save_model(directory, tied=True)
    return directory


@pytest.fixture
def source(plain: Path, tmp_path: Path) -> Path:
    return shutil.copytree(plain, tmp_path / "source")


class Runner:
    """A GGUF file in llama.cpp, whose context rounds nothing to 16 bits."""

    def __init__(self, path: Path, adapter: Path | None = None) -> None:
        self.lib = lib = load_bindings()
        params, settings = lib.llama_model_default_params(), lib.llama_context_default_params()
        params.use_extra_bufts, params.n_gpu_layers = False, 0
        self.model = lib.llama_model_load_from_file(os.fsencode(path), params)
        settings.n_ctx, settings.n_threads, settings.n_threads_batch = 256, 1, 1
        settings.type_k = settings.type_v = lib.GGML_TYPE_F32
        settings.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = lib.llama_init_from_model(self.model, settings)
        self.vocabulary = Vocabulary(lib, self.model)
        if adapter is not None:
            laid = lib.llama_adapter_lora_init(self.model, os.fsencode(adapter))
            assert laid
            one = (lib.llama_adapter_lora_p_ctypes * 1)(laid)
            assert lib.llama_set_adapters_lora(self.context, one, 1, (ctypes.c_float * 1)(1.0)) == 0

    def close(self) -> None:
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)

    def tokens(self, text: str) -> list[int]:
        return self.vocabulary.tokenize_prompt([Piece(text, control=True)], lambda: None).tokens

    def logits(self, tokens: list[int]) -> Any:
        """Those after the last of the tokens."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        given = (self.lib.llama_token * len(tokens))(*tokens)
        assert self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(given, len(tokens))) == 0
        return self.vocabulary.logits(self.context).copy()

    def greedy(self, tokens: list[int], count: int) -> list[int]:
        given = list(tokens)
        for _ in range(count):
            given.append(int(self.logits(given).argmax()))
        return given[len(tokens) :]


def told(error: pytest.ExceptionInfo[ModelError], problem: str) -> None:
    """It names what is wrong in one line, with a next step."""
    assert problem in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


def refused(source: Path, problem: str) -> None:
    """With its reason, and nothing is written."""
    out = source.parent / "out"
    with pytest.raises(ModelError) as error:
        export_model(source, out / "model.gguf", name="x")
    told(error, problem)
    assert not out.exists() or not [*out.iterdir()]


def test_llama_cpp_computes_what_torch_computes(trained: Trained, tmp_path: Path) -> None:
    """The same tokens for the same text, the same logits but for rounding, and the same greedy continuation."""
    path = export_model(trained.directory, tmp_path / "deep" / "model.gguf", name="a model")
    prompt = trained.prompt()
    with closing(Runner(path)) as runner:
        text = trained.tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
        assert runner.tokens(text) == prompt
        wanted = trained.logits(prompt)
        assert np.abs(wanted).max() > 2
        assert np.abs(runner.logits(prompt) - wanted).max() < 0.02
        assert runner.greedy(prompt, 24) == trained.greedy(24)
    assert [file.name for file in path.parent.iterdir()] == ["model.gguf"]


def test_the_metadata_describes_the_model(trained: Trained, tmp_path: Path) -> None:
    """Name, sizes, rotation, types of tensors and tokens, and the template."""
    path = export_model(trained.directory, tmp_path / "model.gguf", name="a model")
    header = gguf.check_model_file(path)
    tied = trained.model.config.tie_word_embeddings
    values = header.values
    assert (values["general.name"], values["general.type"], values["general.file_type"]) == ("a model", "model", 1)
    assert (values["qwen2.context_length"], values["qwen2.attention.head_count_kv"]) == (8192, 2)
    assert (values["qwen2.rope.freq_base"], values["tokenizer.ggml.pre"]) == (1e6, "qwen2")
    assert values["tokenizer.chat_template"] == CHATML
    assert (values["tokenizer.ggml.eos_token_id"], values["tokenizer.ggml.add_bos_token"]) == (
        trained.tokenizer.convert_tokens_to_ids(END), False,
    )  # fmt: skip
    tensors = read_all_tensors(path)
    assert ("output.weight" in tensors) is not tied
    assert {tensor.kind for name, tensor in tensors.items() if name.endswith((".bias", "norm.weight"))} == {0}
    assert {tensor.kind for name, tensor in tensors.items() if len(tensor.shape) == 2} == {1}


def test_kinds_of_tokens(plain: Path, tmp_path: Path) -> None:
    """Special ones are read as such, one that a user added is written out, and rows without a token are named."""
    path = export_model(plain, tmp_path / "model.gguf", name="x")
    with closing(Runner(path)) as runner:
        start, thought = runner.tokens("<|im_start|><think>")
        assert runner.vocabulary.token_bytes(start) == b""
        assert runner.vocabulary.token_bytes(thought) == b"<think>"
        assert runner.vocabulary.token_name(ROWS - 1) == f"[PAD{ROWS - 1}]"
        assert [token for token in range(ROWS) if runner.vocabulary.is_end(token)] == runner.tokens(
            "<|endoftext|><|im_end|>"
        )


peft_warns = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
"""PEFT uses names that transformers is about to drop."""


def with_adapter(trained: Trained, directory: Path) -> Any:
    """Saves a LoRA whose parts are all random; the model with it merged."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(7)
    parts = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = LoraConfig(r=4, lora_alpha=12, target_modules=parts, task_type="CAUSAL_LM")
    model = get_peft_model(Qwen2ForCausalLM.from_pretrained(trained.directory, dtype=torch.float32), config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(directory)
    return model.merge_and_unload().eval()


@peft_warns
@pytest.mark.parametrize("over", ["gguf", "directory"])
def test_an_adapter_computes_what_the_merged_model_computes(trained: Trained, tmp_path: Path, over: str) -> None:
    """In llama.cpp; the base model may be a GGUF file or a directory of transformers."""
    merged = with_adapter(trained, tmp_path / "lora")
    base = export_model(trained.directory, tmp_path / "base.gguf", name="base")
    adapter = export_adapter(
        tmp_path / "lora", base if over == "gguf" else trained.directory, tmp_path / "out" / "lora.gguf"
    )
    check_adapter(adapter, gguf.check_model_file(base), base)
    prompt = trained.prompt()
    with closing(Runner(base, adapter)) as runner:
        wanted = trained.logits(prompt, merged)
        assert np.abs(wanted - trained.logits(prompt)).max() > 0.3
        assert np.abs(runner.logits(prompt) - wanted).max() < 5e-3


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings")
@peft_warns
def test_an_adapter_for_the_output_of_a_tied_model_is_refused(trained: Trained, tmp_path: Path) -> None:
    """Also where the base is a directory: llama.cpp cannot adapt one matrix that is used twice."""
    from peft import LoraConfig, get_peft_model

    model = Qwen2ForCausalLM.from_pretrained(trained.directory)
    config = LoraConfig(r=2, target_modules=["embed_tokens"], init_lora_weights=False)
    get_peft_model(model, config).save_pretrained(tmp_path / "lora", save_embedding_layers=False)
    if trained.model.config.tie_word_embeddings:
        with pytest.raises(ModelError, match="reads and writes with one matrix"):
            export_adapter(tmp_path / "lora", trained.directory, tmp_path / "lora.gguf")
        assert not (tmp_path / "lora.gguf").exists()
    else:
        export_adapter(tmp_path / "lora", trained.directory, tmp_path / "lora.gguf")


@peft_warns
def test_what_was_exported_is_imported_and_plans(trained: Trained, tmp_path: Path, home: Path) -> None:
    """By the project's own commands: import, use, a question planned by the model alone and with its adapter."""
    with_adapter(trained, tmp_path / "lora")
    base = export_model(trained.directory, tmp_path / "whole.gguf", name="whole")
    adapter = export_adapter(tmp_path / "lora", base, tmp_path / "lora.gguf")
    stage = Stage(home)
    with stage.server:
        stage.configure()
        stage.config.write_text(stage.config.read_text().replace("[conductor]\nmodel", "[conductor]\n#"))
        for command in (("model", "import", base), ("model", "use", "whole")):
            assert stage.inside(*command).code == 0
        alone, over = (
            stage.inside("ask", "How many?", "--seed", "3", "--format", "json", *more)
            for more in ((), ("--adapter", str(adapter)))
        )
    assert (alone.code, over.code) == (0, 0), alone.err + over.err
    assert alone.json["conductor"].startswith("whole sha256-ends:")
    assert " + lora.gguf sha256-ends:" in over.json["conductor"]


SETTINGS: list[tuple[dict[str, object], str]] = [
    ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "the architecture is LlamaForCausalLM"),
    ({"architectures": ["Qwen2VLForConditionalGeneration"]}, "only Qwen2ForCausalLM can be exported"),
    ({"architectures": None, "model_type": None}, "the architecture is not given"),
    ({"architectures": [["\x1b[31m"]]}, "the architecture is ['\\x1b[31m']"),
    ({"use_sliding_window": True}, "a sliding window"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "a sliding window"),
    ({"hidden_act": "gelu"}, "the activation is gelu"),
    ({"quantization_config": {"bits": 4}}, "the weights are quantized"),
    ({"hidden_size": "64"}, "hidden_size is 64, and has to be a number"),
    ({"hidden_size": -64}, "hidden_size is -64"),
    ({"hidden_size": 10**30}, "hidden_size is"),
    ({"num_hidden_layers": True}, "num_hidden_layers is True"),
    ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000"),
    ({"num_hidden_layers": 3, "layer_types": None}, "lacks model.layers.2."),
    ({"num_hidden_layers": 1, "layer_types": None}, "has model.layers.1."),
    ({"num_attention_heads": 5}, "do not divide a width of 64"),
    ({"num_key_value_heads": 3}, "do not divide a width of 64"),
    ({"head_dim": 32}, "do not divide a width of 64"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    ({"vocab_size": 400}, "and the embedding has 400 rows"),
    ({"vocab_size": 512}, "has the shape (448, 64), and config.json describes (512, 64)"),
    ({"tie_word_embeddings": False}, "lacks lm_head.weight"),
    ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "longrope"),
    ({"rope_parameters": [1]}, "config.json"),
]


@pytest.mark.parametrize(("change", "problem"), SETTINGS, ids=[problem for _, problem in SETTINGS])
def test_a_model_that_llama_cpp_would_run_differently_is_refused(
    source: Path, change: dict[str, object], problem: str
) -> None:
    """The error says why, and nothing is written."""
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    refused(source, problem)


def test_a_stretched_context_is_exported(source: Path, tmp_path: Path) -> None:
    """YaRN as Qwen2.5 describes it, in the older notation: all four keys."""
    path = source / "config.json"
    config = json.loads(path.read_text())
    config.pop("rope_parameters", None)
    config |= {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,
               "original_max_position_embeddings": 128}}  # fmt: skip
    path.write_text(json.dumps(config))
    values = gguf.read_header(export_model(source, tmp_path / "model.gguf", name="x")).values
    found = {name.removeprefix("qwen2.rope."): value for name, value in values.items() if ".rope." in name}
    assert found == {
        "freq_base": 1e6, "scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 128,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(source: Path, name: str) -> None:
    """With the reason of the system."""
    (source / name).unlink()
    refused(source, name)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "spoil",
    [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"[" * 100_000, lambda data: b'"\xff"'],
    ids=["empty", "half", "deep", "no text"],
)
def test_a_damaged_file_is_named(source: Path, name: str, spoil: Callable[[bytes], bytes]) -> None:
    """Whatever is in its place."""
    path = source / name
    path.write_bytes(spoil(path.read_bytes()))
    refused(source, name)


def tokenizer_with(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def spoil(source: Path) -> None:
        told = json.loads((source / "tokenizer.json").read_text())
        change(told)
        (source / "tokenizer.json").write_text(json.dumps(told))

    return spoil


def settings_with(**change: object) -> Callable[[Path], object]:
    def spoil(source: Path) -> None:
        path = source / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))

    return spoil


def llama_split(told: dict[str, Any]) -> None:
    told["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = SPLIT.replace(r"\p{N}|", r"\p{N}{1,3}|")


def no_byte(told: dict[str, Any]) -> None:
    vocabulary = told["model"]["vocab"]
    vocabulary["new"] = vocabulary.pop("ÿ")


def twice(told: dict[str, Any]) -> None:
    told["model"]["vocab"]["again"] = 5


def begins(told: dict[str, Any]) -> None:
    told["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<think>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
        "special_tokens": {"<think>": {"id": "<think>", "ids": [9], "tokens": ["<think>"]}},
    }  # fmt: skip


TOKENIZERS: list[tuple[Callable[[Path], object], str]] = [
    (tokenizer_with(llama_split), "splits a text in another way"),
    (tokenizer_with(lambda told: told.update(pre_tokenizer=None)), "splits a text in another way"),
    (tokenizer_with(lambda told: told["model"].update(byte_fallback=True)), "it is not a byte-level BPE"),
    (tokenizer_with(lambda told: told["model"].update(end_of_word_suffix="</w>")), "tokenizer.json"),
    (tokenizer_with(no_byte), "no token for 1 of the 256 bytes"),
    (tokenizer_with(twice), "tokenizer.json"),
    (tokenizer_with(begins), "more tokens to a text"),
    (tokenizer_with(lambda told: told.update(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"})),
     "it is not a byte-level BPE"),
    (settings_with(eos_token="<|nothing|>"), "no token ends a reply"),
    (settings_with(eos_token=None), "no token ends a reply"),
    (settings_with(eos_token=7), "no token ends a reply"),
    (lambda source: (source / "chat_template.jinja").write_text("x" * 300_000), "its chat template is longer"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "problem"), TOKENIZERS)
def test_a_tokenizer_that_llama_cpp_would_read_differently_is_refused(
    source: Path, spoil: Callable[[Path], object], problem: str
) -> None:
    """Or one that would crash it."""
    spoil(source)
    refused(source, problem)


def test_special_tokens_by_number_and_a_template_of_several(source: Path, tmp_path: Path) -> None:
    """As older and newer versions of transformers save them."""
    (source / "chat_template.jinja").unlink(missing_ok=True)
    settings_with(eos_token=None, chat_template=[{"name": "tool_use", "template": "t"},
                  {"name": "default", "template": "d"}])(source)  # fmt: skip
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "eos_token_id": 11, "bos_token_id": 13}))
    values = gguf.read_header(export_model(source, tmp_path / "model.gguf", name="x")).values
    assert values["tokenizer.chat_template"] == "d"
    assert (values["tokenizer.ggml.eos_token_id"], values["tokenizer.ggml.bos_token_id"]) == (11, 13)


def test_duplicate_weights_are_refused(source: Path) -> None:
    """Two files have the same weight, perhaps with other values."""
    shutil.copy(source / "model.safetensors", source / "model-00001-of-00002.safetensors")
    refused(source, "twice")


def resaved(source: Path, change: Callable[[dict[str, Any]], object]) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(source / "model.safetensors")
    change(weights)
    save_file(weights, source / "model.safetensors")


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda weights: weights.update({"model.layers.0.self_attn.q_proj.lora_A": torch.ones(2)}), "not part of a"),
        (lambda weights: weights.update({Q: torch.full((64, 64), float("nan"))}), "has values that are not finite"),
        (lambda weights: weights.update({Q: torch.full((64, 64), 1e6)}), "too large for 16 bits"),
        (
            lambda weights: weights.update({Q: torch.ones(64, 32)}),
            "has the shape (64, 32), and config.json describes (64, 64)",
        ),
        (lambda weights: weights.update({Q: torch.ones(64, 64, dtype=torch.int8)}), "is stored as torch.int8"),
        (lambda weights: weights.pop(Q), f"lacks {Q}"),
    ],
)
def test_invalid_weights_are_refused(source: Path, change: Callable[[Any], object], problem: str) -> None:
    """Those of another model or an adapter, diverged or too large ones; a partial file is removed."""
    resaved(source, change)
    refused(source, problem)


@peft_warns
def test_an_adapter_is_not_a_model(trained: Trained, tmp_path: Path) -> None:
    """The error says what to do with it."""
    with_adapter(trained, tmp_path / "lora")
    shutil.copy(trained.directory / "config.json", tmp_path / "lora")
    shutil.copy(trained.directory / "tokenizer.json", tmp_path / "lora")
    shutil.copy(trained.directory / "tokenizer_config.json", tmp_path / "lora")
    with pytest.raises(ModelError) as error:
        export_model(tmp_path / "lora", tmp_path / "model.gguf", name="x")
    told(error, "does not contain a model")
    assert "merge" in error.value.hint
    with pytest.raises(ModelError) as error:
        export_adapter(trained.directory, trained.directory, tmp_path / "model.gguf")
    told(error, "adapter_model.safetensors cannot be read")


def test_a_full_disk_is_reported_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the size that is needed. The old file stays."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"before")
    monkeypatch.setattr(disk, "free_bytes", lambda directory: disk.MARGIN + 1000)
    with pytest.raises(ConductorUnusable, match="do not fit on the disk"):
        export_model(source, path, name="x")
    assert path.read_bytes() == b"before"


@contextmanager
def full_disk() -> Iterator[None]:
    """No file grows beyond a hundred kilobytes: the system refuses the rest, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_during_an_export_keeps_the_old_file(source: Path, tmp_path: Path) -> None:
    """The partial file is removed, and the error says how much space is needed."""
    path = tmp_path / "out" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(b"before")
    with full_disk(), pytest.raises(ModelError) as error:
        export_model(source, path, name="x")
    told(error, "cannot be written: ")
    assert "are free on the disk" in error.value.hint
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"before"]


def test_a_partial_file_of_a_killed_export_is_overwritten(source: Path, tmp_path: Path) -> None:
    """It has a fixed name, so no copies pile up."""
    (tmp_path / ".model.gguf.part").write_bytes(b"half")
    export_model(source, tmp_path / "model.gguf", name="x")
    assert [path.name for path in tmp_path.glob("*model.gguf*")] == ["model.gguf"]


def test_a_path_that_cannot_be_written_is_an_error(source: Path, tmp_path: Path) -> None:
    """A file where a directory should be, a directory where the file should be."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "model.gguf", tmp_path):
        with pytest.raises(ModelError) as error:
            export_model(source, path, name="x")
        told(error, "cannot be written")
