"""`python -m journeyman.experiments.pretrain --size base --out DIR`: train the embedded model from scratch."""

import argparse
from pathlib import Path

from journeyman.experiments.pretrain.train import SIZES, PretrainConfig, train


def main() -> None:
    default = PretrainConfig()
    parser = argparse.ArgumentParser(prog="python -m journeyman.experiments.pretrain", description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default=default.size)
    parser.add_argument("--out", type=Path, required=True, help="folder for weights, tokenizer and report")
    parser.add_argument("--tokens", type=int, default=default.tokens)
    parser.add_argument("--minutes", type=float, default=default.minutes)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--threads", type=int, default=default.threads)
    parser.add_argument("--fp32", action="store_true", help="for processors without bfloat16 instructions")
    parser.add_argument("--start", type=Path, help="folder of an earlier result: do only the last phase, from there")
    given = parser.parse_args()
    config = PretrainConfig(
        size=given.size,
        tokens=given.tokens,
        minutes=given.minutes,
        seed=given.seed,
        threads=given.threads,
        bf16=not given.fp32,
        start=given.start,
    )
    print(train(config, given.out, tell=lambda line: print(line, flush=True)))  # noqa: T201 - a program of its own


if __name__ == "__main__":
    main()
