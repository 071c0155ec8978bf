"""The attack as a table: area, input, expected exit code, pattern of the expected text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.hostile.files import (
    asv_machine_file,
    counts_file,
    gate_files,
    record_line,
    self_test,
)

Files = Mapping[str, bytes]
NOT_TEXT = {"not UTF-8": b"\xff\xfe\x00", "NUL": b"\0" * 20, "empty": b""}
DEEP = b"[" * 100_000


@dataclass(frozen=True)
class Row:
    """One attack. `item` is the issue's item that mends it, if it is not mended yet: see `attack.PENDING`."""

    area: str
    name: str
    words: tuple[str, ...]
    code: int
    pattern: str
    files: Files = field(default_factory=dict)
    item: int | None = None

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"


def rows() -> Iterator[Row]:
    """Return the whole table."""
    yield from options()
    yield from sweep_files()
    yield from gate_settings()
    yield from records()
    yield from asv()
    yield from expected_counts()
    yield from self_tests()


def options() -> Iterator[Row]:
    """Return the rows on options of every command."""
    for option, value, pattern, item in (
        ("--budget", "999999999h", "--budget", 3),
        ("--budget", "9" * 400, "--budget", 3),
        ("--budget", "-1s", "--budget", None),
        ("--budget", "nan", "--budget: 'nan'", None),
        ("--budget", "inf", "--budget: 'inf'", None),
        ("--budget", "1e9", "--budget", None),
        ("--budget", "٤s", "--budget", None),
        ("--timeout", "600h", "--timeout", 3),
        ("--timeout", "0", "--timeout", None),
        ("--batch", "9" * 30, "--batch", None),
        ("--batch", "8" * 5000, "--batch", None),
        ("--batch", "64,64", "twice", None),
        ("--batch", "", "--batch", None),
        ("--rounds", "1e3", "--rounds", None),
        ("--rounds", "٤", "--rounds", None),
        ("--seed", "-1", "--seed", None),
        ("--threads", "9" * 19, "threads", None),
        ("--devices", "cpu*٤", "--devices: 'cpu\\*٤'", 10),
        ("--devices", "cpu*99999999999999999999", "--devices", None),
        ("--devices", "cpu*" + "9" * 5000, "--devices", None),
        ("--devices", "cuda:" + "9" * 5000, "devices", None),
        ("--devices", "cpu+" * 5000, "--devices", None),
        ("--variants", "tuned[" * 5000, "--variants", None),
        ("--variants", "tuned[bucket_bytes=99999999999GiB]", "--variants", None),
        ("--variants", "tuned[bucket_bytes=٤]", "--variants", None),
        ("--variants", "tuned[=]", "--variants", None),
        ("--workloads", "../../etc/passwd:x", "--workloads", None),
        ("--workloads", "a:b:c", "--workloads", None),
        ("--workloads", ":", "--workloads", None),
        ("--results", "\0", "results", 5),
        ("--results", "~nobody-of-this-name/x/\0", "results", 5),
        ("--results", "a" * 5000, "results", 5),
        ("--results", "/proc/self/nothing", "results", None),
        ("--dtypes", "\x1b[2J", "--dtypes", None),
        ("--data", "digits\x07", "--data", None),
    ):
        name = f"compare {option} {ascii(value)[:24]} {len(value)}"
        yield Row("options", name, ("compare", "--rounds=1", f"{option}={value}"), 2, pattern, item=item)
    for words, code, pattern, item in (
        (("sweep",), 2, "(?i)spec", None),
        (("sweep", ""), 2, "cannot be read", None),
        (("sweep", "/"), 2, "cannot be read", None),
        (("sweep", "/dev/zero"), 2, "/dev/zero", 8),
        (("sweep", "a\0b"), 2, r"\S", 5),
        (("sweep", "\x1b]0;title\x07"), 2, "cannot be read", 6),
        (("sweep", "a\udc80"), 2, "cannot be read", None),
        (("sweep", "~nobody-of-this-name/x.toml"), 2, "cannot be read", None),
        (("sweep", "--retry=all", "x.toml"), 2, "retry", None),
        (("list", "x"), 2, "x", None),
        (("list", "\x1b[31m"), 2, "31m", None),
        (("no\x1b[31m",), 2, "31m", None),
        (("counts", "--check", "--update"), 2, "--check", None),
        (("counts", "--check", "--batch=4"), 2, "--batch", None),
        (("counts", "--devices=sim*0"), 2, "--devices", None),
        (("counts", "--devices=sim*٤"), 2, "--devices", 10),
        (("counts", "--devices=cuda:0"), 2, "devices", None),
        (("counts", "--events=/no/such/folder/x"), 2, "events", None),
        (("counts", "--events=/dev"), 2, "events", None),
        (("counts", "--events=a\0b"), 2, "events", 5),
        (("counts", "--events=e", "--batch=4,8"), 2, "batch", None),
        (("counts", "--events=e/", "--variants=naive"), 2, "--events.*'e/' cannot be written", None),
        (("asv-machine", "--machine="), 2, "--machine", 9),
        (("asv-machine", "--machine=../x"), 2, "--machine", None),
        (("asv-machine", "--machine=.."), 2, "--machine", None),
        (("asv-machine", "--machine=a\0b"), 2, "--machine", 5),
        (("asv-machine", "--machine=a\x1b[31m"), 2, "--machine", 6),
        (("asv-machine", "--machine-file=/"), 2, "cannot be read", None),
        (("asv-machine", "--machine-file=m/"), 2, "--machine-file.*'m/' cannot be written", None),
        (("asv-machine", "--machine-file=/dev/zero"), 2, "/dev/zero", 8),
        (("asv-machine", "--machine-file=~nobody-of-this-name/x"), 2, "nobody-of-this-name", 5),
        (("asv-export", "/dev/zero"), 2, r"\S", 8),
        (("asv-export", "/none.jsonl"), 2, "asv-machine", None),
        (("doctor", "--quick=no"), 2, "quick", None),
        (("gate",), 3, "--base", None),
        (("gate", "--base=x", "--tiers=3"), 3, "--tiers", None),
        (("gate", "--base=x", "--tiers=0,0"), 3, "--tiers", None),
        (("gate", "--base=x", "--tiers="), 3, "--tiers", None),
        (("gate", "--base=x", "--budget=99999999h"), 3, "--budget", 3),
        (("gate", "--base=x", "--rounds=x"), 3, "rounds", None),
        (("gate", "--base=x", "--markdown=/no/such/x"), 3, "cannot be written", None),
        (("gate", "--base=x", "--markdown=/dev/null"), 3, "no device", None),
        (("gate", "--base=x", f"--markdown={'9' * 400}"), 3, "cannot be written", None),
        (("gate", "--base=x", f"--junit={'9' * 400}/x"), 3, "cannot be written", None),
        (("gate", "--base=x", "--markdown=a", "--junit=a"), 3, "--junit", None),
        (("gate", "--base=x", "--markdown=0/"), 3, "--markdown.*'0/' cannot be written", None),
        (("gate", "--base=x", "--junit=0/."), 3, "--junit.*'0/.' cannot be written", None),
        (("gate", "--base=x", "--junit=a\0b"), 3, r"\S", 5),
        (("gate", "--base=x", "--worktree", "--head=y"), 3, "--head", None),
        (("project",), 2, "WORKLOAD", None),
        (("project", "mlp/tiny"), 2, "--machine", None),
        (("project", "mlp/tiny", "--machine=absent"), 2, "absent.*8xV100-pcie", None),
        (("project", "mlp/tiny", "--machine=/dev/null"), 2, "/dev/null", None),
        (("project", "mlp/tiny", f"--machine={'9' * 400}"), 2, "9999", None),
        (("project", "none/tiny", "--machine=4xT4-pcie"), 2, "workload", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--variants=floor"), 2, "variants.*floor", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--variants=absent"), 2, "variants.*absent", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=3"), 2, "batch.*multiple of 4", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=-4"), 2, "batch", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--math=x"), 2, "math", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=0"), 2, "loader", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=nan"), 2, "loader", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=5e-324"), 2, "loader", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=" + "9" * 5000), 2, "batch: .9999", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--events=x"), 2, "events.*one of each", None),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--events=x/"), 2, "--events", None),
        (("gate", "--base=x"), 3, "git repository", None),
        (("gate", "--base=x", "--no\x1b[31m"), 3, "31m", None),
    ):
        yield Row("options", " ".join(map(ascii, words))[:60], words, code, pattern, item=item)


