"""Sets of rows to train weights on: their files, and how they are made of traces.

for row in read("kto.jsonl"):
    print(row.label)
"""

from journeyman.learn.weights.data.build import build
from journeyman.learn.weights.data.config import DatasetConfig
from journeyman.learn.weights.data.files import read, write
from journeyman.learn.weights.data.judged import JudgedTrace
from journeyman.learn.weights.data.sheet import DatasetCard

__all__ = ["DatasetCard", "DatasetConfig", "JudgedTrace", "build", "read", "write"]
