"""Traces from files that others wrote. What a file is, its content says.

    for found in read("results.json.gz"):
        print(found if isinstance(found, Problem) else found.trace.id)

`NAMES` are the formats. What a record tells is in its trace; the same record has the same id whenever and from wherever it is
read.
"""

from journeyman.tracing.importers.reading import NAMES, holds_spans, read, read_spans
from journeyman.tracing.importers.source import Problem

__all__ = ["NAMES", "Problem", "holds_spans", "read", "read_spans"]
