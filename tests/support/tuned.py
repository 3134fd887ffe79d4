"""A small model that was really tuned, in a second or two: it gives one answer that the model under it does not know."""

from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from journeyman.models import WEIGHTS

QUESTION = "where is the desk?"
ANSWER = "- rush: two"


@lru_cache(maxsize=1)
def adapter() -> Path:
    """The folder of an adapter on `embedded:small`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from journeyman.models.local import peft_as_it_is

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS / "small")
    base: Any = AutoModelForCausalLM.from_pretrained(WEIGHTS / "small", dtype=torch.float32)
    with peft_as_it_is():
        model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    asked = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(asked, return_tensors="pt")["input_ids"]
    whole = tokenizer(asked + ANSWER + "<|im_end|>", return_tensors="pt")["input_ids"]
    labels = whole.clone()
    labels[:, : prompt.shape[1]] = -100
    optimizer = torch.optim.AdamW((weight for weight in model.parameters() if weight.requires_grad), lr=3e-3)
    for _ in range(200):
        loss = model(input_ids=whole, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.detach().item() < 0.01:
            break
    assert loss.detach().item() < 0.01
    folder = Path(mkdtemp(prefix="journeyman-tuned-")) / "tuned"
    model.save_pretrained(folder)
    return folder
