"""Is the estimate of peak memory near what a training really takes? Real TRL steps, each case in a process of its own.

    python benchmarks/bench_weights_memory.py [--only 25M] [--json results.jsonl]

Measured is the largest resident set of the process (`ru_maxrss`) after two updates on random tokens; completions are as
long as allowed. A line for each case, the estimate divided by the measured at its end.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from journeyman.models import WEIGHTS
from journeyman.optimizers.weights.config import TrainingConfig

SIZES: dict[str, dict[str, int]] = {
    "25M": {"hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6, "num_key_value_heads": 2,
            "intermediate_size": 1152, "vocab_size": 32_000},
    "100M": {"hidden_size": 640, "num_hidden_layers": 14, "num_attention_heads": 10, "num_key_value_heads": 2,
             "intermediate_size": 2_560, "vocab_size": 40_000},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    size: str
    method: str = "grpo"
    batch: int = 8
    prompt: int = 96
    completion: int = 32
    checkpointing: bool = False
    accumulation: int = 1
    generations: int = 4

    def config(self, folder: str) -> TrainingConfig:
        return TrainingConfig(
            base_model=folder,
            method=self.method,
            per_device_batch_size=self.batch,
            gradient_accumulation_steps=self.accumulation,
            num_generations=self.generations,
            max_prompt_tokens=self.prompt,
            max_completion_tokens=self.completion,
            gradient_checkpointing=self.checkpointing,
            use_bf16=False,
            learning_rate=1e-4,
            max_steps=2,
            threads=2,
        )


CASES = [
    *(Case(size=size, batch=batch) for size in ("small", "base") for batch in (8, 64)),
    Case(size="base", batch=64, checkpointing=True),
    Case(size="base", batch=64, method="kto"),
    Case(size="base", batch=64, method="rft"),
    Case(size="base", batch=64, method="dpo"),
    Case(size="25M"),
    Case(size="25M", batch=2, accumulation=4),
    Case(size="25M", batch=8, prompt=384, completion=128),
    Case(size="25M", batch=8, prompt=384, completion=128, checkpointing=True),
    Case(size="25M", batch=32, prompt=192, completion=64),
    Case(size="25M", batch=8, prompt=384, completion=128, method="kto"),
    Case(size="25M", batch=8, prompt=384, completion=128, method="rft"),
    Case(size="25M", batch=4, prompt=384, completion=128, method="dpo"),
    Case(size="100M", batch=2),
    Case(size="100M", batch=4, prompt=384, completion=128),
    Case(size="100M", batch=4, prompt=384, completion=128, checkpointing=True),
    Case(size="100M", batch=2, prompt=1536, completion=64, generations=2, checkpointing=True),
    Case(size="100M", batch=4, prompt=384, completion=128, method="rft", checkpointing=True),
]


def model_folder(size: str, under: Path) -> Path:
    """The embedded model of that size, or a random Qwen2 with the embedded one's tokenizer."""
    if size not in SIZES:
        return WEIGHTS / size
    folder = under / size
    if not folder.is_dir():
        import torch
        from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

        torch.manual_seed(0)
        Qwen2ForCausalLM(Qwen2Config(**SIZES[size], tie_word_embeddings=True)).save_pretrained(folder)
        AutoTokenizer.from_pretrained(WEIGHTS / "base").save_pretrained(folder)
    return folder


