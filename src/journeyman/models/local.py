"""A model that runs in this process, from a folder or by its Hugging Face id, with an adapter on it where one is named.

It is for proving on this machine what was learned in the weights. For traffic, serve the model with llama.cpp, Ollama or vLLM.
"""

import asyncio
import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList
from transformers.utils import logging

from journeyman.core.errors import ModelError, ModelRefused
from journeyman.models import embedded_weights, split_adapter
from journeyman.models.base import Dialect, ModelRequest, Reply

BATCH = 64
"""Prompts decoded together."""
REPLY_TOKENS = 512
"""What is written at most where the request does not say."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    request: ModelRequest
    reply: asyncio.Future[Reply]


class Local:
    """Decodes here. Requests that are made together are decoded together.

    Greedy unless the request has a temperature; a sampled reply is a function of the prompt, the temperature and the seed,
    whatever else is in its batch.
    """

    def __init__(self, named: str) -> None:
        """`named` is a folder or an id, and after a `+` the folder of an adapter."""
        where, adapter = split_adapter(named)
        self._open(f"local:{named}", where, adapter, REPLY_TOKENS)

    def _open(self, name: str, where: str, adapter: str, reply_tokens: int) -> None:
        self._name = name
        self._reply_tokens = reply_tokens
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._tokenizer, self._model = load(where, adapter)
        self._room = int(getattr(self._model.config, "max_position_embeddings", 2048))
        self._waiting: list[_Waiting] = []
        self._decoding: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def dialect(self) -> Dialect:
        """A model that was made from the embedded one says so in its configuration."""
        return "terse" if getattr(self._model.config, "dialect", "") == "terse" else "full"

    @property
    def deterministic(self) -> bool:
        return not torch.cuda.is_available()

    async def complete(self, request: ModelRequest) -> Reply:
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

    def _decode(self, requests: Sequence[ModelRequest]) -> list[Reply]:
        started = time.perf_counter()
        limit = max(request.max_tokens or self._reply_tokens for request in requests)
        prompts = [self._prompt(request) for request in requests]
        encoded = self._tokenizer(
            prompts, padding=True, truncation=True, max_length=max(1, self._room - limit), return_tensors="pt"
        ).to(self._model.device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=encoded["input_ids"],
                attention_mask=encoded["attention_mask"],
                max_new_tokens=limit,
                do_sample=False,
                # Some models publish another in their settings: servers do not take it, and neither does training.
                repetition_penalty=1.0,
                logits_processor=LogitsProcessorList([_Sampled(requests)]),
                pad_token_id=self._tokenizer.pad_token_id,
            )
        seconds = time.perf_counter() - started
        width = encoded["input_ids"].shape[1]
        counts = encoded["attention_mask"].sum(dim=1).tolist()
        return [
            self._reply(request, ids[width:].tolist(), int(count), seconds)
            for request, ids, count in zip(requests, output, counts, strict=True)
        ]

    def _prompt(self, request: ModelRequest) -> str:
        if not self._tokenizer.chat_template:
            return request.text
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _reply(self, request: ModelRequest, ids: list[int], prompt_tokens: int, seconds: float) -> Reply:
        end = self._tokenizer.eos_token_id
        limit = request.max_tokens or self._reply_tokens
        written = ids[: ids.index(end)] if end in ids else ids
        finished = end in ids and len(written) <= limit
        return Reply(
            text=self._tokenizer.decode(written[:limit], skip_special_tokens=True),
            model=self.name,
            input_tokens=prompt_tokens,
            output_tokens=min(len(written), limit),
            cost=0.0,
            seconds=seconds,
            finish="stop" if finished else "length",
        )


def load(where: str, adapter: str) -> tuple[Any, Any]:
    """Tokenizer and model, ready to decode.

    Raises:
        ModelRefused: There is no such model here, or it may not be had, or the adapter does not fit it.
    """
    tokenizer, model = pretrained(where, torch.bfloat16 if torch.cuda.is_available() else torch.float32)
    model = with_adapter(model, where, adapter) if adapter else model
    return tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def pretrained(where: str, dtype: torch.dtype, attention: str = "eager") -> tuple[Any, Any]:
    """Tokenizer and model as they lie in a folder or come from Hugging Face. Code that comes with them is not run.

    Raises:
        ModelRefused: There is no such model here, or it may not be had.
    """
    here = not Path(where).is_dir() and _offline()
    try:
        # Said outright: where nothing is said, a person at the terminal is asked.
        given = {"trust_remote_code": False, "local_files_only": here}
        tokenizer = AutoTokenizer.from_pretrained(where, padding_side="left", **given)
        model = AutoModelForCausalLM.from_pretrained(where, dtype=dtype, attn_implementation=attention, **given)
    except (OSError, ValueError, RuntimeError) as error:
        if here:
            raise ModelRefused(f"the model {where!r} is not on this machine, and Hugging Face cannot be reached") from error
        raise ModelRefused(why_refused(where, "", error)) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, model


def with_adapter(model: Any, where: str, adapter: str) -> Any:
    """The model with the adapter of a folder on it (`peft.PeftModel`); `where` is where the model came from.

    Raises:
        ModelRefused: The adapter cannot be read, or does not fit.
    """
    from peft import PeftModel

    try:
        with peft_as_it_is():
            return PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelRefused(why_refused(where, adapter, error)) from error


def location(base_model: str) -> str:
    """What `from_pretrained` takes for `embedded:SIZE`, `local:FOLDER`, a folder or a Hugging Face id.

    Raises:
        ModelRefused: There is no embedded model of that size.
    """
    kind, colon, rest = base_model.partition(":")
    if colon and kind == "embedded":
        return str(embedded_weights(rest or "base"))
    return rest if colon and kind == "local" else base_model


def _offline() -> bool:
    """Whether no name server knows Hugging Face. Where that is so, each file would be asked for six times, a minute in all."""
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if getproxies().get(hub.scheme) or not hub.hostname:
        return False
    try:
        socket.getaddrinfo(hub.hostname, hub.port or hub.scheme)
    except OSError:
        return True
    return False


@contextmanager
def peft_as_it_is() -> Iterator[None]:
    """PEFT 0.21 asks transformers by a name that is going out of use: its affair, and no warning of ours."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield


