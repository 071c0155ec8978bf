"""What a gate measures and tolerates: its defaults, and a project's own in a TOML file. README.md has its keys.

The key of a [[benchmark]] table says its kind:

    workload          a step, or a part of a start-up          Benchmark
    asv, pytest       benchmarks that exist already            Selection, which means a `BorrowedBenchmark` or several
    script            what torchrun could start                ScriptBenchmark: counted, and not timed
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from dpbench.cases.case import Case
from dpbench.cases.names import Dtype, Mode, format_devices, short_devices
from dpbench.cases.project_file import PROJECT_FILE, find_project_table, read_project_table
from dpbench.cases.spec import Lanes, Whole, Workload
from dpbench.cases.variants import VariantId, VariantName
from dpbench.engine.messages import Timed
from dpbench.errors import GateInputError, WrongInputError
from dpbench.gate.judgement import Accepted
from dpbench.jobs.count import LIMIT_S
from dpbench.records.script_record import LEAST_STEPS, MOST_RANKS, MOST_STEPS, USUAL_STEPS
from dpbench.text.outside import one_line, read_toml
from dpbench.text.quantities import MOST, parse_duration
from dpbench.text.validated import Frozen, explain, nearest, one_of

Model = TypeVar("Model", bound=BaseModel)

SETTINGS = Path("benchmarks/gate.toml")
"""In the working tree, if the request names none. Without it, pyproject.toml may have settings."""
DEFAULT_BUILD = "pip install --no-deps --target {folder} ."
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%", re.ASCII)
_SHARE = 'a share such as 0.03, or text such as "3%"; above 0, at most 10 (1000 %)'
_RATE = 'a share such as 0.005, or text such as "0.5%"; above 0, at most 0.2 (20 %)'
_TOLERANCE = 'a share such as 0.01, or text such as "1%"; 0 for none, at most 0.5'
_COUNTED = "text such as cpu*4 or sim*4"
USUAL_BATCH = 16
_BUDGET = f"text such as 90s or 5m, {MOST}"


class SettingsError(GateInputError):
    pass


class Cores(StrEnum):
    """One for all lanes of a step, with the least spread of times, or all."""

    ONE = "one"
    ALL = "all"


def parse_share(value: object) -> float:
    """Return a share from ``3%`` or 0.03, above 0 and at most 10. Raise ValueError for anything else."""
    share: object = value
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value.strip())
        share = float(match[1]) / 100 if match else None
    # compared before the conversion: an integer of TOML may exceed the largest float
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 10:
        raise ValueError(f"{value!r} is no share")
    return float(share)


def _tolerance(value: object) -> float:
    return 0.0 if value in (0, "0", "0%") and value is not False else parse_share(value)


def _expiry(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise ValueError(f"{value!r} is no date")


Share = Annotated[float, BeforeValidator(parse_share)]
Tolerance = Annotated[float, BeforeValidator(_tolerance), Field(le=0.5)]


class Benchmark(Frozen):
    """A step, or a part of a start-up, whose times are compared.

    `batch` is global. `devices` is None for the machine's own lanes. `threshold` is the tolerated growth of the time,
    as a share.
    """

    name: str = Field(pattern="^[a-z0-9_]+$", description="text of a to z, 0 to 9 and _")
    workload: Workload = Field(description="family/size or package.module:factory")
    batch: Annotated[Whole, Field(ge=1, lt=2**31)] = Field(description="a whole number from 1 to 2**31 - 1")
    devices: Lanes | None = Field(None, description="a text such as cpu*4, cuda:0*2, cuda:0+cuda:1")
    mode: Mode = Field(Mode.TRAIN, description=f"one of {one_of(Mode)}", examples=list(Mode))
    dtype: Dtype = Field(Dtype.FLOAT32, description=f"one of {one_of(Dtype)}", examples=list(Dtype))
    variant: VariantId = Field(
        VariantId(VariantName.TUNED), description=f"one of {one_of(VariantName)}", examples=list(VariantName)
    )
    cores: Cores = Field(Cores.ONE, description=f"one of {one_of(Cores)}", examples=list(Cores))
    timed: Timed = Field(Timed.STEP, description=f"one of {one_of(Timed)}", examples=list(Timed))
    threshold: Share = Field(description=_SHARE)

    def series(self, cores: int, default_lanes: tuple[str, ...]) -> str:
        """What the history compares this benchmark by: the case's id, and what is timed if it is no step."""
        case = self.case(cores, default_lanes).id
        return case if self.timed is Timed.STEP else f"{case} {self.timed}"

    def case(self, cores: int, default_lanes: tuple[str, ...]) -> Case:
        """The case to measure on a machine with `cores` usable cores."""
        return Case(
            variant=self.variant,
            workload=self.workload,
            batch=self.batch,
            devices=default_lanes if self.devices is None else self.devices,
            mode=self.mode,
            dtype=self.dtype,
            threads=1 if self.cores is Cores.ONE else cores,
        )