def sweep_files() -> Iterator[Row]:
    """Return the rows on sweep files."""
    for name, content in {**NOT_TEXT, "deep": b"a = " + DEEP}.items():
        if name != "empty":  # that is a sweep of all defaults
            yield Row("sweep", name, ("sweep", "s.toml"), 2, "s.toml: is not TOML", {"s.toml": content})
    # tomllib takes 8 GB for these 100 KB
    keys = {"s.toml": b"a." * 50_000 + b"a = 1"}
    yield Row("sweep", "deep keys", ("sweep", "s.toml"), 2, "s.toml: ", keys, item=8)
    for line, pattern, item in (
        ("timeout = 1e300", "s.toml: timeout", 3),
        (f"budget = {'9' * 400}", "s.toml: budget", 3),
        ("budget = inf", "s.toml: budget", None),
        ("budget = nan", "s.toml: budget", None),
        ("budget = true", "s.toml: budget", None),
        ("budget = 1979-05-27", "s.toml: budget", None),
        ("rounds = 1.0", "s.toml: rounds", None),
        (f"rounds = {'9' * 400}", "s.toml: rounds", None),
        ("rounds = true", "s.toml: rounds", None),
        ("batch = [true]", "s.toml: batch", None),
        ("batch = [[64]]", "s.toml: batch", None),
        ("batch = {a = 1}", "s.toml: batch", None),
        ("devices = [4]", "s.toml: devices", None),
        ("devices = ['cpu*٤']", "s.toml: devices", 10),
        ('variants = ["\\u0000"]', "s.toml: variants", None),
        ('variants = ["\\u001b[31m"]', "s.toml: variants", None),
        ('workloads = ["\\u001b[31m/x"]', "s.toml: workloads", None),
        ('"\\u001b[31m" = 1', "s.toml: ", 6),
        ('"\\u001b]0;owned\\u0007" = 1', "s.toml: ", 6),
        ('"\\r\\u009b2J" = 1', "s.toml: ", 6),
        ('"a\\nb" = 1', "s.toml: ", 6),
        ('reference = "naive"\nvariants = ["tuned"]', "s.toml: reference", None),
        ("[variants]\na = 1", "s.toml: variants", None),
    ):
        yield Row("sweep", line[:40], ("sweep", "s.toml"), 2, pattern, {"s.toml": line.encode()}, item)