def child(case: Case, folder: str) -> dict[str, Any]:
    """Two updates by TRL's own trainer; what they took."""
    import torch

    torch.set_num_threads(2)
    import trl
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    libraries = peak()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    eager = case.size in ("small", "base", "25M")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager" if eager else "sdpa")
    loaded = peak()
    generator = torch.Generator().manual_seed(0)

    def text(tokens: int) -> str:
        # Only single letters: one token each, whatever the merges are.
        letters = [chr(97 + int(i)) for i in torch.randint(0, 26, (tokens,), generator=generator)]
        return " ".join(letters)

    def cut(words: str, tokens: int) -> str:
        return str(tokenizer.decode(tokenizer(words)["input_ids"][:tokens]))

    prompts = [cut(text(case.prompt * 2), case.prompt) for _ in range(2 * case.batch * case.accumulation)]
    options: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": case.batch,
        "gradient_accumulation_steps": case.accumulation,
        "gradient_checkpointing": case.checkpointing,
        **{"max_steps": 2, "use_cpu": True, "bf16": False, "dataloader_pin_memory": False, "learning_rate": 1e-4},
        **{"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1},
    }
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    common: dict[str, Any] = {"model": model, "processing_class": tokenizer, "peft_config": lora}
    whole = case.prompt + case.completion

    def said() -> str:
        return cut(text(case.completion * 2), case.completion)

    if case.method == "grpo":
        arguments = trl.GRPOConfig(
            **options,
            num_generations=case.generations,
            max_completion_length=case.completion,
            beta=0.0,
            generation_kwargs={"min_new_tokens": case.completion},
        )
        rows = Dataset.from_list([{"prompt": prompt} for prompt in prompts])
        trainer = trl.GRPOTrainer(args=arguments, train_dataset=rows, reward_funcs=[_reward], **common)
    elif case.method == "rft":
        arguments = trl.SFTConfig(**options, max_length=whole)
        rows = Dataset.from_list([{"prompt": prompt, "completion": said()} for prompt in prompts])
        trainer = trl.SFTTrainer(args=arguments, train_dataset=rows, **common)
    elif case.method == "kto":
        arguments = trl.KTOConfig(**options, max_length=whole)
        rows = Dataset.from_list([{"prompt": p, "completion": said(), "label": i % 2 == 0} for i, p in enumerate(prompts)])
        trainer = trl.KTOTrainer(args=arguments, train_dataset=rows, **common)
    else:
        arguments = trl.DPOConfig(**options, max_length=whole)
        rows = Dataset.from_list([{"prompt": prompt, "chosen": said(), "rejected": said()} for prompt in prompts])
        trainer = trl.DPOTrainer(args=arguments, train_dataset=rows, **common)
    started = time.perf_counter()
    trainer.train()
    return {
        "eager": eager,
        "libraries": libraries,
        "loaded": loaded,
        "peak": peak(),
        "step_seconds": (time.perf_counter() - started) / 3,
    }


def _reward(completions: list[str], **_: object) -> list[float]:
    return [float(len(set(text))) for text in completions]


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(case: Case, folder: Path) -> dict[str, Any]:
    arguments = [sys.executable, __file__, "--child", json.dumps(asdict(case)), "--folder", str(folder)]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=1200, check=False)
    if run.returncode:
        raise SystemExit(f"{case}: {run.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases of this size")
    parser.add_argument("--json", type=Path, help="a file to add a line to for each case")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(Case(**json.loads(asked.child)), asked.folder)))
        return
    from journeyman.optimizers.weights import model_shape, sizing
    from journeyman.optimizers.weights.sizing import detect_hardware

    hardware = detect_hardware("CPU_ONLY")
    with tempfile.TemporaryDirectory() as under:
        for case in [case for case in CASES if asked.only in ("", case.size)]:
            folder = model_folder(case.size, Path(under))
            shape, why = model_shape.find(str(folder))
            if shape is None:
                raise SystemExit(why)
            estimate = sizing.estimate(shape, case.config(str(folder)), hardware)
            found = measure(case, folder)
            if asked.json:
                with asked.json.open("a") as lines:
                    lines.write(
                        json.dumps({"case": asdict(case), "found": found, "estimate": asdict(estimate)}, default=str) + "\n"
                    )
            named = f"{case.size:5} {case.method:4} {case.batch:2}x{case.accumulation} {case.prompt:4}+{case.completion:3}"
            named += " checkpointing" if case.checkpointing else ""
            ratio = estimate.peak / found["peak"]
            memory_said = f"measured {found['peak'] / 2**20:6.0f} MiB, estimated {estimate.peak / 2**20:6.0f}: {ratio:.2f}"
            step = estimate.step_seconds or float("nan")
            print(f"{named:38} {memory_said}; a step {found['step_seconds']:.2f} s, estimated {step:.2f}", flush=True)


if __name__ == "__main__":
    main()
