"""Wrong files as a table: the command that reads the file, its content, and what the one line says."""

from collections.abc import Iterator
from re import escape

from dpbench.records.row import SCHEMA
from tests.hostile.attack import Row
from tests.hostile.files import counts_file, gate_files, record_line, self_test

NOT_TEXT = {"not UTF-8": b"\xff\xfe\x00", "NUL": b"\0" * 20, "empty": b""}
DEEP = b"[" * 100_000
_VARIANTS = (
    "single, torch_dp, naive, floor, tuned, ddp, fsdp, package.module:callable, or one with parameters in brackets, "
    "such as tuned[dispatch=threads,coalesce=false]"
)
_LIST = f"allowed: a list of {_VARIANTS}"
_STEPS = "a whole number from 1 to 100000"
_WHOLE_BATCH = "a list of whole numbers from 1 to 2**31 - 1"
_HUGE = "1" + "0" * 17 + "..." + "0" * 19
_DURATION = "seconds as a number, or text such as 90s, 2m, 1.5h; above 0, at most 168h"
_KEYS = (
    "variants, workloads, batch, devices, modes, dtypes, data, rounds, "
    "budget, case_time, timeout, threads, seed, steps_per_sample, reference"
)
_SWEEPS = (
    ('varients = ["tuned"]', f"varients: unknown key, did you mean 'variants'?; allowed: {_KEYS}"),
    ('variants = ["tunned"]', f"variants: 'tunned' is no variant, did you mean 'tuned'?; {_LIST}"),
    ('variants = "tuned"', f"variants: 'tuned' is not allowed; {_LIST}"),
    ("variants = []", f"variants: [] is not allowed; {_LIST}"),
    ('variants = ["ddp", "ddp"]', "variants: ddp is there twice; allowed: each entry once"),
    ("batch = [0]", f"batch: 0 is not allowed; allowed: {_WHOLE_BATCH}"),
    ('batch = ["64"]', f"batch: '64' is not allowed; allowed: {_WHOLE_BATCH}"),
    ("batch = [64, 64]", "batch: 64 is there twice; allowed: each entry once"),
    ("batch = 64", f"batch: 64 is not allowed; allowed: {_WHOLE_BATCH}"),
    ('devices = ["cpu*2", "cpu+cpu"]', "devices: cpu*2 is there twice; allowed: each entry once"),
    ("devices = [2]", "devices: 2 is no device list; allowed: text such as cpu*4 or cuda:0+cuda:1"),
    ("rounds = 0", "rounds: 0 is not allowed; allowed: a whole number from 1 to 1000"),
    ("rounds = 1001", "rounds: 1001 is not allowed; allowed: a whole number from 1 to 1000"),
    ("rounds = 5.0", "rounds: 5.0 is not allowed; allowed: a whole number from 1 to 1000"),
    ("threads = 0", "threads: 0 is not allowed; allowed: a whole number from 1"),
    ("seed = -1", "seed: -1 is not allowed; allowed: a whole number from 0 to 2**63 - 1"),
    ("steps_per_sample = 100_001", f"steps_per_sample: 100001 is not allowed; allowed: {_STEPS}"),
    ('budget = "2d"', f"budget: '2d' is no duration above 0 and at most 168h; allowed: {_DURATION}"),
    ("case_time = inf", f"case_time: inf is no duration above 0 and at most 168h; allowed: {_DURATION}"),
    ("timeout = 0", f"timeout: 0 is no duration above 0 and at most 168h; allowed: {_DURATION}"),
    ("budget = 1" + "0" * 400, f"budget: {_HUGE} is no duration above 0 and at most 168h; allowed: {_DURATION}"),
    ('data = "digit"', "data: 'digit' is not allowed, did you mean 'digits'?; allowed: one of random, digits"),
    ('modes = ["tran"]', "modes: 'tran' is not allowed, did you mean 'train'?; allowed: a list of train, infer"),
    ('reference = "best"', f"reference: 'best' is no variant; allowed: one of {_VARIANTS}"),
    (
        'variants = ["tuned"]\nreference = "naive"',
        "reference: 'naive' is not among the variants; allowed: tuned",
    ),
)
_MORE_SWEEPS = (
    ("budget = nan", "budget: nan is no duration"),
    ("budget = true", "budget: True is no duration"),
    ("budget = [1]", "budget: [1] is no duration"),
    ("budget = -1", "budget: -1 is no duration"),
    ("budget = 604801", "budget: 604801 is no duration"),
    ("budget = 1979-05-27", "budget: "),
    (f"rounds = {'9' * 400}", "rounds: 9999"),
    ('rounds = "1\\n2"', "rounds: '1\\n2'"),
    ("rounds = true", "rounds: True"),
    ("devices = ['cpu*٤']", "devices: 'cpu*٤'"),
    ('variants = ["\\u001b[31m"]', "variants: "),
    ('workloads = ["\\u001b[31m/x"]', "workloads: "),
    ('"\\u001b[31m" = 1', ""),
    ('"a\\nb" = 1', ""),
    ("[variants]\na = 1", "variants: "),
    ("variants = [", "is not TOML"),
)
_PROJECTS = (
    ("[tool", "is not TOML: "),
    ("tool = 3", "tool: 3 is not allowed; allowed: a table"),
    ("tool.dpbench = []", "dpbench: [] is not allowed; allowed: a table"),
    ("tool.dpbench.reslts = 1", "tool.dpbench.reslts: unknown key, did you mean 'results'?; allowed: results, "),
    ('tool.dpbench.results = "\\u0000"', "tool.dpbench.results: '\\x00' is not allowed"),
    ("tool.dpbench.compare = 1", "tool.dpbench.compare: 1 is not allowed; allowed: a table with options"),
    ("tool.dpbench.compare.bach = [1]", "tool.dpbench.compare.bach: unknown key, did you mean 'batch'?"),
    ("tool.dpbench.compare.batch = 64", "tool.dpbench.compare.batch: 64 is not allowed; allowed: a list of whole"),
    ("tool.dpbench.compare.variants = ['tunde']", "tool.dpbench.compare.variants: 'tunde' is no variant, did you"),
    ("tool.dpbench.compare.budget = 'soon'", "tool.dpbench.compare.budget: 'soon' is no duration"),
)
_GATES_PROJECTS = (
    ("", "has no [tool.dpbench.gate]; allowed: "),
    ("[tool.dpbench]", "has no [tool.dpbench.gate]; allowed: "),
    ("tool.dpbench.gate.alarm = 1", "tool.dpbench.gate: alarm: unknown key, did you mean 'alarm_rate'?"),
    ("tool.dpbench.gate.alarm_rate = 7", "tool.dpbench.gate: alarm_rate: 7 is not allowed; allowed: a share"),
)


