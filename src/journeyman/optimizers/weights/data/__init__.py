"""Sets of rows to train weights on: their files, and how they are made of traces.

for row in read("kto.jsonl"):
    print(row.label)
"""

from journeyman.optimizers.weights.data.build import build
from journeyman.optimizers.weights.data.config import DatasetConfig
from journeyman.optimizers.weights.data.dataset_card import DatasetCard
from journeyman.optimizers.weights.data.files import read, write
from journeyman.optimizers.weights.data.gather import JudgedTrace

__all__ = ["DatasetCard", "DatasetConfig", "JudgedTrace", "build", "read", "write"]