def why_refused(where: str, adapter: str, error: Exception) -> str:
    """One sentence for what transformers and PEFT say in many."""
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if adapter and not (Path(adapter) / "adapter_config.json").is_file():
        return f"{adapter} holds no adapter: it has no adapter_config.json"
    if adapter and "size mismatch" in str(error):
        return f"the adapter {adapter} does not fit the model {where!r}: its weights have other shapes"
    if Path(where).is_dir() and not (Path(where) / "config.json").is_file():
        return f"{where} holds no model: it has no config.json"
    if "gated" in str(error).casefold():
        return f"the model {where!r} is gated: accept its licence on its page, and log in with `hf auth login`"
    return f"the model {where!r} could not be loaded: {message}"


class _Sampled(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Turns greedy decoding into sampling, row by row, by the Gumbel-max trick.

    The argmax of logits / temperature plus Gumbel noise is a sample of the softmax (Maddison et al. 2014, "A* Sampling"), and
    with a generator for each row a sample does not depend on its neighbours.
    """

    def __init__(self, requests: Sequence[ModelRequest]) -> None:
        self._rows = [
            (row, request.temperature, np.random.default_rng([(request.seed or 0) % 2**63, *request.text.encode()]))
            for row, request in enumerate(requests)
            if request.temperature
        ]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for row, temperature, chance in self._rows:
            noise = torch.from_numpy(chance.gumbel(size=scores.shape[1]).astype(np.float32))
            scores[row] = scores[row] / temperature + noise.to(scores.device)
        return scores
