"""All settings, in one table: argument > environment > llmtrace.toml > default. `llmtrace doctor` prints it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from .guard import guard

Origin = Literal["argument", "environment", "llmtrace.toml", "default"]

HEX_DIGITS: Final = frozenset("0123456789abcdef")
LARGEST_RING_BYTES: Final = 1 << 30


class Setting(msgspec.Struct, frozen=True):
    """One setting: its name, the environment variables that give it (first wins), how text becomes a value, and why."""

    name: str
    variables: tuple[str, ...]
    parse: Callable[[str], Any]
    default: Any
    doc: str
    secret: bool = False


def switch(text: str) -> bool:
    """on/off in any of the usual spellings; anything else raises ValueError."""
    if text.strip().lower() in ("1", "true", "on", "yes"):
        return True
    if text.strip().lower() in ("0", "false", "off", "no", ""):
        return False
    raise ValueError("allowed: 1, true, on, yes, 0, false, off, no")


def words(text: str) -> tuple[str, ...]:
    """Words between commas or blanks."""
    return tuple(text.replace(",", " ").split())


def size(text: str) -> int:
    """Bytes: a number with an optional k, M or G (powers of 1024)."""
    text = text.strip()
    factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(text[-1:].lower())
    value = int(text[:-1]) * factor if factor else int(text)
    if value <= 0:
        raise ValueError("allowed: more than 0")
    return value


def seconds(text: str) -> float:
    """Seconds: a number with an optional s, m, h or d."""
    text = text.strip()
    factor = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:].lower())
    value = float(text[:-1]) * factor if factor else float(text)
    if not 0 < value < float("inf"):
        raise ValueError("allowed: more than 0")
    return value


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"allowed: {', '.join(allowed)}")
        return text

    return parse


def trace_id(text: str) -> str:
    """32 hex digits, not all zero (W3C trace context)."""
    text = text.strip().lower()
    if len(text) != 32 or not set(text) <= HEX_DIGITS or int(text, 16) == 0:  # int() alone takes 0x, _, + and digits of other scripts
        raise ValueError("allowed: 32 hex digits, not all 0")
    return text


def text(value: str) -> str:
    if "\0" in value:
        raise ValueError("allowed: text without NUL")
    return value.strip()


def base_url(text: str) -> str:
    """http or https and a host, and maybe a path: what a link begins with. A slash at its end goes; a password would be shown to everybody."""
    text = text.strip().rstrip("/")
    scheme, _, rest = text.partition("://")
    host = rest.partition("/")[0]
    if scheme.lower() not in ("http", "https") or not host or "@" in host or not text.isprintable() or set(text) & set(" ?#\"'<>\\^`{|}"):
        raise ValueError("allowed: http://HOST or https://HOST, with a port and a path where needed")
    return text


def ring_size(text: str) -> int:
    """Bytes of a ring. Its memory is taken at once, so a slip in the unit must not take the machine's."""
    if (value := size(text)) > LARGEST_RING_BYTES:
        raise ValueError("allowed: at most 1G")
    return value


