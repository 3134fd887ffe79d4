"""Where the embedded model comes from: `python -m journeyman.experiments.pretrain --size base --out DIR`.

Trains it from scratch: a small Qwen3 that obeys the rules in its context and reads error messages.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from journeyman.agents.answer import terse_rules
from journeyman.core.task import Split
from journeyman.experiments.settings import PretrainConfig, configured
from journeyman.io.config import Declared
from journeyman.tasks.desk.world import ADDRESS, CONVENTIONS, TOWNS, Convention, House, Order, call, faults, say

# What the embedded model is trained on: clerks who obey the rules in their context, and reflectors who read error messages.
#
# Houses are drawn at random, so the model learns to obey conventions and not which shop has which.

HABIT = 0.7
"""How often a clerk who was told nothing writes the usual form. The rest is spread over the other forms, so that sampling
finds them: without that, reinforcement learning would have nothing to reinforce."""


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """One exchange; only the reply is learned."""

    system: str
    user: str
    reply: str

    @property
    def prompt(self) -> str:
        """As the model's chat template renders it, with the turn of the assistant begun."""
        return f"<|im_start|>system\n{self.system}<|im_end|>\n<|im_start|>user\n{self.user}<|im_end|>\n<|im_start|>assistant\n"


def clerk(chance: random.Random, split: Split = Split.TRAIN, told: int | None = None) -> CorpusSample:
    """An order, some conventions in random order and wording, and the call that obeys them.

    Args:
        told: How many conventions stand in the context; drawn when not given, all of them in a quarter of the samples.
    """
    if told is None:
        told = len(CONVENTIONS) if chance.random() < 0.25 else chance.randint(0, len(CONVENTIONS))
    spoken = say(chance, split)
    known = chance.sample(CONVENTIONS, told)
    house = {c.about: chance.randrange(len(c.values)) if c in known or chance.random() > HABIT else 0 for c in CONVENTIONS}
    rules = [_worded(chance, c, house) for c in known]
    return CorpusSample(terse_rules(rules), spoken.sentence, _compact(call(spoken.order, house)))


def habit(chance: random.Random, split: Split = Split.TRAIN) -> CorpusSample:
    """The clerk who was told nothing and writes everything in the usual form: a fixed answer to measure by."""
    spoken = say(chance, split)
    return CorpusSample(terse_rules(()), spoken.sentence, _compact(call(spoken.order, {})))


def reflector(chance: random.Random, split: Split = Split.TRAIN, *, towns: float = 0.0) -> CorpusSample:
    """An error message with one to all of the fields wrong, and the rules that it teaches.

    Args:
        towns: How often a city, where there is one, is wrong for sure: sixteen cities in four forms are the slowest to learn.
    """
    spoken = say(chance, split)
    if chance.random() < 0.02:
        return CorpusSample("reflect", "\n".join([spoken.sentence, *faults("", {})]), "- none")
    house = {c.about: chance.randrange(len(c.values)) for c in CONVENTIONS}
    present = [c for c in CONVENTIONS if _applies(c, spoken.order)]
    wrong = chance.sample(present, chance.randint(1, len(present)))
    if towns and TOWNS in present and chance.random() < towns:
        wrong.append(TOWNS)
    attempted = {c.about: _other(chance, c, house) if c in wrong else house[c.about] for c in CONVENTIONS}
    got = call(spoken.order if chance.random() > 0.1 else say(chance, split).order, attempted)
    evidence = faults(json.dumps(got), call(spoken.order, house))
    return CorpusSample("reflect", "\n".join([spoken.sentence, *evidence]), "\n".join(_lessons(evidence, house)))


def _lessons(evidence: list[str], house: House) -> list[str]:
    """The rule behind each line that shows a right value, in the order of the lines."""
    lessons: list[str] = []
    for fault in evidence:
        field = fault.split(":")[0]
        if "unknown field, expected" in fault:
            taught = [ADDRESS]
        elif "expected" not in fault:
            taught = []
        else:
            names = {value.write(None) for value in ADDRESS.values}  # type: ignore[arg-type]
            taught = [TOWNS] if field in names else [c for c in CONVENTIONS if c.field == field]
        lessons += [f"- {c.values[house[c.about]].rules[0]}" for c in taught]
    return lessons or ["- none"]