def gate_settings() -> Iterator[Row]:
    """Return the rows on the gate's settings."""
    words = ("gate", "--base=HEAD~1", "--tiers=0", "--settings=g.toml")
    for name, content in {**NOT_TEXT, "deep": b"a = " + DEEP}.items():
        if name != "empty":
            yield Row("gate", name, words, 3, "g.toml: is not TOML", gate_files(content))
    for line, pattern, item in (
        ("alarm_rate = 0", "g.toml: alarm_rate", None),
        ("alarm_rate = nan", "g.toml: alarm_rate", None),
        (f"alarm_rate = {'9' * 400}", "g.toml: alarm_rate", None),
        ('alarm_rate = "٤%"', "g.toml: alarm_rate", None),
        ("benchmark = 1", "g.toml: benchmark", None),
        ("benchmark = [1]", "g.toml: benchmark", None),
        ("[[benchmark]]", "g.toml: benchmark 1", None),
        ('[[benchmark]]\nname = "\\u001b[31m"', "g.toml: benchmark", None),
        ('[thresholds]\n"\\u001b[31m" = 1', "g.toml: thresholds", None),
        ('[[accepted]]\nbenchmark="x"\nrevision="--output=x"\nreason="r"\nexpires=2099-01-01', "revision", None),
        ('[[accepted]]\nbenchmark="x"\nrevision="1234567"\nreason="r"\nexpires="٤"', "expires", None),
        ('"\\u001b[31m" = 1', "g.toml: ", 6),
    ):
        yield Row("gate", line[:50], words, 3, pattern, gate_files(line.encode()), item)
    for base in ("--output=x", "-h", "", "HEAD:a", "\x1b[31m", "HEAD~9", "HEAD\nHEAD", "^HEAD", "HEAD~1..HEAD", "@{0"):
        yield Row(
            "gate", f"base {base!a}", ("gate", f"--base={base}", "--tiers=0"), 3, r"--base: .*|HEAD", gate_files()
        )
    yield Row("gate", "base with NUL", ("gate", "--base=a\0b", "--tiers=0"), 3, "--base", gate_files(), 5)
    for name, content in {**NOT_TEXT, "deep": DEEP, "a list": b"[]\n", "schema 99": b'{"schema": 99}\n'}.items():
        if name != "empty":
            files = {**gate_files(), "results/gate/history.jsonl": content + b"\n"}
            yield Row("gate", f"history: {name}", ("gate", "--base=HEAD~1", "--tiers=2"), 3, "history.jsonl", files)


