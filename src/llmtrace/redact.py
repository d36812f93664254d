"""Secrets taken out of text before it leaves the machine: known forms of keys, credentials in addresses and headers, values that a name calls secret.

Ring and journal hold what the job printed; a page, a report and whatever is shipped hold `[redacted:KIND]` in a secret's place, and the rest of the line
as it was. Each rule has literals, one of which must be in a text before the rule's expression is tried: most lines hold none of any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from .config import Config
from .guard import guard
from .record import Record

CUSTOM: Final = "custom"
"""The kind of what the user's own expressions find."""
FROM_FILE: Final = "@"

_SIGNS: Final = ("gh", "pass", "~", "J", "-", "_")
"""Parts of literals that are looked for before these are."""

_ALONE: Final = r"(?<![A-Za-z0-9_-])"
"""A key begins where no word goes on, so that a long word is looked at once and not again from each of its letters."""

_PLACEHOLDER: Final = (
    r"(?:(?i:none|null|nil|true|false|undefined|str|bytes|string|int|bool|any|object|secret(?:str|bytes)|optional|required|missing|empty)\b(?![-.\w])"
    r"|\[redacted[\w:-]*\]|[*•x.]{3,256}(?!\w)|<[\w .|/-]{0,64}>|\{{1,2}[\w .\[\]'!:]{0,64}\}{1,2}|%\(\w{1,64}\)s|%s"
    r"|\$\{{1,2}[^}\n]{0,64}\}{1,2}|\$\([^)\n]{0,64}\)|\$[A-Z_][A-Z0-9_]*)"
)
"""What stands where a secret could: nothing, a type in a signature, a mask, a name to be filled in."""

_CODE: Final = (
    r"(?:[A-Za-z_][\w.]{0,100}[(\[]"
    r"|(?:self|args|kwargs|cfg|config|conf|settings|os|env|opts|options|params)\.\w"
    r"|(?:[A-Za-z_][A-Za-z_.]{0,100}[_.])?(?i:password|passwd|passphrase|pwd|secret|token|key)(?![\w+/=-])"
    r"|(?:\.{0,2}|~)/[\w.@-]{1,256}[/.])"
)
"""Source code, as in a traceback, that hands a secret on without showing it; and the path of a file that holds one."""

_SEPARATOR: Final = r"""(?:\\?["'])?\]?[ \t]{0,40}(?:=>|:=|={1,2}|:)[ \t]{0,40}"""
"""Of a name and its value, in JSON, YAML, Python and the aligned columns in which a job prints its settings."""
_AFTER_FLAG: Final = r"""(?:[ \t]{1,4}|["'],[ \t](?=["']))(?!-)"""


def _value(least: int) -> str:
    """Anything between quotes, or up to a blank, of at least so many characters, that is neither placeholder nor code."""
    escaped = rf'\\"(?!{_PLACEHOLDER}\\")((?:[^"\\\n]|\\[^"\n]){{{least},}}+)'
    double = rf'[bBrRuU]?"(?!{_PLACEHOLDER}")((?:[^"\\\n]|\\.){{{least},}}+)'
    single = rf"[bBrRuU]?\\?'(?!{_PLACEHOLDER}\\?')((?:[^'\\\n]|\\[^'\n]){{{least},}}+)"
    bare = rf"""(?!{_PLACEHOLDER}|{_CODE})((?:[^\s"'\\,;&()\[\]{{}}<>`]|,(?!\s|$|\w{{1,40}}[=:])){{{least},}}+)"""
    return f"(?:{escaped}|{double}|{single}|{bare})"


_MIXED: Final = (
    rf"""(?:[bBrRuU]?\\?["'])?(?!{_CODE})(?=[A-Za-z_~+/-]{{0,200}}[0-9])(?=[0-9_~+/-]{{0,200}}[A-Za-z])"""
    r"([A-Za-z0-9_~-]{8,}+|[A-Za-z0-9+/]{32,}+={0,2})(?![.:|>/\w])"
)
"""What can be neither a word nor a number: for names that training has other uses for (`token: 17`, `pad_token: [PAD]`)."""