class Selection(Frozen):
    """Benchmarks of asv or pytest that exist already: a [[benchmark]] table with one of these keys.

    Without `pattern` the text is one name, with all its parameters unless it has some. With it, `asv` is a regular
    expression and `pytest` a file, folder or node id.
    """

    asv: str | None = Field(None, min_length=1, description="text: a name as asv writes it")
    pytest: str | None = Field(None, min_length=1, description="text: a node id of pytest")
    pattern: bool = Field(False, description="true or false")
    cores: Cores = Field(Cores.ONE, description=f"one of {one_of(Cores)}", examples=list(Cores))
    threshold: Share = Field(0.02, description=_SHARE)

    @property
    def wanted(self) -> tuple[str, str]:
        return ("asv", self.asv) if self.asv is not None else ("pytest", str(self.pytest))


def _script(value: object) -> str:
    if not isinstance(value, str) or not value.endswith(".py") or value.startswith("/") or ".." in Path(value).parts:
        raise ValueError(f"{value!r} is no script of the repository")
    return value


class ScriptBenchmark(Frozen):
    """Its path is relative to the commit's folder."""

    script: Annotated[str, BeforeValidator(_script)] = Field(
        description="text: the path of a file in the repository that ends with .py"
    )
    args: tuple[str, ...] = Field((), description="a list of texts")
    ranks: Annotated[Whole, Field(ge=2, le=MOST_RANKS)] = Field(2, description=f"a whole number from 2 to {MOST_RANKS}")
    steps: Annotated[Whole, Field(ge=LEAST_STEPS, le=MOST_STEPS)] = Field(
        USUAL_STEPS, description=f"a whole number from {LEAST_STEPS} to {MOST_STEPS}"
    )

    @property
    def name(self) -> str:
        """A name such as ``train.py --tiny``."""
        return " ".join([self.script, *self.args])


def _counted_lanes(lanes: tuple[str, ...]) -> tuple[str, ...]:
    if not all(device.startswith(("cpu", "sim:")) for device in lanes):
        raise ValueError(f"{format_devices(lanes)!r} cannot be counted")
    return lanes


CountedLanes = Annotated[Lanes, AfterValidator(_counted_lanes)]


class CountedStep(Frozen):
    """A table [[counted]]: a step that tier 0 counts and no tier times.

    - `more_steps` are taken on CPU lanes for what they keep, and what few of them do.
    - `auto` is what the default dispatch chooses before the count.
    - Without `numbers`, simulated devices compute shapes alone. With `routes`, the order of their copies counts.
    - A `doubled_` key names a second step with twice the parameters or lanes: the growth between both is compared.
    """

    workload: Workload = Field(description="family/size or package.module:factory")
    devices: CountedLanes = Field(description=_COUNTED)
    batch: Annotated[Whole, Field(ge=1, lt=2**31)] = Field(
        USUAL_BATCH, description="a whole number from 1 to 2**31 - 1"
    )
    mode: Mode = Field(Mode.TRAIN, description=f"one of {one_of(Mode)}", examples=list(Mode))
    variant: VariantId = Field(
        VariantId(VariantName.TUNED), description=f"one of {one_of(VariantName)}", examples=list(VariantName)
    )
    more_steps: Annotated[Whole, Field(ge=0, le=1000)] = Field(0, description="a whole number from 0 to 1000")
    auto: Literal["sequence", "threads"] = Field("sequence", description="sequence or threads")
    numbers: bool = Field(True, description="true or false")
    routes: bool = Field(False, description="true or false")
    doubled_workload: Workload | None = Field(None, description="family/size or package.module:factory")
    doubled_devices: CountedLanes | None = Field(None, description=_COUNTED)

    def case(self) -> Case:
        step = {"workload": self.workload, "devices": self.devices, "batch": self.batch, "mode": self.mode}
        return Case(variant=self.variant, threads=1, **step)

    def doubled(self) -> "CountedStep | None":
        if self.doubled_workload is None and self.doubled_devices is None:
            return None
        large = {"workload": self.doubled_workload or self.workload, "devices": self.doubled_devices or self.devices}
        return self.model_copy(update={**large, "doubled_workload": None, "doubled_devices": None})