def records() -> Iterator[Row]:
    """Return the rows on files of records."""
    machine = {"m.json": asv_machine_file()}
    words = ("asv-export", "r.jsonl", "--machine=m", "--machine-file=m.json", "--results=asv")
    for name, line in {**NOT_TEXT, "deep": DEEP, "null": b"null", "number": b"1", "no schema": b"{}"}.items():
        if name != "empty":
            yield Row("records", name, words, 2, "r.jsonl: line 1 ", {**machine, "r.jsonl": line + b"\n"})
    for name, change, item in (
        ("a date that is none", {"started_at": "yesterday"}, 5),
        ("commit is an option", {"environment.commit": "--output=owned"}, 1),
        ("commit is a name", {"environment.commit": "HEAD"}, 1),
        ("commit is a path", {"environment.commit": "HEAD:"}, 5),
        ("commit is a range", {"environment.commit": "HEAD~1..HEAD"}, 5),
        ("commit with NUL", {"environment.commit": "a\0b"}, 5),
        ("commit with a slash", {"environment.commit": "../../x"}, 1),
        ("overlong python", {"environment.python": "9" * 5000}, 5),
        ("python with slashes", {"environment.python": "../../x"}, 5),
        ("negative samples", {"samples_s": [-1.0]}, None),
        ("samples are text", {"samples_s": ["\x1b[31m"]}, None),
        ("unknown key with ESC", {"\x1b[31m": 1}, 6),
        ("unknown outcome with ESC", {"outcome": "\x1b[31m"}, None),
        ("schema is true", {"schema": True}, None),
        ("schema is huge", {"schema": 10**30}, None),
        ("round is negative", {"round": -1}, None),
    ):
        files = {**machine, "r.jsonl": record_line(change)}
        yield Row("records", name, words, 2, r"\S", files, item)


def asv() -> Iterator[Row]:
    """Return the rows on asv's files."""
    export = ("asv-export", "r.jsonl", "--machine=m", "--machine-file=m.json", "--results=asv")
    for name, content, item in (
        ("not UTF-8", b"\xff", None),
        ("empty", b"", None),
        ("deep", DEEP, 5),
        ("deep in an entry", b'{"version": 1, "m": ' + DEEP, 5),
        ("a list", b"[]", None),
        ("version 99", b'{"version": 99}', None),
        ("an entry that is a number", b'{"version": 1, "m": 1}', None),
        ("an entry without keys", b'{"version": 1, "m": {}}', 5),
        ("machine leaves the folder", b'{"version": 1, "m": {"machine": "../../x"}}', 9),
        ("machine is absolute", b'{"version": 1, "m": {"machine": "/tmp/x"}}', 9),
        ("machine with NUL", b'{"version": 1, "m": {"machine": "a\\u0000"}}', 5),
        ("key with ESC", b'{"version": 1, "\\u001b[31m": 1}', 6),
        ("another machine with ESC", b'{"version": 1, "\\u001b[31m": {}}', 6),
        ("a number of 5000 digits", b'{"version": ' + b"9" * 5000 + b"}", None),
    ):
        files = {"m.json": content, "r.jsonl": record_line({})}
        yield Row("asv machine file", name, export, 2, r"m\.json|machine", files, item)


def expected_counts() -> Iterator[Row]:
    """Return the rows on files of expected counts."""
    words = ("counts", "--check", "--expected=e")
    file = "e/torch-2.13.0-py3.11.json"
    for name, content in {
        **NOT_TEXT,
        "deep": DEEP,
        "a list": b"[]",
        "another schema": counts_file(schema=99),
        "a count that is text": counts_file(cases={"c": {"x": "\x1b[31m"}}),
        "a count of 5000 digits": b'{"cases": {"c": {"x": ' + b"9" * 5000 + b"}}}",
        "unknown key with ESC": counts_file(**{"\x1b[31m": 1}),
    }.items():
        item = 6 if "key with ESC" in name else None
        yield Row("expected counts", name, words, 2, "holds no expected counts", {file: content}, item)
    yield Row("expected counts", "no folder", ("counts", "--check", "--expected=/nope"), 2, "/nope")
    yield Row("expected counts", "a device", ("counts", "--check", "--expected=/dev/null"), 2, "/dev/null")
    hostile = counts_file(cases={"\x1b[31mcase": {"\x1b[31mcounter": 1}})
    yield Row("expected counts", "names with ESC", words, 1, "expected, not counted", {file: hostile}, 6)


def self_tests() -> Iterator[Row]:
    """Return the rows on the result of a self-test."""
    gate = ("gate", "--base=HEAD~1", "--tiers=1")
    file = "results/gate/self-test-x.json"
    for name, content in {
        **NOT_TEXT,
        "deep": DEEP,
        "a list": b"[]",
        "no conditions": self_test(tested=[]),
        "no rounds": self_test(spreads=[]),
        "negative counts": self_test(drawn={"slower": -5}),
        "huge counts": self_test(drawn={"slower": 10**30, "passed": 1}),
        "a date with ESC": self_test(began="\x1b[31m20250101"),
    }.items():
        yield Row("self-test", name, gate, 3, r"self-test-x\.json", {**gate_files(), file: content})
