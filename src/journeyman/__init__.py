"""Agents that learn on the job, and never get worse.

The public names. Each is loaded when it is first used: `import journeyman` costs nothing and does nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journeyman.agents.attempt import Agent as Agent
    from journeyman.agents.attempt import attempt as attempt
    from journeyman.agents.orchestrator import Orchestrator as Orchestrator
    from journeyman.cli.notebook import aevaluate as aevaluate
    from journeyman.cli.notebook import atrain as atrain
    from journeyman.cli.notebook import evaluate as evaluate
    from journeyman.cli.notebook import train as train
    from journeyman.compat.executor import Executor as Executor
    from journeyman.compat.executor import create_ace_executor as create_ace_executor
    from journeyman.core import registry as registry
    from journeyman.core.candidate import Candidate as Candidate
    from journeyman.core.candidate import Kind as Kind
    from journeyman.core.errors import InputError as InputError
    from journeyman.core.errors import JourneymanError as JourneymanError
    from journeyman.core.errors import ModelError as ModelError
    from journeyman.core.errors import PlaybookError as PlaybookError
    from journeyman.core.evaluation import Decision as Decision
    from journeyman.core.evaluation import Evaluation as Evaluation
    from journeyman.core.evaluation import Result as Result
    from journeyman.core.gate import BetterAtAnyTime as BetterAtAnyTime
    from journeyman.core.gate import BetterOnHeldOut as BetterOnHeldOut
    from journeyman.core.plan import ExecutionResult as ExecutionResult
    from journeyman.core.plan import Plan as Plan
    from journeyman.core.plan import Subtask as Subtask
    from journeyman.core.playbook import Bullet as Bullet
    from journeyman.core.playbook import Insight as Insight
    from journeyman.core.playbook import Playbook as Playbook
    from journeyman.core.release import Release as Release
    from journeyman.core.release import Stage as Stage
    from journeyman.core.score import Experience as Experience
    from journeyman.core.score import Reward as Reward
    from journeyman.core.score import Score as Score
    from journeyman.core.task import Split as Split
    from journeyman.core.task import Task as Task
    from journeyman.core.trace import AgentCall as AgentCall
    from journeyman.core.trace import Message as Message
    from journeyman.core.trace import ModelCall as ModelCall
    from journeyman.core.trace import Reasoning as Reasoning
    from journeyman.core.trace import ToolCall as ToolCall
    from journeyman.core.trace import Trace as Trace
    from journeyman.experiments.compare import EvaluationReport as EvaluationReport
    from journeyman.experiments.compare import compare as compare
    from journeyman.experiments.planner.collect import OrchestrationSystem as OrchestrationSystem
    from journeyman.experiments.playbook.config import TrainingConfig as TrainingConfig
    from journeyman.experiments.playbook.training import OfflineTrainer as OfflineTrainer
    from journeyman.experiments.playbook.training import TrainingResult as TrainingResult
    from journeyman.experiments.playbook.training import create_offline_trainer as create_offline_trainer
    from journeyman.experiments.weights.data import DatasetPipeline as DatasetPipeline
    from journeyman.experiments.weights.pipeline import TrainingPipeline as TrainingPipeline
    from journeyman.experiments.weights.training import RLTrainer as RLTrainer
    from journeyman.optimizers.planner.network import PlannerModel as PlannerModel
    from journeyman.optimizers.planner.network import compute_supervised_loss as compute_supervised_loss
    from journeyman.optimizers.planner.ppo import compute_gae as compute_gae
    from journeyman.optimizers.planner.supervised import WorkflowDataset as WorkflowDataset
    from journeyman.optimizers.weights.gguf import GGUFExporter as GGUFExporter
    from journeyman.optimizers.weights.hosting import OllamaHostingProfile as OllamaHostingProfile
    from journeyman.optimizers.weights.ollama import OllamaDeployer as OllamaDeployer
    from journeyman.optimizers.weights.sizing import HardwareConfig as HardwareConfig
    from journeyman.optimizers.weights.sizing import detect_hardware as detect_hardware
    from journeyman.optimizers.weights.sizing import get_ryzen_optimized_config as get_ryzen_optimized_config
    from journeyman.rewards.base import BaseReward as BaseReward
    from journeyman.rewards.base import RewardFunction as RewardFunction
    from journeyman.rewards.base import RewardResult as RewardResult
    from journeyman.rewards.code_execution import CodeExecutionReward as CodeExecutionReward
    from journeyman.rewards.engine import RewardEngine as RewardEngine
    from journeyman.rewards.learned import LearnedReward as LearnedReward
    from journeyman.rewards.static import EfficiencyReward as EfficiencyReward
    from journeyman.rewards.static import FormatComplianceReward as FormatComplianceReward
    from journeyman.rewards.static import SyntaxValidationReward as SyntaxValidationReward
    from journeyman.rewards.static import TaskCompletionReward as TaskCompletionReward
    from journeyman.rewards.static import ToolSuccessReward as ToolSuccessReward
    from journeyman.rewards.utility import compute_reward as compute_reward
    from journeyman.serving.ingest.hooks import hook_into_agent as hook_into_agent
    from journeyman.serving.ingest.in_process import TraceCollector as TraceCollector
    from journeyman.serving.ingest.in_process import traced as traced
    from journeyman.serving.ingest.in_process import watch as watch
    from journeyman.serving.router import Router as Router
    from journeyman.stores.registry import Registry as Registry
    from journeyman.tasks.questions import DatasetLoader as DatasetLoader
    from journeyman.tracing.importers.checkpoints import CheckpointLoader as CheckpointLoader
    from journeyman.tracing.importers.execution_log import ExecutionLogger as ExecutionLogger

    PlaybookStage = Stage

_HOMES = {
    "agents.attempt": ("Agent", "attempt"),
    "agents.orchestrator": ("Orchestrator",),
    "cli.notebook": ("aevaluate", "atrain", "evaluate", "train"),
    "compat.executor": ("Executor", "create_ace_executor"),
    "core": ("registry",),
    "core.candidate": ("Candidate", "Kind"),
    "core.errors": ("InputError", "JourneymanError", "ModelError", "PlaybookError"),
    "core.evaluation": ("Decision", "Evaluation", "Result"),
    "core.gate": ("BetterAtAnyTime", "BetterOnHeldOut"),
    "core.plan": ("ExecutionResult", "Plan", "Subtask"),
    "core.playbook": ("Bullet", "Insight", "Playbook"),
    "core.release": ("Release", "Stage"),
    "core.score": ("Experience", "Reward", "Score"),
    "core.task": ("Split", "Task"),
    "core.trace": ("AgentCall", "Message", "ModelCall", "Reasoning", "ToolCall", "Trace"),
    "experiments.compare": ("EvaluationReport", "compare"),
    "experiments.planner.collect": ("OrchestrationSystem",),
    "experiments.playbook.config": ("TrainingConfig",),
    "experiments.playbook.training": ("OfflineTrainer", "TrainingResult", "create_offline_trainer"),
    "experiments.weights.data": ("DatasetPipeline",),
    "experiments.weights.pipeline": ("TrainingPipeline",),
    "experiments.weights.training": ("RLTrainer",),
    "optimizers.planner.network": ("PlannerModel", "compute_supervised_loss"),
    "optimizers.planner.ppo": ("compute_gae",),
    "optimizers.planner.supervised": ("WorkflowDataset",),
    "optimizers.weights.gguf": ("GGUFExporter",),
    "optimizers.weights.hosting": ("OllamaHostingProfile",),
    "optimizers.weights.ollama": ("OllamaDeployer",),
    "optimizers.weights.sizing": ("HardwareConfig", "detect_hardware", "get_ryzen_optimized_config"),
    "rewards.base": ("BaseReward", "RewardFunction", "RewardResult"),
    "rewards.code_execution": ("CodeExecutionReward",),
    "rewards.engine": ("RewardEngine",),
    "rewards.learned": ("LearnedReward",),
    "rewards.static": (
        "EfficiencyReward",
        "FormatComplianceReward",
        "SyntaxValidationReward",
        "TaskCompletionReward",
        "ToolSuccessReward",
    ),
    "rewards.utility": ("compute_reward",),
    "serving.ingest.hooks": ("hook_into_agent",),
    "serving.ingest.in_process": ("TraceCollector", "traced", "watch"),
    "serving.router": ("Router",),
    "stores.registry": ("Registry",),
    "tasks.questions": ("DatasetLoader",),
    "tracing.importers.checkpoints": ("CheckpointLoader",),
    "tracing.importers.execution_log": ("ExecutionLogger",),
}
"""Where each public name lives."""

_WHERE = {name: home for home, names in _HOMES.items() for name in names}
_OLDER = {"PlaybookStage": "Stage", "Report": "EvaluationReport"}
"""Names that users of earlier systems know."""

_CALLS = "train(rows, model=…), evaluate(playbook, rows, model=…) and watch(agent)"
_MEANT = {
    **dict.fromkeys(("Client", "Journeyman"), _CALLS),
    **dict.fromkeys(("Trainer", "fit", "learn"), "train(rows, model=…)"),
    **dict.fromkeys(("eval", "test"), "evaluate(playbook, rows, model=…)"),
    **dict.fromkeys(("instrument", "monitor", "observe", "trace"), "watch(agent), or @traced above a function"),
    **dict.fromkeys(("load", "load_playbook"), "Playbook.load(FILE)"),
    **{name: f"playbook.{name}(…), of a Playbook.load(FILE)" for name in ("diff", "prompt", "save")},
    **{name: f"the command: journeyman {name}" for name in ("collect", "demo", "doctor", "serve")},
}
"""What people try first, and what to write instead."""

__all__ = sorted([*_WHERE, *_OLDER])


def __getattr__(name: str) -> Any:
    known = _OLDER.get(name, name)
    if known not in _WHERE:
        raise AttributeError(f"module 'journeyman' has no attribute {name!r}{_hint(name)}")
    if known == "registry":
        return import_module("journeyman.core.registry")
    return getattr(import_module(f"journeyman.{_WHERE[known]}"), known)


def _hint(name: str) -> str:
    if name.startswith("__"):
        # Python itself asks, for much that is not there.
        return ""
    from difflib import get_close_matches

    meant = _MEANT.get(name) or next(iter(get_close_matches(name, __all__, n=1)), "")
    return f"; did you mean {meant}?" if meant else ""


def __dir__() -> list[str]:
    return __all__
