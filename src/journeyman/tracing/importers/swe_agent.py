"""Trajectories of SWE-agent (`.traj`) and of mini-swe-agent (`.traj.json`), in the dialects that they have had.

That an agent has submitted is no success: there is no verdict in these files, so there is no reward.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from journeyman.core.messages import ToolUse, Turn
from journeyman.core.trace import Step
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, SeveralRecords

_SHELL = "bash"
"""The tool of all dialects without function calling: SWE-agent's own commands are functions of its shell."""
_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n?```", re.DOTALL)
_RETURNED = re.compile(r"<returncode>\s*(-?\d+)\s*</returncode>")


def recognised(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("trajectory"), list) or isinstance(record.get("history"), list)


def recognised_mini(record: Mapping[str, Any]) -> bool:
    told = str(record.get("trajectory_format", "")).startswith("mini-swe-agent")
    return isinstance(record.get("messages"), list) and (told or "exit_status" in fields.mapping(record.get("info")))


def _is_message(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("role"), str) and "content" in record


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    """The run that a file is."""
    history = fields.objects(record.get("history"))
    done = fields.objects(record.get("trajectory"))
    turns = list(_trajectory(done, history) if done else _conversation(history))
    yield _recorded(record, builder.steps(turns, model=_model(record)), agent="swe-agent")


def read_mini(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    """The run that a file of mini-swe-agent is."""
    yield _recorded(record, mini_steps(fields.objects(record.get("messages")), _model(record)), agent="mini-swe-agent")


def mini_steps(messages: Sequence[Mapping[str, Any]], model: str = "") -> tuple[Step, ...]:
    """The steps of a conversation in which a block of shell is a call and the next message its answer."""
    turns: list[Turn] = []
    asked = False
    for message in messages:
        role, said = str(message.get("role", "user")), conversation.content_text(message.get("content"))
        extra = fields.mapping(message.get("extra"))
        if role == "assistant":
            blocks = [] if message.get("tool_calls") else _BLOCK.findall(said)
            asks = tuple(map(_shell, blocks))
            asks += _calls_of(message)
            # The program itself runs a reply that has exactly one block.
            asked = len(asks) == 1
            turns.append(_reply(said, asks if asked else asks[:0], fields.mapping(extra.get("response"))))
        elif asked:
            code = extra.get("returncode", (_RETURNED.search(said) or ("", None))[1])
            bad = code is not None and str(code) != "0"
            turns.append(Turn("tool", said, failed=bad, error=f"exit status {code}" if bad else None))
            asked = False
        else:
            turns.append(Turn(role, said))
    return builder.steps(turns, model=model)


def _reply(said: str, asks: tuple[ToolUse, ...], response: Mapping[str, Any]) -> Turn:
    return Turn(
        "assistant",
        said,
        calls=asks,
        model=str(response.get("model") or ""),
        usage=conversation.usage_of(response.get("usage")),
        response_id=response.get("id") if isinstance(response.get("id"), str) else None,
    )


def _recorded(record: Mapping[str, Any], steps: tuple[Step, ...], *, agent: str) -> RecordedTrace:
    info = fields.mapping(record.get("info"))
    status = str(info.get("exit_status") or "")
    done = "" if status.lower() in ("submitted", "") else status
    problem = fields.mapping(fields.mapping(_settings(record)).get("env")).get("problem_statement")
    problem = problem or fields.mapping(_settings(record)).get("problem_statement")
    task = fields.mapping(problem).get("id") or record.get("instance_id") or "swe-agent"
    return builder.recorded(
        str(record.get("instance_id") or ""),
        task_id=str(task),
        steps=steps,
        error=f"Exit: {done}" if done else None,
        domain="code",
        agent=agent,
        output=info["submission"] if isinstance(info.get("submission"), str) else None,
        raw=fields.without_empty(
            exit_status=status,
            # Of the whole run: how much of it each call had is not recorded, and 0 stands for "not counted".
            model_stats=info.get("model_stats"),
            environment=record.get("environment"),
            trajectory_format=record.get("trajectory_format"),
        ),
    )


def _settings(record: Mapping[str, Any]) -> Any:
    return fields.parsed_if_json(record.get("replay_config"))


def _model(record: Mapping[str, Any]) -> str:
    config = fields.mapping(fields.mapping(record.get("info")).get("config"))
    model = fields.mapping(fields.mapping(_settings(record)).get("agent")).get("model") or config.get("model")
    found = fields.mapping(model).get("name") or fields.mapping(model).get("model_name")
    return str(found or "")


def _trajectory(done: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    """What each step did, from the trajectory; what stood before it all, and how calls were written, from the history."""
    first = next((at for at, each in enumerate(history) if each.get("role") == "assistant"), len(history))
    for message in history[:first]:
        yield Turn(str(message.get("role", "user")), conversation.content_text(message.get("content")))
    replies = [each for each in history if each.get("role") == "assistant" and not each.get("is_demo")]
    for number, step in enumerate(done):
        asks = _calls_of(replies[number]) if number < len(replies) else ()
        action = fields.text(step.get("action")).strip("\n")
        if not asks and action:
            asks = (_shell(action),)
        reply = fields.text(step.get("response"))
        raw = fields.without_empty(state=fields.parsed_if_json(step.get("state")))
        yield Turn("assistant", reply, calls=asks, thought=_thought_beside(step, reply), raw=raw)
        took = fields.number(step.get("execution_time"))
        if action:
            yield Turn("tool", fields.text(step.get("observation")), seconds=took)
        elif step.get("observation"):
            yield Turn("user", fields.text(step["observation"]))


def _thought_beside(step: Mapping[str, Any], reply: str) -> str:
    """What was thought, where the reply does not say it too."""
    thought = fields.text(step.get("thought")).strip()
    return "" if thought in reply else thought


def _conversation(history: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    """The conversation alone."""
    for message in history:
        answers = message.get("tool_call_ids")
        yield Turn(
            str(message.get("role", "user")),
            conversation.content_text(message.get("content")),
            calls=_calls_of(message),
            answers=str(answers[0]) if isinstance(answers, list) and answers else None,
        )


def _calls_of(message: Mapping[str, Any]) -> tuple[ToolUse, ...]:
    return tuple(map(conversation.tool_use, fields.objects(message.get("tool_calls"))))


def _shell(command: str) -> ToolUse:
    return ToolUse(_SHELL, fields.as_json({"command": command}))


SWE_AGENT = Format(name="swe-agent", recognises=recognised, read=read)
MINI_SWE_AGENT = Format(
    name="mini-swe-agent",
    recognises=recognised_mini,
    read=read_mini,
    # The first versions wrote the list of messages alone.
    several=SeveralRecords(
        starts=lambda first: first.in_list and _is_message(first.value),
        belongs=_is_message,
        otherwise="is no message: it has no role and content",
        joined=lambda rows: {"trajectory_format": "mini-swe-agent", "messages": rows},
    ),
)
