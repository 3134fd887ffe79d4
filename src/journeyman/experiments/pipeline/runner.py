"""Several commands as the stages of one pipeline, of which each is carried out once for what it is made of.

A stage is known by its key: the digest of its command and options, of the files that they name, of what the stages named in
them made, and of the source that is run. What a stage with that key made is taken again where it is there, and whole; so one
changed setting costs what hangs on it, and a setting put back costs nothing.

    pipelines/NAME/train-3f2a81c0b7d4.json     what a stage was asked, what it took, and what it made, by digest
    pipelines/NAME/train-3f2a81c0b7d4.log      what it said
    pipelines/NAME/train-3f2a81c0b7d4/         its own folder, `{out}` in its options
    pipelines/NAME/runs/20261124-150301.json   which of them a run took, and how it ended
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from journeyman.core.errors import InputError, MissingExtra
from journeyman.experiments import wiring
from journeyman.experiments.pipeline.stages import (
    Budget,
    Found,
    Pipeline,
    PipelineRun,
    PipelineStage,
    StagePlan,
    StageRecord,
    State,
    cost_of,
    difference,
    digest_of,
    files_of,
    fill,
    parts_of,
    place_of,
    verdict_of,
)
from journeyman.io.atomic import write_json
from journeyman.io.files import locked, sha256
from journeyman.io.processes import die_with_parent, session_cpu_seconds, this_process

_POLL = 0.1
_LEEWAY = 1.1
"""How far above a budget of money what a stage is expected to cost may be: forecasts are no nearer than that."""
_GRACE = 60.0
"""Seconds for a stage that is told to stop: some finish a checkpoint."""


class PipelineWatcher(Protocol):
    """Is told how far it is."""

    def began(self, plan: StagePlan) -> None: ...

    def running(self, plan: StagePlan, seconds: float) -> None: ...

    def ended(self, name: str, found: Found, record: StageRecord | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run is meant."""

    begin: str = ""
    """From this stage on all is carried out anew."""
    only: str = ""
    """This stage alone, over what was made for it."""
    resume: bool = True
    """Go on within a stage that was broken off."""
    trust: bool = False
    """Take files that were changed since they were made as they are."""
    profiled: bool = False
    """Draw where each stage spends its time, as a flame graph beside its log."""


