"""GGUF: the one file that llama.cpp and Ollama serve a model from.

exporter       a model's folder, or an adapter's, to files of the types asked for, with what each of them costs
settings       config.json, as far as GGUF has a word for it
architectures  which models are known, and what of their weights llama.cpp wants otherwise
tensors        the weights in a folder, one at a time
vocabulary     the tokenizer; pretokenizers are known by their expressions
writer         all of that into one file
engine         llama.cpp in this process
quantise       by llama.cpp itself; readback, what it really did
measure        perplexity, and divergence from the original
upstream       llama.cpp's own converter, for every other architecture, where it is installed
"""

from journeyman.optimizers.weights.gguf.export import GGUFExporter
from journeyman.optimizers.weights.gguf.report import TYPES, Contents, Cost, Export, ExportedFile, Replaced

__all__ = ["TYPES", "Contents", "Cost", "Export", "ExportedFile", "GGUFExporter", "Replaced"]