class Uses(Frozen):
    """A table [[uses]]: a file of functions that are counted; measure/counted/uses.py says which.

    The file is of the checkout that has the settings: one instrument for base and head, which head cannot change.
    """

    file: Annotated[str, BeforeValidator(_script)] = Field(
        description="text: the path of a file in the repository that ends with .py"
    )
    devices: CountedLanes = Field(("cpu", "cpu"), description=_COUNTED)

    def case(self, root: Path) -> Case:
        workload, variant = f"uses {root / self.file}", VariantId(VariantName.SINGLE)
        return Case(variant=variant, workload=workload, batch=1, devices=self.devices, threads=1)

    @property
    def name(self) -> str:
        return f"{self.file} {short_devices(self.devices)}"


class BorrowedBenchmark(Benchmark):
    """By its name in the suite. `limit_s` is for a process that counts it or takes a round."""

    name: str
    workload: str
    batch: int = 1
    devices: tuple[str, ...] = ("cpu",)
    mode: Mode = Mode.INFER
    variant: VariantId = VariantId(VariantName.SINGLE)
    is_value: bool = False
    limit_s: float = LIMIT_S


def is_value(benchmark: Benchmark) -> bool:
    return isinstance(benchmark, BorrowedBenchmark) and benchmark.is_value


def limit_s(benchmark: Benchmark) -> float:
    return benchmark.limit_s if isinstance(benchmark, BorrowedBenchmark) else LIMIT_S


def _default(name: str, workload: str, batch: int, threshold: str = "1.5%", **fields: Any) -> Benchmark:
    # Dispatch is fixed: where two ways are about equally fast, the wrapper's own trial chooses by chance, so two
    # processes of a commit differ. Under `auto` all sides choose what base chose (measure/pinned.py).
    usual: dict[str, Any] = {"devices": "cpu*4", "variant": "tuned[dispatch=sequence]"}
    return Benchmark(name=name, workload=workload, batch=batch, threshold=threshold, **{**usual, **fields})


def _start_up(timed: Timed, threshold: str) -> Benchmark:
    return _default(timed, "many/base", 16, threshold, timed=timed, variant="tuned")  # 1,026 tensors


_THREADS = {"variant": "tuned[dispatch=threads]"}
DEFAULT_BENCHMARKS = (
    _default("launch_bound", "mlp/tiny", 64),  # not mlp/small: its tensors are whole pages and alias, 15 % by layout
    _default("many_parameters", "many/small", 16),  # 258 tensors; 1,026 would take half of a round
    _default("inference", "transformer/tiny", 16, mode=Mode.INFER),
    _default("default_dispatch", "mlp/tiny", 64, "3%", variant="tuned"),
    _default("threads", "mlp/tiny", 64, "5%", **_THREADS),
    _default("all_cores", "mlp/small", 256, "10%", devices="cpu*2", cores=Cores.ALL, **_THREADS),
    _start_up(Timed.IMPORT, "15%"),
    _start_up(Timed.CONSTRUCTION, "30%"),
    _start_up(Timed.FIRST_FORWARD, "15%"),
)


def default_benchmarks(lanes: tuple[str, ...]) -> tuple[Benchmark, ...]:
    """Steps are on `lanes` if those are an accelerator's, else on CPU lanes."""
    if "cpu" in lanes:
        return DEFAULT_BENCHMARKS
    return tuple(
        benchmark.model_copy(update={"devices": lanes}) if benchmark.timed is Timed.STEP else benchmark
        for benchmark in DEFAULT_BENCHMARKS
    )