class PipelineFolder:
    """The records of one pipeline."""

    def __init__(self, home: Path, pipeline: Pipeline, *, find_run: Callable[[str, str], str | None]) -> None:
        """
        Args:
            home: Where all pipelines of the project lie.
            find_run: The id of the run that a command (`train weights`) began at a time (ISO) or next after it.
        """
        self.folder, self.pipeline = home / pipeline.name, pipeline
        self.find_run = find_run

    # What would be done.

    def plan(self, options: RunOptions = RunOptions()) -> list[StagePlan]:
        """Each stage, whether what it makes is there, and why not.

        Raises:
            InputError: A stage that is named is none, or a file that one reads is not there.
        """
        self._check(options)
        records: dict[str, StageRecord | None] = {}
        plans: list[StagePlan] = []
        for stage in self.pipeline.stages:
            plan = self.plan_of(stage, records, options)
            plans.append(plan)
            records[stage.name] = plan.record if plan.is_cached else None
        return plans

    def plan_of(self, stage: PipelineStage, made: Mapping[str, StageRecord | None], options: RunOptions) -> StagePlan:
        """One stage, over what those before it made; `None` for what is yet to be made."""
        names = [each.name for each in self.pipeline.stages]
        waits = [name for name in stage.needs(names) if made.get(name) is None]
        earlier = self._earlier(stage)
        if waits:
            why = f"waits for {waits[0]}"
            return StagePlan(stage=stage, key=None, command=stage.arguments, parts={}, record=None, why=why, earlier=earlier)
        results = {name: record for name in stage.needs(names) if (record := made[name]) is not None}
        parts = parts_of(stage, results)
        key = digest_of(parts)
        command = (*stage.command, *self._filled(stage, results, key))
        record = StageRecord.of(self.folder, stage.name, key)
        plan = StagePlan(stage=stage, key=key, command=command, parts=parts, record=record, why="", earlier=earlier)
        return replace(plan, why="asked for" if stage.name in self._forced(options) else self._why(plan, options))

    def _why(self, plan: StagePlan, options: RunOptions) -> str:
        """Why a stage is to be carried out; empty where what it makes is there."""
        stage, record = plan.stage, plan.record
        if record is None:
            return difference(plan.parts, plan.earlier[-1].parts) if plan.earlier else "was never carried out"
        if record.state != "done":
            return {"running": "was broken off", "stopped": "was stopped", "failed": "failed"}.get(record.state, "was refused")
        if not record.is_serving:
            return f"what it left running (process {record.result['pid']}) is gone"
        if not options.trust and (name := record.changed()):
            if Path(name).exists():
                raise InputError(
                    f"{name} was changed since the stage {stage.name} made it: remove it to have it made again, or say --trust "
                    f"to take it as it is"
                )
            return f"{name} is no longer there"
        return ""

    def _forced(self, options: RunOptions) -> frozenset[str]:
        names = [stage.name for stage in self.pipeline.stages]
        if options.only:
            return frozenset([options.only])
        return frozenset(names[names.index(options.begin) :]) if options.begin else frozenset()

    def _check(self, options: RunOptions) -> None:
        names = [stage.name for stage in self.pipeline.stages]
        for option, name in (("--from", options.begin), ("--only", options.only)):
            if name and name not in names:
                raise InputError(f"{option} {name}: there is no such stage; there are {', '.join(names)}")

    # Doing it.

    def run(self, watcher: PipelineWatcher, options: RunOptions = RunOptions()) -> PipelineRun:
        """Carry out what is not there yet, up to the first stage that refuses, fails, or costs too much.

        Raises:
            InputError: Another run is at work here, a stage cannot be filled in, or a file was changed by hand.
            KeyboardInterrupt: The stage at work was told to stop first; what it kept is gone on with.
        """
        self._check(options)
        busy = f"the pipeline {self.pipeline.name} is being run by another process; wait for it or stop it"
        with locked(self.folder, patience=0, busy=busy):
            return _Execution(self, watcher, options).carried_out()

    # Where it is kept.

    def place(self, plan: StagePlan) -> Path:
        return place_of(self.folder, plan.stage.name, plan.key or "")

    def keep(self, plan: StagePlan, *, state: State, **more: Any) -> StageRecord:
        more.setdefault("began", wiring.now().isoformat())
        more.setdefault("before", plan.record.ended if plan.record else ())
        record = StageRecord(
            stage=plan.stage.name, key=plan.key or "", command=plan.command, parts=plan.parts, state=state, **more
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.place(plan).with_suffix(".json"), asdict(record))
        return record

    def _earlier(self, stage: PipelineStage) -> tuple[StageRecord, ...]:
        """What came of the same stage before, with whatever settings, where it ever came to its end."""
        found = [StageRecord.read(path) for path in self.folder.glob(f"{stage.name}-*.json")]
        ended = [each for each in found if each.ended and each.command[: len(stage.command)] == stage.command]
        return tuple(sorted(ended, key=lambda each: each.began))

    def keep_run(self, run: PipelineRun) -> None:
        (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "runs" / f"{run.id}.json", run.json())

    def _filled(self, stage: PipelineStage, made: Mapping[str, StageRecord], key: str) -> list[str]:
        place = str(place_of(self.folder, stage.name, key))
        return [fill(text, stage, made, place) for text in stage.arguments]