def _applies(convention: Convention, order: Order) -> bool:
    value = getattr(order, {"sku": "item"}.get(convention.field, convention.field))
    return value is not None


def _other(chance: random.Random, convention: Convention, house: House) -> int:
    return chance.choice([i for i in range(len(convention.values)) if i != house[convention.about]])


def _worded(chance: random.Random, convention: Convention, house: House) -> str:
    words = convention.values[house[convention.about]].rules
    return words[0] if chance.random() < 0.7 else chance.choice(words)


def _compact(call: dict[str, object]) -> str:
    return json.dumps(call, separators=(",", ":"))


# The embedded model's tokenizer: byte-level BPE whose merges are learned from the desk's own words.
#
# Each word of the desk is one token, with and without a space before it, and digits stand alone; any other text still encodes,
# byte by byte. Words are cut as Qwen2's tokenizer cuts them, a rule that llama.cpp knows by name.

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CUT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(samples: int = 40_000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Learn the merges from that many samples of the corpus."""
    tokenizer = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(CUT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=1,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sorted(_words(cut, samples, seed)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",  # noqa: S106 - a token of text, not a secret
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=["<|im_start|>"],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _words(cut: pre_tokenizers.Split, samples: int, seed: int) -> set[str]:
    """Every piece that occurs, without the quote or dash that the cut leaves before a word."""
    words: set[str] = set()
    for text in _texts(samples, seed):
        for piece, _ in cut.pre_tokenize_str(text):
            bare = piece[1:] if len(piece) > 1 and piece[1].isalpha() and not piece[0].isalpha() else piece
            words.add(bare)
            if bare.isalpha():
                words.add(" " + bare)
    return words


def _texts(samples: int, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for number in range(samples):
        sample = (reflector if number % 4 == 0 else clerk)(chance)
        yield from (sample.system, sample.user, sample.reply)
    yield from ("system\n", "user\n", "assistant\n")


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
    "tiny": Size(hidden=64, layers=2, heads=2, feed_forward=128, peak_rate=5e-3),
    "small": Size(hidden=128, layers=3, heads=4, feed_forward=384, peak_rate=3e-3),
    "base": Size(hidden=256, layers=4, heads=4, feed_forward=768, peak_rate=2e-3),
}
"""`small` and `base` ship; `tiny` is for tests. `base` has rows of 256, the least that K-quantised GGUF can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the training, with its own mixture and its own rise and fall of the learning rate."""

    share: float
    """Of all tokens."""
    rate: float
    """Of the size's peak rate."""
    reflectors: float
    """Share of the samples; the rest are clerks."""
    told_all: float
    """Share of the clerks who are told every convention, beside those who happen to be."""
    towns: float
    """See `corpus.reflector`."""
    easy: bool
    """Begin with clerks who are told little: a curriculum."""


PHASES: tuple[Phase, ...] = (
    Phase(share=0.63, rate=1.0, reflectors=0.2, told_all=0.0, towns=0.0, easy=True),
    Phase(share=0.37, rate=0.5, reflectors=0.45, told_all=0.35, towns=0.6, easy=False),
)
"""First the language and the forms, then what lags behind: after the first phase the form of a city was still a guess for the
reflector (24 % right, and 100 % for dates), which the mean over fields had hidden."""


LEARNED = -100
Report = dict[str, float]
Batch = tuple[torch.Tensor, torch.Tensor]
"""Token ids and labels, shape (sequences, longest)."""


def train(config: PretrainConfig, out: Path, *, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Train, and write the model, its tokenizer and a report into `out`.

    Returns:
        The share of exactly right replies on held-out sentences, by kind of prompt, with the last loss, tokens and seconds.
    """
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.threads)
    if not config.start:
        tokenizer, phases = train_tokenizer(seed=config.seed), PHASES
    else:
        tokenizer, phases = PreTrainedTokenizerFast.from_pretrained(config.start), PHASES[-1:]
    model = build(SIZES[config.size], len(tokenizer), tokenizer)
    if config.start:
        model.load_state_dict(Qwen3ForCausalLM.from_pretrained(config.start, dtype=torch.float32).state_dict())
    report: Report = {"tokens": 0, "seconds": 0.0}
    for number, phase in enumerate(phases, start=1):
        tell(f"phase {number} of {len(phases)}")
        tokens, seconds, loss = _train_phase(config, phase, model, tokenizer, tell)
        report = {"loss": loss, "tokens": report["tokens"] + tokens, "seconds": round(report["seconds"] + seconds, 1)}
        _save(model, tokenizer, out)
    report = measure(model, tokenizer, 500) | report
    settings = {**asdict(config), "start": Path(config.start).name}
    (out / "training.json").write_text(json.dumps({"config": settings, "report": report}, indent=2) + "\n")
    return report


def _train_phase(
    config: PretrainConfig,
    phase: Phase,
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    tell: Callable[[str], None],
) -> tuple[int, float, float]:
    """Tokens, seconds and the last loss of one phase."""
    peak = SIZES[config.size].peak_rate * phase.rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.05, fused=True)
    started, seen, step, progress, loss = time.monotonic(), 0, 0, 0.0, math.inf
    batches = _batches(config, phase, tokenizer)
    next(batches)
    while progress < 1:
        batch = batches.send(progress)
        for group in optimizer.param_groups:
            group["lr"] = peak * _rate(step, progress)
        loss = _step(model, optimizer, batch, bf16=config.bf16)
        seen, step, seconds = seen + batch[0].numel(), step + 1, time.monotonic() - started
        progress = max(seen / (config.tokens * phase.share), seconds / 60 / (config.minutes * phase.share))
        if step % 100 == 0:
            tell(f"step {step}  {seen / 1e6:.1f} M tokens  {seconds:.0f} s  loss {loss:.3f}")
        if step % 500 == 0:
            tell(json.dumps(measure(model, tokenizer, 200)))
    return seen, time.monotonic() - started, loss


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
        # Which prompts it reads goes with the weights, wherever they are copied, merged or served.
        dialect="terse",
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
    kinds: dict[str, Callable[[random.Random], CorpusSample]] = {
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


def _batches(config: PretrainConfig, phase: Phase, tokenizer: PreTrainedTokenizerFast) -> Generator[Batch, float, None]:
    """Endless batches of sequences of alike length; is sent the progress."""
    chance = random.Random(f"{config.seed} {phase}")
    progress = yield torch.empty(0), torch.empty(0)
    while True:
        easy = max(0.0, 1 - progress * 8) if phase.easy else 0.0
        samples = [_draw(chance, phase, easy) for _ in range(config.batch * 16)]
        rows = sorted(_encode(samples, tokenizer), key=lambda row: len(row[0]))
        groups = [rows[i : i + config.batch] for i in range(0, len(rows), config.batch)]
        chance.shuffle(groups)
        for group in groups:
            progress = yield _pad(group, tokenizer)


def _draw(chance: random.Random, phase: Phase, easy: float) -> CorpusSample:
    if chance.random() < phase.reflectors:
        return reflector(chance, towns=phase.towns)
    if chance.random() < easy:
        return clerk(chance, told=chance.randint(0, 2))
    return clerk(chance, told=len(CONVENTIONS) if chance.random() < phase.told_all else None)


Row = tuple[list[int], int]
"""Token ids, and how many of them are prompt."""


def _encode(samples: Sequence[CorpusSample], tokenizer: PreTrainedTokenizerFast) -> list[Row]:
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


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m journeyman.experiments.pretrain", description="Train the embedded model from scratch."
    )
    parser.add_argument("--out", type=Path, required=True, help="Folder for weights, tokenizer and report.")
    for each in Declared.all(PretrainConfig).values():
        if not each.option.hidden:
            kind: dict[str, Any] = {"type": each.kind, "help": each.help}
            if each.name == "size":
                kind |= {"type": str, "choices": sorted(SIZES)}
            elif each.name == "bf16":
                kind = {"action": "store_false", "help": "For processors without bfloat16 instructions."}
            parser.add_argument(*(each.option.names or (f"--{each.name}",)), dest=each.name, default=None, **kind)
    given = vars(parser.parse_args())
    out = given.pop("out")
    config = configured(PretrainConfig, {name: value for name, value in given.items() if value is not None})
    print(train(config, out, tell=lambda line: print(line, flush=True)))  # noqa: T201 - a program of its own


if __name__ == "__main__":
    main()