class Tolerances(Frozen):
    """The table [counts] of a settings file. `tolerated` of 0 takes every call more as worse, whatever `calls` is."""

    tolerated: Tolerance = Field(0.01, description=_TOLERANCE)
    calls: Annotated[Whole, Field(ge=0)] = Field(20, description="a whole number from 0")
    memory: Tolerance = Field(0.01, description=_TOLERANCE)


class Settings(Frozen):
    """`alarm_rate` is how often a whole gate may call equal code slower, as a share.

    `build` is the command that installs a commit into ``{folder}`` for the benchmarks in `borrowed`; none if it is
    empty. `scripts`, `counted` and `uses` are not timed. The files of `uses` are those below `top`.
    """

    benchmarks: tuple[Benchmark, ...] = DEFAULT_BENCHMARKS
    borrowed: tuple[Selection, ...] = ()
    scripts: tuple[ScriptBenchmark, ...] = ()
    counted: tuple[CountedStep, ...] = ()
    uses: tuple[Uses, ...] = ()
    top: Path = Path()
    build: str = DEFAULT_BUILD
    accepted: tuple[Accepted, ...] = ()
    alarm_rate: float = 0.005
    counts: Tolerances = Tolerances()
    budget_s: float = 300.0


class _Keys(Frozen):
    benchmark: tuple[dict[str, Any], ...] = Field((), description="tables that begin with [[benchmark]]")
    thresholds: dict[str, Any] = Field({}, description='a table with entries such as inference = "5%"')
    accepted: tuple[dict[str, Any], ...] = Field((), description="tables that begin with [[accepted]]")
    budget: Annotated[float, BeforeValidator(parse_duration)] = Field(300.0, description=_BUDGET)
    counts: dict[str, Any] = Field({}, description='a table with entries such as tolerated = "1%"')
    alarm_rate: Annotated[Share, Field(le=0.2)] = Field(0.005, description=_RATE)
    counted: tuple[dict[str, Any], ...] = Field((), description="tables that begin with [[counted]]")
    uses: tuple[dict[str, Any], ...] = Field((), description="tables that begin with [[uses]]")
    build: str = Field(DEFAULT_BUILD, description="text: a shell command; empty for none")


class _Entry(Frozen):
    benchmark: str = Field(min_length=1, description="the name of a benchmark, or a pattern such as my_step*")
    revision: str = Field(pattern="^[0-9a-f]{7,64}$", description="text: a commit's hash, 7 digits of it or more")
    reason: str = Field(pattern=r"\S", description="text that is not empty")
    expires: Annotated[date, BeforeValidator(_expiry)] = Field(description="a date such as 2027-01-31")


def read_settings(
    root: Path, path: Path | None, lanes: tuple[str, ...], borrowed: tuple[Selection, ...] = ()
) -> Settings:
    """The settings of `path`, else those of the working tree, else the defaults. Raise SettingsError.

    If there are `borrowed` benchmarks, they replace those of the settings.
    """
    defaults, file = default_benchmarks(lanes), path or settings_file(root)
    settings = Settings(benchmarks=defaults) if file is None else load_settings(file, defaults)
    top = _checkout_of(file) or root
    missing = [uses.file for uses in settings.uses if not (top / uses.file).is_file()]
    if missing:
        raise SettingsError(f"uses: file: {missing[0]!r}: {str(top)!r} has no such file; allowed: one that it has")
    replaced = {"benchmarks": (), "scripts": (), "counted": (), "uses": (), "borrowed": borrowed} if borrowed else {}
    return settings.model_copy(update={"top": top, **replaced})


def _checkout_of(file: Path | None) -> Path | None:
    """The top of the checkout with the file. In CI it is a trusted one, and the working tree is head's."""
    return next((top for top in file.resolve().parents if (top / ".git").exists()), None) if file else None


def settings_file(root: Path) -> Path | None:
    """gate.toml of the working tree, or the pyproject.toml that has settings, or None."""
    if (root / SETTINGS).exists():
        return root / SETTINGS
    project = find_project_table(Path.cwd())
    return project[0] if project and project[1].gate is not None else None


_KINDS: dict[str, type[BaseModel]] = {
    "asv": Selection,
    "pytest": Selection,
    "workload": Benchmark,
    "script": ScriptBenchmark,
}