def _flag(name: str, value: str) -> str:
    """`--NAME VALUE`, also as a list of arguments."""
    return rf"(?<![\w-])--?[\w-]{{0,40}}{name}{_AFTER_FLAG}{value}"


_PASSWORD: Final = r"(?i:passw(?:or)?d|passphrase|(?<![a-z])pwd(?!:[ \t]))"
_KEYS: Final = ("api", "access", "secret", "private", "account", "auth", "signing", "encryption", "kaggle", "wandb")
_KEY: Final = rf"(?i:(?:{'|'.join(_KEYS)})[_-]?key)"
_ENDS: Final = ("=", ":", '"', "'", "\\", "]", " =", " :", "  ", " \t", "\t")
"""What of a separator may follow a name, in the first two characters."""
_OWNER: Final = (
    r"(?<![A-Za-z0-9])(?i:access|auth|api|bearer|refresh|id|session|security|private|personal|deploy|bot|ci|job|hf|hub|hugging_?face|github|gitlab|wandb"
    r"|slack|neptune|comet|clearml|registry|upload|pypi|npm)"
)
_TOKEN: Final = rf"{_OWNER}[_-]?(?i:token)"
_TOKEN_FLAG: Final = rf"{_OWNER}[_-](?i:token)"
_SECRET: Final = r"(?i:secret)"
_OF_SECRET: Final = r"(?i:client|app|application|shared|webhook|signing|consumer|oauth|jwt|api|auth)"
_SECRET_FLAG: Final = r"(?<=[_-])(?i:secret)"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of secret: what it is, what it looks like, and how it is found.

    `literals` are looked for first: in the text as it is or, where `lower` is set, in lower case; and only where that holds the `gate`. Whatever `pattern`
    matches holds the gate and a literal. The last group of `pattern` that took part in a match is the secret; the rest of the match stays. `name` matches
    the end of an attribute's name whose text is one.
    """

    kind: str
    what: str
    looks: tuple[str, ...]
    literals: tuple[str, ...]
    pattern: str
    gate: str = ""
    lower: bool = False
    name: str = ""


RULES: Final = (
    Rule(
        kind="private-key",
        what="PEM private keys, to their last line or the text's",
        looks=("-----BEGIN … PRIVATE KEY-----",),
        literals=("-----BEGIN",),
        pattern=r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----)[\s\S])*+(?:-----END [A-Z0-9 ]{0,40}-----)?)",
    ),
    Rule(
        kind="jwt",
        what="JSON web tokens",
        looks=("eyJ….….…",),
        literals=("eyJ",),
        pattern=_ALONE + r"(eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]*+)",
    ),
    Rule(
        kind="aws-key",
        what="AWS access key ids",
        looks=("AKIA…", "ASIA…"),
        literals=("AKIA", "ASIA"),
        gate="IA",
        pattern=r"(?<![A-Za-z0-9])((?:AKIA|ASIA)[A-Z0-9]{16})(?![A-Za-z0-9])",
    ),
    Rule(
        kind="gcp-key",
        what="Google's API keys, OAuth tokens and client secrets",
        looks=("AIza…", "ya29.…", "GOCSPX-…"),
        literals=("AIza", "ya29.", "GOCSPX-"),
        pattern=_ALONE + r"(AIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])|ya29\.[0-9A-Za-z_-]{20,}+|GOCSPX-[0-9A-Za-z_-]{20,}+)",
    ),
    Rule(
        kind="azure-key",
        what="Azure's client secrets",
        looks=("…8Q~…",),
        literals=("8Q~",),
        pattern=r"(?<![\w~.-])([A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{31,34})(?![\w~.-])",
    ),
    Rule(
        kind="github-token",
        what="GitHub tokens",
        looks=("ghp_…", "gho_…", "ghu_…", "ghs_…", "ghr_…", "github_pat_…"),
        literals=("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        pattern=_ALONE + r"(gh[pousr]_[A-Za-z0-9]{36,}+|github_pat_[A-Za-z0-9_]{22,}+)",
    ),
    Rule(
        kind="gitlab-token",
        what="GitLab tokens",
        looks=("glpat-…", "gldt-…", "glrt-…", "glcbt-…", "glptt-…", "glsoat-…"),
        literals=("t-",),
        pattern=_ALONE + r"(gl(?:pa|d|r|cb|pt|soa|f|im|agen)t-[A-Za-z0-9_.-]{20,}+)",
    ),
    Rule(
        kind="huggingface-token",
        what="Hugging Face tokens",
        looks=("hf_…",),
        literals=("hf_",),
        pattern=_ALONE + r"(hf_[A-Za-z0-9]{30,}+)(?![A-Za-z0-9_])",
    ),
    Rule(
        kind="model-api-key",
        what="keys of OpenAI, Anthropic and NVIDIA",
        looks=("sk-…", "sk-proj-…", "sk-ant-…", "nvapi-…"),
        literals=("sk-", "nvapi-"),
        pattern=_ALONE + r"(sk-(?:(?:proj|svcacct|admin|ant|or)-[A-Za-z0-9_-]{20,}+|[A-Za-z0-9]{32,}+)|nvapi-[A-Za-z0-9_-]{20,}+)",
    ),
    Rule(
        kind="slack-token",
        what="Slack tokens",
        looks=("xoxb-…", "xoxp-…", "xapp-…"),
        literals=("xox", "xapp-"),
        pattern=_ALONE + r"(xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{10,}+)",
    ),
    Rule(
        kind="webhook",
        what="addresses of Slack's webhooks",
        looks=("hooks.slack.com/services/…",),
        literals=("hooks.slack",),
        gate="://",
        pattern=r"://hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/-]{10,}+)",
    ),
    Rule(
        kind="wandb-key",
        what="keys of Weights & Biases",
        looks=("wandb_v1_…", "wandb login …"),
        literals=("wandb",),
        pattern=r"(?<![A-Za-z0-9])(?:(wandb_v1_[A-Za-z0-9_]{20,}+)|wandb(?:\.login\(|[ _-]login\b)[^\n]{0,40}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f]))",
    ),
    Rule(
        kind="url-password",
        what="passwords and keys in addresses, of databases too (DSN)",
        looks=("scheme://user:…@host", "scheme://…@host"),
        literals=("@",),
        gate="://",
        pattern=r"""://(?:[^\s/:@"'<>]{0,256}:(?!\[redacted|\$|\{|<)([^\s/"'<>]{1,512})|((?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,256}))(?=@)""",
    ),
    Rule(
        kind="signed-url",
        what="signatures of AWS, Azure and Google in addresses",
        looks=("?sig=…", "X-Amz-Signature=…", "X-Amz-Security-Token=…", "X-Goog-Signature=…"),
        literals=("sig=", "-signature=", "-security-token="),
        gate="?",
        lower=True,
        pattern=r"""(?i:[?&](?:sig|x-amz-(?:signature|security-token)|x-goog-signature)=)([^&\s"'<>\[\]]{16,}+)""",
    ),
    Rule(
        kind="authorization",
        what="what follows `Authorization:`, and `Bearer` anywhere",
        looks=("Authorization: Basic …", "Bearer …"),
        literals=("authorization", "bearer"),
        lower=True,
        pattern=rf"""(?i:authorization{_SEPARATOR}\\?["']?(?:bearer|basic|token|digest|negotiate|apikey)[ \t]{{1,4}})(?!{_PLACEHOLDER})([^\s"'\\,;]{{4,}}+)"""
        r"|(?i:(?<!\w)bearer[ \t]{1,4})((?=[A-Za-z_.~+/-]{0,200}[0-9])[A-Za-z0-9._~+/-]{12,}+={0,2})",
        name=r"(?i:(?:^|[._-])(?:authorization|cookie))$",
    ),
    Rule(
        kind="password",
        what="what a name calls a password; `password` in a netrc file",
        looks=("password=…", '"passwd": "…"', "--password …", "machine … login … password …"),
        literals=("passw", "passp", "pwd"),
        lower=True,
        pattern=rf"{_PASSWORD}{_SEPARATOR}{_value(3)}|{_flag(_PASSWORD, _value(3))}"
        r"|(?i:(?<!\w)login[ \t]{1,4}\S{1,64}\s{1,8}password[ \t]{1,4})(?!\[redacted)(\S{3,}+)",
        name=rf"{_PASSWORD}$",
    ),
    Rule(
        kind="api-key",
        what="what a name calls the key of an interface, an account or a cipher",
        looks=("api_key=…", "aws_secret_access_key = …", '"private_key": "…"', "AccountKey=…", "--api-key …"),
        literals=tuple(f"{name}{joint}key" for name in _KEYS for joint in ("", "_", "-")),
        gate="key",
        lower=True,
        pattern=rf"{_KEY}{_SEPARATOR}{_value(6)}|{_flag(_KEY, _value(6))}",
        name=rf"{_KEY}$",
    ),
    Rule(
        kind="secret",
        what="what a name calls a secret; after `secret:` only what can be neither a word nor a number",
        looks=("client_secret=…", '"secret": "…"', "secret: …", "--secret …"),
        literals=(*("secret" + end for end in _ENDS), "-secret ", "_secret "),
        gate="secret",
        lower=True,
        pattern=rf"(?:{_OF_SECRET}[_-]?{_SECRET}|(?<=[A-Z0-9]_)SECRET){_SEPARATOR}{_value(6)}"
        rf"""|{_SECRET}(?:[ \t]{{0,40}}=[ \t]{{0,40}}|\\?["']\]?[ \t]{{0,40}}[:=][ \t]{{0,40}}){_value(6)}|{_SECRET}[ \t]{{0,40}}:[ \t]{{0,40}}{_MIXED}"""
        rf"|{_flag(_SECRET_FLAG, _value(6))}",
        name=rf"{_SECRET}$",
    ),
    Rule(
        kind="token",
        what="what a name calls a token: anything where the name says whose, else only what can be neither a word nor a number",
        looks=("HF_TOKEN=…", '"access_token": "…"', "token: …", "--token …"),
        literals=(*("token" + end for end in _ENDS), "-token ", "_token "),
        gate="token",
        lower=True,
        pattern=rf"{_TOKEN}{_SEPARATOR}{_value(6)}|{_flag(_TOKEN_FLAG, _value(6))}"
        rf"|(?:(?<![A-Za-z0-9_-])(?i:token)|(?<=[A-Z0-9]_)TOKEN){_SEPARATOR}{_MIXED}|(?<![\w-])--?token{_AFTER_FLAG}{_MIXED}",
        name=rf"{_TOKEN}$",
    ),
)
"""In this order: a known form before the name that it stands under."""