_EITHER = "allowed: a value, or a reason and no value"
_NO_SCHEMA = f"has no schema number; allowed: {SCHEMA}"
_FIELDS = (
    *(
        (
            {"metrics.peak_device_bytes": {"cuda:0": reading}},
            f"is no record: metrics.peak_device_bytes.cuda:0{line}",
        )
        for reading, line in (
            ({}, f": {_EITHER}"),
            ({"value": 1, "reason": "none"}, f": {_EITHER}"),
            (3, ": Input should be a dictionary"),
            ({"value": "much"}, ".value: Input should be a valid number"),
            ({"value": 1e16}, ".value: Input should be less than or equal to"),
            ({"reason": "none", "span_s": "long"}, ".span_s: Input should be a valid number"),
            ({"value": 1, "more": 1}, ".more: Unexpected keyword argument"),
        )
    ),
    (
        {"schema": SCHEMA + 1, "more": 1},
        f"has schema {SCHEMA + 1}, newer than this dpbench knows; allowed: {SCHEMA}",
    ),
    *(({"schema": schema}, _NO_SCHEMA) for schema in (0, True, "1", 1.0, None)),
    ({"case.variant": "best"}, "is no record: case.variant: "),
    ({"case": 3}, "is no record: case: "),
    ({"extra": 1}, "is no record: extra: "),
    ({"samples_s": []}, "is no record: outcome ok needs samples_s"),
    ({"samples_s": [0.1, 0]}, "is no record: samples_s.1: "),
)
_NO_JSON = (b"{", b'{"schema": NaN}', b"__import__('os')")


def files() -> Iterator[Row]:
    """Return the rows on files of every kind."""
    yield from sweep_files()
    yield from project_files()
    yield from gate_settings()
    yield from records()
    yield from asv()
    yield from expected_counts()
    yield from self_tests()


