"""The small model that ships with the package: a real transformer that knows one job, the order desk.

It was trained from scratch by `python -m journeyman.pretrain`. It is a test bench and a first impression: it obeys rules in
its context and reads the desk's error messages, and knows nothing else.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerFast, Qwen3ForCausalLM
from transformers.utils import logging

from journeyman.errors import ModelError, ModelRefused
from journeyman.models import WEIGHTS, embedded_sizes
from journeyman.models.base import Dialect, Reply, Request

BATCH = 64
"""Prompts decoded together."""
REPLY_TOKENS = 96
"""The longest thing it has learned to say is two thirds of that."""
CONTEXT_TOKENS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    request: Request
    reply: asyncio.Future[Reply]


class Embedded:
    """Decodes on the CPU. Requests that are made together are decoded together.

    Greedy unless the request has a temperature; a sampled reply is a function of the prompt, the temperature and the seed,
    whatever else is in its batch.
    """

    def __init__(self, size: str = "", *, weights: Path | None = None) -> None:
        self.size = size or "base"
        folder = weights or WEIGHTS / self.size
        if not (folder / "config.json").is_file():
            sizes = ", ".join(embedded_sizes()) or "none installed"
            raise ModelRefused(f"no embedded model {self.size!r}; there are: {sizes}")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, padding_side="left")
        self._model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        self._waiting: list[_Waiting] = []
        self._decoding: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return f"embedded:{self.size}"

    @property
    def dialect(self) -> Dialect:
        return "terse"

    @property
    def deterministic(self) -> bool:
        return True

    async def complete(self, request: Request) -> Reply:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(request, reply))
        if self._decoding is None or self._decoding.done():
            self._decoding = asyncio.create_task(self._decode_all())
        return await reply

    async def close(self) -> None:
        if self._decoding is not None:
            await self._decoding

    async def _decode_all(self) -> None:
        # A few turns of the loop, so that whoever was started together with the first is in its batch.
        for _ in range(3):
            await asyncio.sleep(0)
        while self._waiting:
            # By length, for little padding, then by text: the batch does not depend on who came first.
            ready = sorted(self._waiting, key=lambda w: (len(w.request.text), w.request.text, w.request.seed or 0))
            self._waiting = []
            for start in range(0, len(ready), BATCH):
                await self._answer(ready[start : start + BATCH])

    async def _answer(self, group: Sequence[_Waiting]) -> None:
        if all(waiting.reply.done() for waiting in group):
            # Nobody waits any more, as after Ctrl-C: whoever closes the model would wait for all the rest.
            return
        try:
            replies = await asyncio.to_thread(self._decode, [waiting.request for waiting in group])
        except Exception as error:  # noqa: BLE001 - the boundary to torch: whoever waits must be told
            for waiting in group:
                if not waiting.reply.done():
                    waiting.reply.set_exception(ModelError(f"{self.name} could not decode: {error}"))
            return
        for waiting, reply in zip(group, replies, strict=True):
            if not waiting.reply.done():
                waiting.reply.set_result(reply)

    def _decode(self, requests: Sequence[Request]) -> list[Reply]:
        started = time.perf_counter()
        prompts = [
            self._tokenizer.apply_chat_template(
                [{"role": m.role, "content": m.content} for m in request.messages], tokenize=False, add_generation_prompt=True
            )
            for request in requests
        ]
        encoded = self._tokenizer(
            prompts, padding=True, truncation=True, max_length=CONTEXT_TOKENS - REPLY_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=encoded["input_ids"],
                attention_mask=encoded["attention_mask"],
                max_new_tokens=max(request.max_tokens or REPLY_TOKENS for request in requests),
                do_sample=False,
                logits_processor=LogitsProcessorList([_Sampled(requests)]),
            )
        seconds = time.perf_counter() - started
        width = encoded["input_ids"].shape[1]
        counts = encoded["attention_mask"].sum(dim=1).tolist()
        return [
            self._reply(request, ids[width:].tolist(), int(count), seconds)
            for request, ids, count in zip(requests, output, counts, strict=True)
        ]

    def _reply(self, request: Request, ids: list[int], prompt_tokens: int, seconds: float) -> Reply:
        end = self._tokenizer.eos_token_id
        limit = request.max_tokens or REPLY_TOKENS
        said = ids[: ids.index(end)] if end in ids else ids
        finished = end in ids and len(said) <= limit
        return Reply(
            text=self._tokenizer.decode(said[:limit], skip_special_tokens=True),
            model=self.name,
            input_tokens=prompt_tokens,
            output_tokens=min(len(said), limit),
            cost=0.0,
            seconds=seconds,
            finish="stop" if finished else "length",
        )


class _Sampled(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Turns greedy decoding into sampling, row by row, by the Gumbel-max trick.

    The argmax of logits / temperature plus Gumbel noise is a sample of the softmax (Maddison et al. 2014, "A* Sampling"), and
    with a generator for each row a sample does not depend on its neighbours.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self._rows = [
            (row, request.temperature, np.random.default_rng([(request.seed or 0) % 2**63, *request.text.encode()]))
            for row, request in enumerate(requests)
            if request.temperature
        ]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for row, temperature, chance in self._rows:
            noise = torch.from_numpy(chance.gumbel(size=scores.shape[1]).astype(np.float32))
            scores[row] = scores[row] / temperature + noise
        return scores
