"""Trains the embedded model from scratch: a small Qwen3 that obeys the rules in its context and reads error messages."""

import json
import math
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from journeyman.pretrain import tokenizer as tokenizers
from journeyman.pretrain.corpus import Sample, clerk, habit, reflector
from journeyman.task import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The shape of the network."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    peak_rate: float
    """Learning rate after warm-up."""


SIZES = {
    "small": Size(hidden=128, layers=3, heads=4, feed_forward=384, peak_rate=4e-3),
    "base": Size(hidden=256, layers=4, heads=4, feed_forward=768, peak_rate=2e-3),
}
"""`base` has rows of 256, the least that K-quantised GGUF can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig:
    size: str = "base"
    tokens: int = 40_000_000
    """Tokens seen, prompts included. The rest of the schedule follows from it."""
    batch: int = 48
    """Sequences a step."""
    seed: int = 0
    threads: int = 2
    bf16: bool = True
    """Multiply in bfloat16, sum in float32: six times faster where the processor has avx512_bf16, and slower where not."""
    minutes: float = 170
    """Stop after this long; the learning rate falls with whichever of time and tokens is further on."""


LEARNED = -100
Report = dict[str, float]
Batch = tuple[torch.Tensor, torch.Tensor]
"""Token ids and labels, shape (sequences, longest)."""


def train(config: PretrainConfig, out: Path, *, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Train, and write the model, its tokenizer and a report into `out`.

    Returns:
        The share of exactly right replies on held-out sentences, by kind of prompt, with tokens and seconds.
    """
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.threads)
    tokenizer = tokenizers.train(seed=config.seed)
    model = build(SIZES[config.size], len(tokenizer), tokenizer)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=SIZES[config.size].peak_rate, betas=(0.9, 0.98), weight_decay=0.05, fused=True
    )
    started, seen, step, progress = time.monotonic(), 0, 0, 0.0
    batches = _batches(config, tokenizer)
    next(batches)
    while progress < 1:
        batch = batches.send(progress)
        for group in optimizer.param_groups:
            group["lr"] = SIZES[config.size].peak_rate * _rate(step, progress)
        loss = _step(model, optimizer, batch, bf16=config.bf16)
        seen, step = seen + batch[0].numel(), step + 1
        progress = max(seen / config.tokens, (time.monotonic() - started) / 60 / config.minutes)
        if step % 100 == 0:
            tell(f"step {step}  {seen / 1e6:.1f} M tokens  {time.monotonic() - started:.0f} s  loss {loss:.3f}")
        if step % 500 == 0:
            tell(json.dumps(measure(model, tokenizer, 200)))
            _save(model, tokenizer, out)
    report = measure(model, tokenizer, 500) | {"tokens": seen, "seconds": round(time.monotonic() - started, 1)}
    _save(model, tokenizer, out)
    (out / "training.json").write_text(json.dumps({"config": asdict(config), "report": report}, indent=2) + "\n")
    return report


def build(size: Size, vocabulary: int, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A network of that shape with random weights."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads // 2,
        head_dim=size.hidden // size.heads,
        intermediate_size=size.feed_forward,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    # On a CPU and for sequences this short, plain attention takes two thirds of the time of the fused one.
    model.set_attn_implementation("eager")
    return model


def measure(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, samples: int, seed: int = 1) -> Report:
    """The share of exactly right replies to sentences of the held-out grammar, by kind of prompt.

    Decoding greedily is right exactly when every token is the likeliest after the right ones before it, so one forward
    pass tells.
    """
    kinds: dict[str, Callable[[random.Random], Sample]] = {
        "told_all": lambda chance: clerk(chance, Split.HELD_OUT, told=7),
        "told_nothing": lambda chance: habit(chance, Split.HELD_OUT),
        "reflector": lambda chance: reflector(chance, Split.HELD_OUT),
    }
    model.eval()
    report = {}
    for kind, draw in kinds.items():
        chance = random.Random(f"{seed} {kind}")
        ids, labels = _pad(_encode([draw(chance) for _ in range(samples)], tokenizer), tokenizer)
        with torch.no_grad():
            guess = torch.cat([model(part).logits[:, :-1].argmax(-1) for part in ids.split(64)])
        target = labels[:, 1:]
        report[kind] = ((guess == target) | (target == LEARNED)).all(dim=1).float().mean().item()
    model.train()
    return report


def _step(model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer, batch: Batch, *, bf16: bool) -> float:
    ids, labels = batch
    target = labels[:, 1:]
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        # Padding stands on the right, where causal attention never looks, so no mask is needed.
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        logits = model.lm_head(hidden[target != LEARNED])
    loss = functional.cross_entropy(logits.float(), target[target != LEARNED])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.item())


def _rate(step: int, progress: float) -> float:
    """Warm-up over 200 steps, then a cosine down to nothing."""
    return min(1.0, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * progress))


def _batches(config: PretrainConfig, tokenizer: PreTrainedTokenizerFast) -> Generator[Batch, float, None]:
    """Endless batches of sequences of alike length; is sent the progress, and tells few conventions at the beginning."""
    chance = random.Random(config.seed)
    progress = yield torch.empty(0), torch.empty(0)
    while True:
        easy = max(0.0, 1 - progress * 8)
        samples = [_draw(chance, easy) for _ in range(config.batch * 16)]
        rows = sorted(_encode(samples, tokenizer), key=lambda row: len(row[0]))
        groups = [rows[i : i + config.batch] for i in range(0, len(rows), config.batch)]
        chance.shuffle(groups)
        for group in groups:
            progress = yield _pad(group, tokenizer)


def _draw(chance: random.Random, easy: float) -> Sample:
    if chance.random() < 0.2:
        return reflector(chance)
    return clerk(chance, told=chance.randint(0, 2) if chance.random() < easy else None)


Row = tuple[list[int], int]
"""Token ids, and how many of them are prompt."""


def _encode(samples: Sequence[Sample], tokenizer: PreTrainedTokenizerFast) -> list[Row]:
    prompts = tokenizer([sample.prompt for sample in samples])["input_ids"]
    replies = tokenizer([f"{sample.reply}<|im_end|>" for sample in samples])["input_ids"]
    return [(prompt + reply, len(prompt)) for prompt, reply in zip(prompts, replies, strict=True)]


def _pad(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast) -> Batch:
    width = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    ids = torch.tensor([row + [pad] * (width - len(row)) for row, _ in rows])
    labels = torch.tensor([[LEARNED] * n + row[n:] + [LEARNED] * (width - len(row)) for row, n in rows])
    return ids, labels


def _save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Sixteen-bit weights: half the size, and the replies are the same."""
    out.mkdir(parents=True, exist_ok=True)
    shipped = Qwen3ForCausalLM(model.config).to(torch.bfloat16)
    shipped.load_state_dict(model.state_dict())
    shipped.save_pretrained(out)
    tokenizer.save_pretrained(out)