def load_settings(path: Path, defaults: tuple[Benchmark, ...] = DEFAULT_BENCHMARKS) -> Settings:
    """If the file has no benchmarks, `defaults` are measured. Raise SettingsError."""
    place = f"{path}: tool.dpbench.gate" if path.name == PROJECT_FILE else path
    fields = _fields(path)
    try:
        return _settings(fields, defaults)
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from error


def _fields(path: Path) -> dict[str, Any]:
    try:
        if path.name != PROJECT_FILE:
            return read_toml(path)
        table = read_project_table(path)
    except WrongInputError as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; allowed: a TOML file") from error
    except ValueError as error:
        raise SettingsError(f"{path}: is not TOML: {one_line(str(error))}") from error
    if table is None or table.gate is None:
        raise SettingsError(f"{path}: has no [tool.dpbench.gate]; allowed: a file with this table")
    return table.gate


def _settings(fields: dict[str, Any], defaults: tuple[Benchmark, ...]) -> Settings:
    keys = _checked(_Keys, fields)
    tables = [_benchmark(number, table) for number, table in enumerate(keys.benchmark, start=1)]
    borrowed = tuple(table for table in tables if isinstance(table, Selection))
    scripts = {table.name: table for table in tables if isinstance(table, ScriptBenchmark)}
    own_benchmarks = [table for table in tables if isinstance(table, Benchmark)]
    return Settings(
        benchmarks=_with_thresholds(_by_name(own_benchmarks, () if borrowed or scripts else defaults), keys.thresholds),
        borrowed=borrowed,
        scripts=tuple(scripts.values()),
        counted=_all(CountedStep, keys.counted, "counted"),
        uses=_all(Uses, keys.uses, "uses"),
        build=keys.build,
        accepted=tuple(Accepted(**entry.model_dump()) for entry in _all(_Entry, keys.accepted, "accepted")),
        alarm_rate=keys.alarm_rate,
        budget_s=keys.budget,
        counts=_checked(Tolerances, keys.counts, "counts: "),
    )


def _all(model: type[Model], tables: Sequence[dict[str, Any]], key: str) -> tuple[Model, ...]:
    return tuple(_checked(model, table, f"{key} {number}: ") for number, table in enumerate(tables, start=1))


def _checked(model: type[Model], fields: dict[str, Any], place: str = "") -> Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "missing":
            key = str(first["loc"][0])
            reason = f"{place}{key}: is missing; allowed: {model.model_fields[key].description}"
        else:
            reason = f"{place}{': '.join(explain(model, error))}"
        raise SettingsError(reason) from error


def _benchmark(number: int, table: dict[str, Any]) -> BaseModel:
    """One key says which kind of table it is. Raise SettingsError."""
    place = f"benchmark {table.get('name', number)!r}: "
    kinds = [key for key in _KINDS if key in table] or ["workload"]
    if len(kinds) > 1:
        raise SettingsError(
            f"{place}{kinds[0]}: {table[kinds[0]]!r} is beside {kinds[1]}; allowed: one of {one_of(_KINDS)}"
        )
    return _checked(_KINDS[kinds[0]], table, place)


def _by_name(benchmarks: Sequence[Benchmark], defaults: Sequence[Benchmark]) -> dict[str, Benchmark]:
    by_name: dict[str, Benchmark] = {}
    for benchmark in benchmarks:
        if benchmark.name in by_name:
            raise SettingsError(f"benchmark: name: {benchmark.name!r} is there twice; allowed: each name once")
        by_name[benchmark.name] = benchmark
    return by_name or {default.name: default for default in defaults}


def _with_thresholds(benchmarks: dict[str, Benchmark], thresholds: dict[str, Any]) -> tuple[Benchmark, ...]:
    for name, value in thresholds.items():
        if name not in benchmarks:
            allowed = f"{nearest(name, benchmarks)}; allowed: {one_of(benchmarks)}"
            raise SettingsError(f"thresholds: {name!r} is no benchmark{allowed}")
        try:
            update = {"threshold": parse_share(value)}
        except ValueError as error:
            raise SettingsError(f"thresholds: {name}: {error}; allowed: {_SHARE}") from error
        benchmarks[name] = benchmarks[name].model_copy(update=update)
    return tuple(benchmarks.values())
