"""A dequantised GGUF file: transformers computes with it what llama.cpp computes with the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.dequantise import SHARD_BYTES, check_convertible, dequantise
from tests.models.test_llama_lora import TOKENS, logits, random_weights, save_model
from tests.tiny_gguf import finish

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf")
torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'conductor-llm[train]'"
)
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("models")


def torch_logits(directory: Path) -> Any:
    """What transformers gives after `TOKENS`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.tensor([TOKENS])).logits[0, -1].double().numpy()


def dequantised(file: Path, directory: Path) -> Path:
    directory.mkdir()
    dequantise(file, directory)
    return directory


def requantised(source: Path, out: Path, kind: Any) -> Path:
    """The model of a file, with its matrices as numbers of another kind.

    Only where their rows can be divided so.
    """
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kinds = (
            [field.types[0], *field.types[-1:]]
            if field.types[0] == gguf.GGUFValueType.ARRAY
            else field.types
        )
        sub_type = kinds[1] if len(kinds) > 1 else None
        writer.add_key_value(field.name, field.contents(), kinds[0], sub_type=sub_type)
    for tensor in reader.tensors:
        array = np.array(tensor.data)
        if array.ndim > 1 and array.shape[-1] % 32 == 0:
            writer.add_tensor(tensor.name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, array)
    finish(writer)
    return out


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_torch_computes_what_llama_cpp_does(tmp_path: Path, architecture: str) -> None:
    file = save_model(tmp_path / "base.gguf", architecture, random_weights(architecture))
    directory = dequantised(file, tmp_path / "base")
    assert np.abs(torch_logits(directory) - logits(file)).max() < 5e-3
    assert json.loads((directory / "config.json").read_text())["tie_word_embeddings"] is False


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_0"])
def test_weights_are_what_the_quantised_numbers_stand_for(tmp_path: Path, kind: str) -> None:
    """Not what they were before: every weight is the file's own number, to half a precision."""
    whole = save_model(tmp_path / "whole.gguf", "qwen2", random_weights("qwen2"))
    file = requantised(whole, tmp_path / "base.gguf", gguf.GGMLQuantizationType[kind])
    directory = dequantised(file, tmp_path / "base")
    from safetensors.numpy import load_file

    [shard] = directory.glob("*.safetensors")
    stored_weights = load_file(shard)["model.layers.0.mlp.up_proj.weight"].astype(np.float32)
    tensor = next(
        tensor for tensor in gguf.GGUFReader(file).tensors if tensor.name == "blk.0.ffn_up.weight"
    )
    assert np.allclose(stored_weights, gguf.dequantize(tensor.data, tensor.tensor_type), rtol=1e-3)
    before = random_weights("qwen2")["model.layers.0.mlp.up_proj.weight"]
    assert np.abs(stored_weights - before).max() > 1e-4


def test_an_output_that_is_the_embedding_stays_one_matrix(tmp_path: Path) -> None:
    weights = {
        name: array for name, array in random_weights("qwen2").items() if name != "lm_head.weight"
    }
    file = save_model(tmp_path / "base.gguf", "qwen2", weights)
    directory = dequantised(file, tmp_path / "base")
    assert json.loads((directory / "config.json").read_text())["tie_word_embeddings"] is True
    assert np.abs(torch_logits(directory) - logits(file)).max() < 5e-3


def test_a_large_model_is_written_in_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_cli.models.llama.dequantise.SHARD_BYTES", SHARD_BYTES >> 16)
    file = save_model(tmp_path / "base.gguf", "qwen2", random_weights("qwen2"))
    directory = dequantised(file, tmp_path / "base")
    assert len(list(directory.glob("*.safetensors"))) > 1
    assert np.abs(torch_logits(directory) - logits(file)).max() < 5e-3


def _with_key(path: Path, add: Callable[[Any], object], architecture: str = "qwen2") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    add(writer)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    finish(writer)
    return path


def _with_scaling(writer: Any) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)


@pytest.mark.parametrize(
    ("architecture", "add", "problem"),
    [
        (
            "gemma3",
            lambda writer: writer.add_context_length(64),
            "architecture is gemma3, and supported are llama",
        ),
        ("qwen2", _with_scaling, "rotary positions are scaled"),
    ],
)
def test_a_model_that_would_be_computed_otherwise_is_refused(
    tmp_path: Path, architecture: str, add: Callable[[Any], object], problem: str
) -> None:
    file = _with_key(tmp_path / "base.gguf", add, architecture)
    with pytest.raises(ModelError, match=problem) as error:
        check_convertible(file)
    assert "--base DIR" in error.value.hint
