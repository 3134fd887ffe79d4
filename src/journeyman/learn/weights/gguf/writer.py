"""A model's folder into one GGUF file of its own precision: everything else is made from that."""

from pathlib import Path

import numpy as np
from gguf import (
    GGML_QUANT_VERSION,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    TensorNameMap,
    get_tensor_name_map,
    quants,
)

from journeyman.errors import InputError
from journeyman.learn.weights.gguf.architectures import ARCHITECTURES, add_settings, extra_tensors
from journeyman.learn.weights.gguf.settings import CausalLMConfig
from journeyman.learn.weights.gguf.tensors import Tensors
from journeyman.learn.weights.gguf.vocabulary import Vocabulary

FILE_TYPES = {"F32": LlamaFileType.ALL_F32, "F16": LlamaFileType.MOSTLY_F16, "BF16": LlamaFileType.MOSTLY_BF16}
"""What is written here. The other types are llama.cpp's."""
EMBEDDINGS = "model.embed_tokens.weight"
_COMPUTED = "rotary_emb.inv_freq"


def write(path: Path, tensors: Tensors, settings: CausalLMConfig, vocabulary: Vocabulary, *, kind: str, name: str) -> None:
    """Write the file, one tensor after the other.

    Args:
        kind: The type of the matrices, of `FILE_TYPES`. Vectors and norms are F32 in every file.
        name: What the model is called in it.

    Raises:
        InputError: A tensor is missing, or one is there that the architecture does not have.
    """
    family = ARCHITECTURES[settings.architecture]
    mapped = _mapped(tensors, settings, get_tensor_name_map(family.kind, settings.layers))
    extra = dict(extra_tensors(settings))
    writer = GGUFWriter(path, arch=MODEL_ARCH_NAMES[family.kind])
    try:
        _keys(writer, settings, vocabulary, FILE_TYPES[kind], name)
        for gguf_name, tensor in extra.items():
            writer.add_tensor_info(gguf_name, tensor.shape, tensor.dtype, tensor.nbytes)
        kinds = {gguf_name: _kind(gguf_name, len(tensors.shape(hf_name)), kind) for hf_name, gguf_name in mapped.items()}
        for hf_name, gguf_name in mapped.items():
            shape = tensors.shape(hf_name)
            size = int(np.prod(shape)) * (4 if kinds[gguf_name] == "F32" else 2)
            writer.add_tensor_info(
                gguf_name, shape, np.dtype(np.uint16), size, raw_dtype=GGMLQuantizationType[kinds[gguf_name]]
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in extra.values():
            writer.write_tensor_data(tensor)
        for hf_name, gguf_name in mapped.items():
            tensor = tensors.load(hf_name)
            changed = family.change(hf_name, tensor, settings) if family.change else tensor
            writer.write_tensor_data(quants.quantize(np.ascontiguousarray(changed), GGMLQuantizationType[kinds[gguf_name]]))
    finally:
        writer.close()


def _keys(writer: GGUFWriter, settings: CausalLMConfig, vocabulary: Vocabulary, file_type: LlamaFileType, name: str) -> None:
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(file_type)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    if settings.dialect:
        writer.add_string("journeyman.dialect", settings.dialect)
    add_settings(writer, settings)
    vocabulary.add_to(writer)


def _mapped(tensors: Tensors, settings: CausalLMConfig, names: TensorNameMap) -> dict[str, str]:
    """From the name in safetensors to the name in GGUF, of every tensor that is written."""
    if EMBEDDINGS not in tensors.by_name:
        raise InputError(f"the model has no {EMBEDDINGS}, which a {settings.architecture} has")
    mapped = {}
    for hf_name in tensors.by_name:
        if hf_name.endswith(_COMPUTED) or (hf_name == "lm_head.weight" and settings.tied):
            continue
        gguf_name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        if gguf_name is None:
            raise InputError(f"the model has a tensor {hf_name}, which a {settings.architecture} in GGUF has no place for")
        mapped[hf_name] = gguf_name
    _check_complete(mapped, tensors, settings)
    return mapped


def _check_complete(mapped: dict[str, str], tensors: Tensors, settings: CausalLMConfig) -> None:
    blocks = {gguf_name.split(".")[1] for gguf_name in mapped.values() if gguf_name.startswith("blk.")}
    if len(blocks) != settings.layers:
        raise InputError(f"config.json says {settings.layers} layers, and there are weights of {len(blocks)}")
    if "output.weight" not in mapped.values() and not settings.tied:
        raise InputError("the model has no lm_head.weight, and its config.json does not say that the embeddings are its head")
    rows, width = tensors.shape(EMBEDDINGS)
    if (rows, width) != (settings.vocabulary, settings.hidden):
        raise InputError(f"the embeddings are {rows} x {width}, and config.json says {settings.vocabulary} x {settings.hidden}")


def _kind(gguf_name: str, dimensions: int, kind: str) -> str:
    return "F32" if dimensions < 2 or gguf_name.endswith("_norm.weight") else kind