SETTINGS: Final = (
    Setting("enabled", ("LLMTRACE",), switch, None, "1 turns tracing on in every Python process that trains; 0 beats callback, decorator and start"),
    Setting("dir", ("LLMTRACE_DIR",), text, "", "where the journal lies; else /var/tmp/llmtrace-UID/HASH"),
    Setting("ring_dir", ("LLMTRACE_RING_DIR",), text, "/dev/shm", "where the rings lie: a tmpfs"),
    Setting("node", ("LLMTRACE_NODE",), text, "", "this node's name; else the host's"),
    Setting("trace_id", ("LLMTRACE_TRACE_ID",), trace_id, "", "the job's trace id, as given"),
    Setting("run_id", ("LLMTRACE_RUN_ID",), text, "", "a name unique to the job; its hash is the trace id"),
    Setting("job", ("LLMTRACE_JOB",), text, "", "the job's name for people"),
    Setting("team", ("LLMTRACE_TEAM",), text, "", "who pays"),
    Setting("model", ("LLMTRACE_MODEL",), text, "", "what is trained"),
    Setting("workload", ("LLMTRACE_WORKLOAD",), one_of("train", "finetune", "inference"), "train", "train, finetune or inference"),
    Setting("env", ("LLMTRACE_ENV",), text, "", "production, staging, ..."),
    Setting("disable", ("LLMTRACE_DISABLE",), words, (), "instruments to leave out, by name"),
    Setting("ring_bytes", ("LLMTRACE_RING_BYTES",), ring_size, 4 << 20, "bytes of a rank's ring, at most 1G"),
    Setting("journal_bytes", ("LLMTRACE_JOURNAL_BYTES",), size, 4 << 30, "the journal's bound; the oldest goes first"),
    Setting("journal_age_s", ("LLMTRACE_JOURNAL_AGE",), seconds, 14 * 86400.0, "how old records may grow in the journal"),
    Setting("page_url", ("LLMTRACE_PAGE_URL",), base_url, "", "where `llmtrace serve` is reached; else links to pages are file:// below LLMTRACE_DIR"),
    Setting("grafana_url", ("LLMTRACE_GRAFANA_URL",), base_url, "", "Grafana: an incident links to Explore there"),
    Setting("grafana_datasource", ("LLMTRACE_GRAFANA_DATASOURCE",), text, "loki", "the Loki data source in those links, by uid or name"),
    Setting("kibana_url", ("LLMTRACE_KIBANA_URL",), base_url, "", "Kibana, with its space (`/s/NAME`) if any: an incident links to Discover there"),
    Setting("redact", ("LLMTRACE_REDACT",), switch, True, "0 leaves secrets in pages, reports and what is shipped"),
    Setting("redact_patterns", ("LLMTRACE_REDACT_PATTERNS",), text, "", "more secrets: regular expressions, one a line, or @FILE that holds them"),
    Setting("strict", ("LLMTRACE_STRICT",), switch, False, "raise llmtrace's own errors instead of counting them"),
)
"""Those of the back ends stand in the sinks' own issue; each arrives here with what reads it."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The values in force, and where each came from."""

    enabled: bool | None
    dir: str
    ring_dir: str
    node: str
    trace_id: str
    run_id: str
    job: str
    team: str
    model: str
    workload: str
    env: str
    disable: tuple[str, ...]
    ring_bytes: int
    journal_bytes: int
    journal_age_s: float
    page_url: str
    grafana_url: str
    grafana_datasource: str
    kibana_url: str
    redact: bool
    redact_patterns: str
    strict: bool
    origins: dict[str, Origin]


def resolve(arguments: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, file: str = "llmtrace.toml") -> Config:
    """The settings in force.

    An argument of an unknown name or an impossible value raises ValueError: it is wrong on every rank alike. A wrong
    environment variable or file entry warns once and the next source counts.
    """
    given = dict(arguments or {})
    if unknown := given.keys() - {s.name for s in SETTINGS}:
        raise ValueError(f"unknown setting {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in SETTINGS)}")
    variables = os.environ if environ is None else environ
    stored = read_file(file)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for setting in SETTINGS:
        values[setting.name], origins[setting.name] = _choose(setting, given, variables, stored)
    return Config(**values, origins=origins)


def _choose(setting: Setting, given: Mapping[str, Any], variables: Mapping[str, str], stored: Mapping[str, Any]) -> tuple[Any, Origin]:
    if given.get(setting.name) is not None:
        return _argument(setting, given[setting.name]), "argument"
    for variable in setting.variables:
        if variables.get(variable):
            if (value := _lenient(setting, variables[variable], variable)) is not None:
                return value, "environment"
    if setting.name in stored:
        if (value := _lenient(setting, _as_text(stored[setting.name]), f"{setting.name} in llmtrace.toml")) is not None:
            return value, "llmtrace.toml"
    return setting.default, "default"


def _argument(setting: Setting, value: object) -> Any:
    try:
        return setting.parse(_as_text(value))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{setting.name}={value!r}: {error}") from None


def _lenient(setting: Setting, value: str, where: str) -> Any:
    try:
        return setting.parse(value)
    except (ValueError, OverflowError) as error:
        guard.warn(f"{where}={value!r} is ignored: {error}")
        return None


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if type(value) in (list, tuple, set, frozenset) else str(value)


def read_file(path: str) -> dict[str, Any]:
    """The table of llmtrace.toml (top level, or [llmtrace]); empty where there is none, with a warning where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            import tomllib  # only where the file is: a rank pays for what it uses

            found = tomllib.load(stream)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        guard.warn(f"{path} is ignored: {error}")
        return {}
    table = found.get("llmtrace", found)
    if not isinstance(table, dict):
        guard.warn(f"{path} is ignored: llmtrace is no table in it")
        return {}
    return cast("dict[str, Any]", table)


def as_environment(config: Config) -> dict[str, str]:
    """The variables that give another process (the agent) these settings; those at their default are left out."""
    found: dict[str, str] = {}
    for setting in SETTINGS:
        value = getattr(config, setting.name)
        if config.origins[setting.name] != "default" and setting.name != "enabled":
            found[setting.variables[0]] = ("1" if value else "0") if isinstance(value, bool) else _as_text(value)
    return found
