"""Agents that learn on the job, and never get worse.

The public names. Each is loaded when it is first used: `import journeyman` costs nothing and does nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journeyman.agents.orchestrator import Orchestrator as Orchestrator
    from journeyman.candidate import Candidate as Candidate
    from journeyman.candidate import Kind as Kind
    from journeyman.capture.checkpoints.loader import CheckpointLoader as CheckpointLoader
    from journeyman.capture.execution_log import ExecutionLogger as ExecutionLogger
    from journeyman.errors import InputError as InputError
    from journeyman.errors import JourneymanError as JourneymanError
    from journeyman.errors import ModelError as ModelError
    from journeyman.errors import PlaybookError as PlaybookError
    from journeyman.evaluation import Decision as Decision
    from journeyman.evaluation import Evaluation as Evaluation
    from journeyman.evaluation import Result as Result
    from journeyman.examination import Report as Report
    from journeyman.examination import compare as compare
    from journeyman.examination import evaluate as evaluate
    from journeyman.executor import Executor as Executor
    from journeyman.executor import create_ace_executor as create_ace_executor
    from journeyman.gate import BetterAtAnyTime as BetterAtAnyTime
    from journeyman.gate import BetterOnHeldOut as BetterOnHeldOut
    from journeyman.learn.planner.dataset import WorkflowDataset as WorkflowDataset
    from journeyman.learn.planner.gae import compute_gae as compute_gae
    from journeyman.learn.planner.loss import compute_supervised_loss as compute_supervised_loss
    from journeyman.learn.planner.network import PlannerModel as PlannerModel
    from journeyman.learn.weights.gguf import GGUFExporter as GGUFExporter
    from journeyman.learn.weights.hardware import HardwareConfig as HardwareConfig
    from journeyman.learn.weights.hardware import detect_hardware as detect_hardware
    from journeyman.learn.weights.hardware import get_ryzen_optimized_config as get_ryzen_optimized_config
    from journeyman.learn.weights.hosting import OllamaHostingProfile as OllamaHostingProfile
    from journeyman.learn.weights.ollama import OllamaDeployer as OllamaDeployer
    from journeyman.offline import OfflineTrainer as OfflineTrainer
    from journeyman.offline import create_offline_trainer as create_offline_trainer
    from journeyman.plan import Plan as Plan
    from journeyman.plan import Subtask as Subtask
    from journeyman.plan_result import ExecutionResult as ExecutionResult
    from journeyman.planning.system import OrchestrationSystem as OrchestrationSystem
    from journeyman.playbook import Bullet as Bullet
    from journeyman.playbook import Insight as Insight
    from journeyman.playbook import Playbook as Playbook
    from journeyman.release import Release as Release
    from journeyman.release import Stage as Stage
    from journeyman.rewards.base import BaseReward as BaseReward
    from journeyman.rewards.base import RewardFunction as RewardFunction
    from journeyman.rewards.base import RewardResult as RewardResult
    from journeyman.rewards.code_execution import CodeExecutionReward as CodeExecutionReward
    from journeyman.rewards.completion import TaskCompletionReward as TaskCompletionReward
    from journeyman.rewards.efficiency import EfficiencyReward as EfficiencyReward
    from journeyman.rewards.engine import RewardEngine as RewardEngine
    from journeyman.rewards.form import FormatComplianceReward as FormatComplianceReward
    from journeyman.rewards.learned import LearnedReward as LearnedReward
    from journeyman.rewards.syntax import SyntaxValidationReward as SyntaxValidationReward
    from journeyman.rewards.tools import ToolSuccessReward as ToolSuccessReward
    from journeyman.rewards.utility import compute_reward as compute_reward
    from journeyman.rollout import Agent as Agent
    from journeyman.rollout import attempt as attempt
    from journeyman.route import Router as Router
    from journeyman.score import Experience as Experience
    from journeyman.score import Reward as Reward
    from journeyman.score import Score as Score
    from journeyman.stores.registry import Registry as Registry
    from journeyman.task import Split as Split
    from journeyman.task import Task as Task
    from journeyman.tasks.questions import DatasetLoader as DatasetLoader
    from journeyman.trace import AgentCall as AgentCall
    from journeyman.trace import Message as Message
    from journeyman.trace import ModelCall as ModelCall
    from journeyman.trace import Reasoning as Reasoning
    from journeyman.trace import ToolCall as ToolCall
    from journeyman.trace import Trace as Trace
    from journeyman.training import TrainingConfig as TrainingConfig
    from journeyman.training import TrainingResult as TrainingResult
    from journeyman.watching import TraceCollector as TraceCollector
    from journeyman.watching import hook_into_agent as hook_into_agent
    from journeyman.watching import traced as traced
    from journeyman.weights.datasets import DatasetPipeline as DatasetPipeline
    from journeyman.weights.pipeline import TrainingPipeline as TrainingPipeline
    from journeyman.weights.training import RLTrainer as RLTrainer

    PlaybookStage = Stage

_HOMES = {
    "agents.orchestrator": ("Orchestrator",),
    "candidate": ("Candidate", "Kind"),
    "capture.checkpoints.loader": ("CheckpointLoader",),
    "capture.execution_log": ("ExecutionLogger",),
    "errors": ("InputError", "JourneymanError", "ModelError", "PlaybookError"),
    "examination": ("Report", "compare", "evaluate"),
    "evaluation": ("Decision", "Evaluation", "Result"),
    "executor": ("Executor", "create_ace_executor"),
    "gate": ("BetterAtAnyTime", "BetterOnHeldOut"),
    "learn.planner.dataset": ("WorkflowDataset",),
    "learn.planner.gae": ("compute_gae",),
    "learn.planner.loss": ("compute_supervised_loss",),
    "learn.planner.network": ("PlannerModel",),
    "rewards.utility": ("compute_reward",),
    "learn.weights.gguf": ("GGUFExporter",),
    "learn.weights.hardware": ("HardwareConfig", "detect_hardware", "get_ryzen_optimized_config"),
    "learn.weights.hosting": ("OllamaHostingProfile",),
    "learn.weights.ollama": ("OllamaDeployer",),
    "offline": ("OfflineTrainer", "create_offline_trainer"),
    "plan": ("Plan", "Subtask"),
    "plan_result": ("ExecutionResult",),
    "planning.system": ("OrchestrationSystem",),
    "playbook": ("Bullet", "Insight", "Playbook"),
    "release": ("Release", "Stage"),
    "rewards.base": ("BaseReward", "RewardFunction", "RewardResult"),
    "rewards.code_execution": ("CodeExecutionReward",),
    "rewards.completion": ("TaskCompletionReward",),
    "rewards.efficiency": ("EfficiencyReward",),
    "rewards.engine": ("RewardEngine",),
    "rewards.form": ("FormatComplianceReward",),
    "rewards.learned": ("LearnedReward",),
    "rewards.syntax": ("SyntaxValidationReward",),
    "rewards.tools": ("ToolSuccessReward",),
    "rollout": ("Agent", "attempt"),
    "route": ("Router",),
    "score": ("Experience", "Reward", "Score"),
    "stores.registry": ("Registry",),
    "task": ("Split", "Task"),
    "tasks.questions": ("DatasetLoader",),
    "trace": ("AgentCall", "Message", "ModelCall", "Reasoning", "ToolCall", "Trace"),
    "training": ("TrainingConfig", "TrainingResult"),
    "watching": ("TraceCollector", "hook_into_agent", "traced"),
    "weights.datasets": ("DatasetPipeline",),
    "weights.pipeline": ("TrainingPipeline",),
    "weights.training": ("RLTrainer",),
}
"""Where each public name lives."""

_WHERE = {name: home for home, names in _HOMES.items() for name in names}
_OLDER = {"PlaybookStage": "Stage"}
"""Names that users of earlier systems know."""

__all__ = sorted([*_WHERE, *_OLDER])


def __getattr__(name: str) -> Any:
    known = _OLDER.get(name, name)
    if known not in _WHERE:
        raise AttributeError(f"module 'journeyman' has no attribute {name!r}")
    return getattr(import_module(f"journeyman.{_WHERE[known]}"), known)


def __dir__() -> list[str]:
    return __all__