class _Execution:
    """One run of a pipeline: what was made so far, and what it has cost."""

    def __init__(self, folder: PipelineFolder, watcher: PipelineWatcher, options: RunOptions) -> None:
        self._folder, self._watcher, self._options = folder, watcher, options
        self._names = [stage.name for stage in folder.pipeline.stages]
        self._made: dict[str, StageRecord | None] = {}
        self._found: dict[str, tuple[Found, str]] = {}
        self._cost, self._cpu = 0.0, 0.0
        self._started = time.monotonic()

    def carried_out(self) -> PipelineRun:
        began = wiring.now()
        self._run = PipelineRun(
            id=f"{began:%Y%m%d-%H%M%S-%f}",
            pipeline=self._folder.pipeline.name,
            began=began.isoformat(),
            stages={},
            process=this_process(),
        )
        try:
            reason, code = self._stages()
        except KeyboardInterrupt:
            self._note(reason="it was interrupted", exit_code=130)
            raise
        except InputError as error:
            self._note(reason=str(error), exit_code=2)
            raise
        except BaseException as error:
            self._note(reason=f"{type(error).__name__}: {error}", exit_code=1)
            raise
        return self._note(reason=reason, exit_code=code)

    def _note(self, **more: Any) -> PipelineRun:
        """Keep how far it is: it may be looked at, or killed."""
        self._run = replace(
            self._run,
            stages={name: self._found.get(name, ("not reached", "")) for name in self._names},
            seconds=round(time.monotonic() - self._started, 2),
            cpu_seconds=round(self._cpu, 2),
            cost=self._cost,
            **more,
        )
        self._folder.keep_run(self._run)
        return self._run

    def _stages(self) -> tuple[str, int]:
        """Why it ended before its end, and the exit code of that."""
        for stage in self._folder.pipeline.stages:
            found, record = self._stage(stage)
            self._made[stage.name] = record
            self._found[stage.name] = (found, record.key if record else "")
            if record is not None and found != "cached":
                self._cost, self._cpu = self._cost + (record.cost or 0.0), self._cpu + record.cpu_seconds
            self._watcher.ended(stage.name, found, record)
            if record is not None and found in ("refused", "failed", "stopped"):
                return f"{stage.name}: {record.reason}", 2 if record.exit_code == 2 else 1
        return "", 0

    def _stage(self, stage: PipelineStage) -> tuple[Found, StageRecord | None]:
        plan, only = self._folder.plan_of(stage, self._made, self._options), self._options.only
        if plan.is_cached:
            return "cached", plan.record
        if only and stage.name != only:
            if self._names.index(stage.name) < self._names.index(only):
                raise InputError(
                    f"--only {only} needs what the stage {stage.name} makes, which is not there ({plan.why}): run that first"
                )
            return "left out", None
        if plan.key is None:
            raise InputError(f"the stage {stage.name} {plan.why}, which was left out")
        self._found[stage.name] = ("running", plan.key)
        self._note()
        self._watcher.began(plan)
        return self._decided(plan) if stage.is_gate else self._commanded(plan)

    def _decided(self, plan: StagePlan) -> tuple[Found, StageRecord]:
        """The gate's word, as the stages before it were told it."""
        reasons = []
        for name in plan.stage.needs(self._names):
            record = self._made[name]
            said = verdict_of(record.result if record else {})
            if "passed" not in said:
                raise InputError(f'the stage {name} says nothing that a gate decides by: there is no "passed" in its result')
            reason = str(said.get("reason") or "it does not say why")
            if not said["passed"]:
                return "refused", self._folder.keep(plan, state="refused", reason=f"{name} did not pass: {reason}")
            reasons.append(reason)
        reason = "; ".join(reasons)
        return "done", self._folder.keep(plan, state="done", reason=reason, result={"passed": True, "reason": reason})

    def _commanded(self, plan: StagePlan) -> tuple[Found, StageRecord]:
        keep, left = self._folder.keep, self._left()
        if spent := next((name for name, value in asdict(left).items() if value is not None and value <= 0), None):
            reason = f"the budget of {spent.replace('_', ' ')} is spent; raise it below [pipeline.budget], and run it again"
            return "stopped", keep(plan, state="stopped", reason=reason)
        if reason := _too_dear(plan, left):
            return "stopped", keep(plan, state="stopped", reason=reason)
        before = self._broken_off(plan)
        run_id = self._folder.find_run(" ".join(plan.stage.command), before.began) if before else None
        command = (*plan.stage.command, "--resume", run_id) if run_id else plan.command
        if plan.stage.bounded and left.cost is not None:
            command = (*command, "--max-cost", f"{left.cost:g}")
        place = self._folder.place(plan)
        program = [*(_profiler(place) if self._options.profiled else ()), *PROGRAM]
        process = StageProcess(command, place, settings=plan.stage.settings, program=program)
        began = before.began if before and run_id else process.began
        keep(plan, state="running", began=began)

        def over(seconds: float) -> str:
            self._watcher.running(plan, seconds)
            return _over(left, seconds, process)

        code, reason = process.wait(over)
        told: dict[str, Any] = {"began": began, "exit_code": code, **process.spent(before if run_id else None)}
        if reason:
            return "stopped", keep(plan, state="stopped", reason=reason, **told)
        if code not in plan.stage.accepts:
            return "failed", keep(plan, state="failed", reason=process.last_line() or f"it ended with {code}", **told)
        result = process.result()
        outputs = {str(path): sha256(path) for path in files_of(result, self._folder.place(plan))}
        return "done", keep(plan, state="done", result=result, outputs=outputs, cost=cost_of(result), **told)

    def _broken_off(self, plan: StagePlan) -> StageRecord | None:
        """What is there of a stage that was begun and can be gone on with."""
        record = plan.record
        if record is None or record.state not in ("running", "stopped") or not plan.stage.resumes:
            return None
        return record if self._options.resume else None

    def _left(self) -> Budget:
        budget = self._folder.pipeline.budget
        used = Budget(cost=self._cost, cpu_seconds=self._cpu, wall_seconds=time.monotonic() - self._started)
        return Budget(**{name: None if bound is None else bound - asdict(used)[name] for name, bound in asdict(budget).items()})


PROGRAM = (sys.executable, "-m", "journeyman")
"""What a command is of."""