def sweep_files() -> Iterator[Row]:
    """Return the rows on sweep files."""
    for name, content in {**NOT_TEXT, "deep": b"a = " + DEEP}.items():
        if name != "empty":  # that is a sweep of all defaults
            yield Row("sweep", name, ("sweep", "s.toml"), "s.toml: is not TOML", {"s.toml": content})
    # tomllib takes 8 GB for these 100 KB
    keys = {"s.toml": b"a." * 50_000 + b"a = 1"}
    yield Row("sweep", "deep keys", ("sweep", "s.toml"), "s.toml: ", keys)
    for text, line in (*_SWEEPS, *_MORE_SWEEPS):
        yield Row("sweep", text[:90], ("sweep", "s.toml"), f"s.toml: {escape(line)}", {"s.toml": text.encode()})


def project_files() -> Iterator[Row]:
    """Return the rows on pyproject.toml, which a comparison and a gate read."""
    for text, line in _PROJECTS:
        content, pattern = text.encode(), f"^dpbench: pyproject.toml: {escape(line)}"
        yield Row("project", f"compare {text}", ("compare",), pattern, {"pyproject.toml": content})
    words = ("gate", "--base=HEAD~1", "--tiers=0", "--settings=pyproject.toml")
    for text, line in (_PROJECTS[0], *_GATES_PROJECTS):
        content, pattern = text.encode(), f"^dpbench: pyproject.toml: {escape(line)}"
        yield Row("project", f"gate {text}", words, pattern, {**gate_files(), "pyproject.toml": content})


def gate_settings() -> Iterator[Row]:
    """Return the rows on the gate's settings."""
    words = ("gate", "--base=HEAD~1", "--tiers=0", "--settings=g.toml")
    for name, content in {**NOT_TEXT, "deep": b"a = " + DEEP}.items():
        if name != "empty":
            yield Row("gate", name, words, "g.toml: is not TOML", gate_files(content))
    for line, pattern in (
        ("alarm_rate = 0", "g.toml: alarm_rate"),
        ("alarm_rate = nan", "g.toml: alarm_rate"),
        (f"alarm_rate = {'9' * 400}", "g.toml: alarm_rate"),
        ('alarm_rate = "٤%"', "g.toml: alarm_rate"),
        ("benchmark = [1]", "g.toml: benchmark"),
        ("[[benchmark]]", "g.toml: benchmark 1"),
        ('[[benchmark]]\nname = "\\u001b[31m"', "g.toml: benchmark"),
        ('[thresholds]\n"\\u001b[31m" = 1', "g.toml: thresholds"),
        ('[[accepted]]\nbenchmark="x"\nrevision="--output=x"\nreason="r"\nexpires=2099-01-01', "revision"),
        ('[[accepted]]\nbenchmark="x"\nrevision="1234567"\nreason="r"\nexpires="٤"', "expires"),
        ('"\\u001b[31m" = 1', "g.toml: "),
    ):
        yield Row("gate", line[:50], words, pattern, gate_files(line.encode()))
    folder = {**gate_files(), "results/gate/history.jsonl/x": b""}
    yield Row("gate", "history is a folder", ("gate", "--base=HEAD~1", "--tiers=2"), "history.jsonl", folder)
    for line, pattern in (
        ('variant = "ddp"', "'tiny'.*'ddp'.*a process for each device"),
        ('variant = "torch_dp"', "'tiny'.*'torch_dp'.*accelerator"),
        ('devices = "sim*2"', "'tiny'.*simulated devices have no times"),
        ('devices = "cuda:9"', "'tiny'.*cuda:9.*not on this machine"),
        ('variant = "tuned"\nthreshold = "a lot"', "g.toml.*tiny.*threshold.*a lot.*3%"),
    ):
        usual = '[[benchmark]]\nname = "tiny"\nworkload = "mlp/tiny"\nbatch = 8\n'
        text = f"{usual}{line}" if "threshold" in line else f'{usual}{line}\nthreshold = "20%"'
        yield Row("gate", line, (*words[:2], words[3]), pattern, gate_files(text.encode()))
    for base in ("--output=x", "-h", "", "HEAD:a", "\x1b[31m", "HEAD~9", "HEAD\nHEAD", "^HEAD", "HEAD~1..HEAD", "@{0"):
        yield Row("gate", f"base {base!a}", ("gate", f"--base={base}", "--tiers=0"), r"--base: .*|HEAD", gate_files())
    yield Row("gate", "base with NUL", ("gate", "--base=a\0b", "--tiers=0"), "--base", gate_files())
    for name, content in {**NOT_TEXT, "deep": DEEP, "a list": b"[]\n", "schema 99": b'{"schema": 99}\n'}.items():
        if name != "empty":
            files = {**gate_files(), "results/gate/history.jsonl": content + b"\n"}
            yield Row("gate", f"history: {name}", ("gate", "--base=HEAD~1", "--tiers=2"), "history.jsonl", files)