class _Finder(msgspec.Struct, frozen=True):
    kind: str
    search: re.Pattern[str]

    def replace(self, text: str) -> str:
        return self.search.sub(self._mark, text)

    def _mark(self, match: re.Match[str]) -> str:
        start, end = match.span(match.lastindex or 0)
        if start == end:
            return match[0]
        start, end = start - match.start(), end - match.start()
        return f"{match[0][:start]}[redacted:{self.kind}]{match[0][end:]}"


Gates = list[tuple[str, list[tuple[str, int]]]]
"""What a text must hold before it is searched for literals, and these with the places of their rules."""


class Redactor:
    """Takes secrets out of texts and records; `extra` are the user's own expressions, compiled. Thread-safe: nothing changes after it is made."""

    def __init__(self, extra: Iterable[re.Pattern[str]] = (), *, enabled: bool = True) -> None:
        self.enabled = enabled
        self._finders = [_Finder(rule.kind, re.compile(rule.pattern)) for rule in RULES]
        self._own = [_Finder(CUSTOM, pattern) for pattern in extra]
        self._plain, self._lower = _gates(lower=False), _gates(lower=True)

    def redact(self, text: str) -> str:
        """The text without its secrets; the same object where there is none."""
        if not self.enabled:
            return text
        found = text
        for place in self._suspicious(text):
            found = self._finders[place].replace(found)
        for finder in self._own:
            found = finder.replace(found)
        return text if found == text else found

    def redact_record(self, record: Record) -> Record:
        """The record with body and text attributes redacted, an attribute whose name calls it secret as a whole; the same object where nothing was found."""
        if not self.enabled or (record.body is None and str not in map(type, record.attributes.values())):  # most are numbers alone
            return record
        body = record.body and self.redact(record.body)
        changed = self._changed(record.attributes)
        if body is record.body and not changed:
            return record
        return msgspec.structs.replace(record, body=body, attributes={**record.attributes, **changed})

    def _changed(self, attributes: Mapping[str, object]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in attributes.items():
            if type(value) is str and value:
                kind = kind_of_name(name)
                text = f"[redacted:{kind}]" if kind else self.redact(value)
                if text != value:
                    found[name] = text
        return found

    def _suspicious(self, text: str) -> Iterable[int]:
        """The places of the rules one of whose literals is in the text: all that a clean line costs, hence loops and no comprehensions."""
        found: list[int] = []
        for gate, literals in self._plain:
            if gate in text:
                for literal, place in literals:
                    if literal in text:
                        found.append(place)
        text = text.lower()
        for gate, literals in self._lower:
            if gate in text:
                for literal, place in literals:
                    if literal in text:
                        found.append(place)
        return sorted(set(found)) if found else found


def _gates(*, lower: bool) -> Gates:
    """The literals of all rules, by the gate that stands before them: the rule's, else a part of the literal itself."""
    found: dict[str, list[tuple[str, int]]] = {}
    for place, rule in enumerate(RULES):
        if rule.lower == lower:
            for literal in rule.literals:
                gate = rule.gate or next((sign for sign in _SIGNS if sign in literal), "")
                found.setdefault(gate, []).append((literal, place))
    return list(found.items())


_NAMES: Final = tuple((rule.kind, re.compile(rule.name)) for rule in RULES if rule.name)


@lru_cache(maxsize=4096)
def kind_of_name(name: str) -> str:
    """The kind of secret that an attribute of this name holds; "" for a name that calls nothing secret."""
    return next((kind for kind, pattern in _NAMES if pattern.search(name)), "")


def make_redactor(config: Config) -> Redactor:
    """The redactor that the settings ask for; an expression that cannot be used warns and is left out."""
    found = [pattern for line in _lines(config.redact_patterns) if (pattern := _compiled(line)) is not None]
    return Redactor(found, enabled=config.redact)


def _lines(setting: str) -> list[str]:
    """The expressions of `redact_patterns`: its lines, or those of the file it names; empty ones and comments (`# ...`) left out."""
    text = setting
    if setting.startswith(FROM_FILE):
        try:
            with open(setting.removeprefix(FROM_FILE), encoding="utf-8") as stream:
                text = stream.read()
        except (OSError, ValueError) as error:
            guard.warn(f"redact_patterns={setting!r} is ignored: {error}")
            return []
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def _compiled(line: str) -> re.Pattern[str] | None:
    try:
        return re.compile(line)
    except (re.error, OverflowError, RecursionError) as error:
        guard.warn(f"redact_patterns: {line!r} is left out: {error}")
        return None