class StageProcess:
    """A command at work, in a session of its own, which ends with this process."""

    def __init__(
        self,
        command: Sequence[str],
        place: Path,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        program: Sequence[str] = PROGRAM,
        folder: Path | None = None,
    ) -> None:
        """
        Args:
            place: What it says goes into files of this name, `.log` and `.out`.
            settings: Of the environment, beside what is there.
            folder: Where it runs; here, unless it is said.
        """
        place.mkdir(parents=True, exist_ok=True)
        self._log, self._out = place.with_suffix(".log"), place.with_suffix(".out")
        self._started = time.monotonic()
        self.began = wiring.now().isoformat()
        with self._log.open("ab") as log, self._out.open("wb") as out:
            self._process = subprocess.Popen(
                [*program, *command, "--json"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env={**os.environ, **settings},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._usage: Any = None

    def wait(self, over: Callable[[float], str], *, spare: Callable[[], bool] = lambda: True) -> tuple[int, str]:
        """Its exit code, and why it was stopped, where it was.

        Args:
            over: Asked again and again, with the seconds since it began: why it is to stop, or nothing.
            spare: Asked while it ends: whether there is anything left for that. Without it, it is killed.
        """
        reason = ""
        try:
            while (code := self._ended()) is None:
                if reason := over(time.monotonic() - self._started):
                    return self._stop(spare), reason
                time.sleep(_POLL)
        except BaseException:
            self._stop(spare)
            raise
        return code, reason

    @property
    def cpu_seconds(self) -> float:
        """What it and all that it started have used so far; 0 where the system does not say."""
        if self._usage is not None:
            return float(self._usage.ru_utime + self._usage.ru_stime)
        return session_cpu_seconds(self._process.pid) or 0.0

    def _ended(self) -> int | None:
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return None
        self._usage = usage
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode

    def _stop(self, spare: Callable[[], bool]) -> int:
        """Interrupted as a person would; killed if that does not end it."""
        for sent, more in ((signal.SIGINT, spare), (signal.SIGKILL, lambda: True)):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sent)
            until = time.monotonic() + _GRACE
            while time.monotonic() < until and more():
                if (code := self._ended()) is not None:
                    return code
                time.sleep(_POLL)
        return -signal.SIGKILL

    def spent(self, before: StageRecord | None) -> dict[str, Any]:
        """What it took, with what it had taken before it was broken off."""
        usage = self._usage
        return {
            "seconds": round(time.monotonic() - self._started + (before.seconds if before else 0.0), 2),
            "cpu_seconds": round(self.cpu_seconds + (before.cpu_seconds if before else 0.0), 2),
            "peak_memory": usage.ru_maxrss * 1024 if usage and sys.platform == "linux" else None,
        }

    def result(self) -> dict[str, Any]:
        lines = self._out.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        with suppress(ValueError):
            told = json.loads(lines[-1]) if lines else {}
            return told if isinstance(told, dict) else {}
        return {}

    def last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1].removeprefix("journeyman: ") if lines else ""


def _too_dear(plan: StagePlan, left: Budget) -> str:
    """Why a stage is not begun that nothing would stop once the money is spent; empty where it may be, or nobody knows."""
    told = plan.expected("cost")
    if plan.stage.bounded or left.cost is None or told is None or told[1] <= _LEEWAY * left.cost:
        return ""
    return (
        f"it cost ${told[1]:.4f} before, and ${left.cost:.4f} of the budget is left; raise it below [pipeline.budget], and run "
        "it again"
    )


def _over(left: Budget, seconds: float, process: StageProcess) -> str:
    """Which budget a stage at work has used up, in a sentence."""
    mend = "raise it below [pipeline.budget], and run it again: it goes on"
    if left.wall_seconds is not None and seconds > left.wall_seconds:
        return f"the budget of time was spent after {seconds:.0f} s of it; {mend}"
    if left.cpu_seconds is not None and (cpu := process.cpu_seconds) > left.cpu_seconds:
        return f"the budget of CPU was spent after {cpu:.0f} s of it; {mend}"
    return ""


def _profiler(place: Path) -> list[str]:
    """What a command is run under to be profiled, with all processes that it starts.

    Raises:
        MissingExtra: It is not installed.
    """
    beside = Path(sys.executable).with_name("py-spy")
    if (program := str(beside) if beside.is_file() else shutil.which("py-spy")) is None:
        raise MissingExtra("py-spy is missing, which draws where the time goes: pip install 'journeyman[profile]'")
    flames = str(place.with_suffix(".svg"))
    return [program, "record", "--subprocesses", "--nonblocking", "--format", "flamegraph", "--output", flames, "--"]