def records() -> Iterator[Row]:
    """Return the rows on files of records."""
    words = ("export", "r.jsonl")
    for name, line in {**NOT_TEXT, "deep": DEEP}.items():
        yield Row("records", name, words, "r.jsonl: line 1 is not JSON", {"r.jsonl": line + b"\n"})
    for line in (b"null", b"{}", b"[]"):
        pattern = f"r.jsonl: line 1 {_NO_SCHEMA}"
        yield Row("records", f"{line!r}", words, pattern, {"r.jsonl": line + b"\n"})
    for name, change in (
        ("a date that is none", {"started_at": "yesterday"}),
        ("commit is an option", {"environment.commit": "--output=owned"}),
        ("commit is a range", {"environment.commit": "HEAD~1..HEAD"}),
        ("python with slashes", {"environment.python": "../../x"}),
        ("samples are text", {"samples_s": ["\x1b[31m"]}),
        ("unknown key with ESC", {"\x1b[31m": 1}),
        ("unknown outcome with ESC", {"outcome": "\x1b[31m"}),
        ("round is negative", {"round": -1}),
        ("month 13", {"started_at": "2025-13-01T00:00:00Z"}),
        ("commit with a line break", {"environment.commit": "0123456\n"}),
        ("commit is too long", {"environment.commit": "0" * 65}),
    ):
        yield Row("records", name, words, r"\S", {"r.jsonl": record_line(change)})
    for change, line in _FIELDS:
        content = record_line(change)
        yield Row("records", f"{change}"[:90], words, f"r.jsonl: line 1 {escape(line)}", {"r.jsonl": content})
    for content in _NO_JSON:
        yield Row("records", f"{content[:20]!r}", words, "r.jsonl: line 1 is not JSON", {"r.jsonl": content + b"\n"})


def asv() -> Iterator[Row]:
    """Return the rows on asv's machine file."""
    words = ("asv-machine", "--machine=m", "--machine-file=m.json")
    for name, content in (
        ("not UTF-8", b"\xff"),
        ("empty", b""),
        ("deep", DEEP),
        ("a list", b"[]"),
        ("version 99", b'{"version": 99}'),
        ("an entry that is a number", b'{"version": 1, "m": 1}'),
        ("a number of 5000 digits", b'{"version": ' + b"9" * 5000 + b"}"),
        ("key with ESC", b'{"version": 1, "\\u001b[31m": 1}'),
    ):
        yield Row("asv machine file", name, words, r"m\.json", {"m.json": content})


def expected_counts() -> Iterator[Row]:
    """Return the rows on files of expected counts."""
    words = ("counts", "--check", "--expected=e")
    file = "e/torch-2.13.0-py3.11.json"
    for name, content in {
        **NOT_TEXT,
        "deep": DEEP,
        "a list": b"[]",
        "another format": b'{"format": "another"}',
        "another schema": counts_file(schema=99),
        "a count that is text": counts_file(cases={"c": {"x": "\x1b[31m"}}),
        "unknown key with ESC": counts_file(**{"\x1b[31m": 1}),
    }.items():
        yield Row("expected counts", name, words, "holds no expected counts", {file: content})
    yield Row("expected counts", "no folder", ("counts", "--check", "--expected=/nope"), "/nope")
    yield Row("expected counts", "a device", ("counts", "--check", "--expected=/dev/null"), "/dev/null")


def self_tests() -> Iterator[Row]:
    """Return the rows on the result of a self-test."""
    gate = ("gate", "--base=HEAD~1", "--tiers=1")
    file = "results/gate/self-test-x.json"
    for name, content in {
        **NOT_TEXT,
        "deep": DEEP,
        "a list": b"[]",
        "another kind": self_test(kind="gate"),
        "negative counts": self_test(slower=-5),
        "huge counts": self_test(slower=10**30),
        "a date with ESC": self_test(began="\x1b[31m20250101"),
    }.items():
        yield Row("self-test", name, gate, r"self-test-x\.json", {**gate_files(), file: content})
