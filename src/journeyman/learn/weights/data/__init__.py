"""Sets of rows to train weights on: their files, and how they are made of traces.

for row in read("kto.jsonl"):
    print(row.label)
"""

from journeyman.learn.weights.data.files import read, write

__all__ = ["read", "write"]
