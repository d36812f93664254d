"""Secrets are taken out of what a job printed, and nothing else is touched. No key here is one: each is put together from a form and filler."""

from __future__ import annotations

import itertools
import re
import uuid
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmtrace import names
from llmtrace.config import resolve
from llmtrace.guard import guard
from llmtrace.record import Identity, Record, Value
from llmtrace.redact import CUSTOM, RULES, Redactor, kind_of_name, make_redactor
from llmtrace.show.redacted import redact_context
from tests.support.contexts import ONSET, TRACE, exception

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "redaction.md"
REDACTOR = Redactor()
FILL = "".join(itertools.islice(itertools.cycle("Qz7Rk2Wm9Tb4Xv"), 400))
HEX = "".join(itertools.islice(itertools.cycle("9f4e1d7c0b"), 400))
UPPER = FILL.upper()

KNOWN = {
    "aws-key": ["AKIA" + UPPER[:16], "ASIA" + UPPER[:16]],
    "gcp-key": ["AIza" + FILL[:35], "ya29." + FILL[:60], "GOCSPX-" + FILL[:28]],
    "azure-key": ["a1~" + "8Q~" + FILL[:34]],
    "github-token": [f"gh{kind}_" + FILL[:36] for kind in "pousr"] + ["github_pat_" + FILL[:22] + "_" + FILL[:59]],
    "gitlab-token": [f"gl{kind}-" + FILL[:20] for kind in ("pat", "dt", "rt", "cbt", "ptt", "soat")],
    "huggingface-token": ["hf_" + FILL[:34]],
    "model-api-key": ["sk-" + FILL[:48], "sk-proj-" + FILL[:40] + "-" + FILL[:40], "sk-ant-api03-" + FILL[:80], "nvapi-" + FILL[:64]],
    "slack-token": ["xoxb-" + "1234567890-" + FILL[:24], "xoxp-" + "12345-" + FILL[:24], "xapp-1-" + FILL[:40]],
    "wandb-key": ["wandb_v1_" + FILL[:60]],
    "jwt": ["eyJ" + FILL[:30] + ".eyJ" + FILL[:60] + "." + FILL[:43]],
}
"""Kind -> secrets that are known by their form, wherever they stand."""

AROUND = (
    "{}",
    "using key {}",
    "key={}, retrying",
    '{{"auth": "{}"}}',
    "({})",
    "GET /v1?key={} 401",
    "a\n{}\nb",
    "'{}'",
    "[{}]",
    "url: https://host/{}/x",
    "\t{}",
)

NAMED = [
    ("password", "password=hunter2", "hunter2"),
    ("password", "connecting with password: s3cr3t-word", "s3cr3t-word"),
    ("password", "{'user': 'ada', 'password': 'correct horse', 'port': 5432}", "correct horse"),
    ("password", r'body "{\"passwd\": \"p4ss\", \"port\": 1}"', "p4ss"),
    ("password", 'DB_PASSWORD="a\\"b,c d" python train.py', 'a\\"b,c d'),
    ("password", "host=db user=ada password=abc,def!x dbname=runs", "abc,def!x"),
    ("password", "Server=db;Uid=ada;Pwd=Zx81ab;Database=runs", "Zx81ab"),
    ("password", "python train.py --db-password hunter2 --lr 0.1", "hunter2"),
    ("password", "['train.py', '--password', 'hunter2']", "hunter2"),
    ("password", "machine api.wandb.ai\n  login user\n  password " + HEX[:40], HEX[:40]),
    ("password", "MLFLOW_TRACKING_PASSWORD     : blue42fish", "blue42fish"),
    ("api-key", "WANDB_API_KEY=" + HEX[:40], HEX[:40]),
    ("api-key", "api_key: " + HEX[:32], HEX[:32]),
    ("api-key", "aws_secret_access_key = " + FILL[:20] + "/" + FILL[:19], FILL[:20] + "/" + FILL[:19]),
    ("api-key", "AccountName=acme;AccountKey=" + FILL[:86] + "==;EndpointSuffix=core", FILL[:86] + "=="),
    ("api-key", "Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey=" + FILL[:43] + "=", FILL[:43] + "="),
    ("api-key", "x-api-key: " + FILL[:24], FILL[:24]),
    ("api-key", 'client = Client(api_key="' + FILL[:24] + '", timeout=3)', FILL[:24]),
    ("api-key", "train.py --api-key " + FILL[:24], FILL[:24]),
    ("secret", "client_secret=" + FILL[:24], FILL[:24]),
    ("secret", '"clientSecret" : "abcdefghij"', "abcdefghij"),
    ("secret", "the secret: " + FILL[:12], FILL[:12]),
    ("token", "HF_TOKEN=abcdefgh", "abcdefgh"),
    ("token", "AWS_SESSION_TOKEN=" + FILL[:200] + "==", FILL[:200] + "=="),
    ("token", '"access_token": "' + FILL[:30] + '"', FILL[:30]),
    ("token", "token: " + FILL[:16], FILL[:16]),
    ("token", "MY_TOKEN = '" + FILL[:16] + "'", FILL[:16]),
    ("token", "login(token='" + FILL[:16] + "')", FILL[:16]),
    ("token", "huggingface-cli login --token " + FILL[:16], FILL[:16]),
    ("token", "PRIVATE-TOKEN: " + FILL[:20], FILL[:20]),
    ("authorization", "Authorization: Basic " + FILL[:20] + "==", FILL[:20] + "=="),
    ("authorization", "{'Authorization': 'Bearer abcdef'}", "abcdef"),
    ("authorization", "sent bearer " + FILL[:30], FILL[:30]),
    ("authorization", '"authorization":"token ' + HEX[:32] + '"', HEX[:32]),
    ("url-password", "postgresql+psycopg://ada:" + "pw%21x" + "@db.internal:5432/runs", "pw%21x"),
    ("url-password", "redis://:" + "pw/x".replace("/", "_") + "@cache:6379/0", "pw_x"),
    ("url-password", "mongodb+srv://ada:" + "p@ss" + "@cluster/db?retry=true", "p@ss"),
    ("url-password", "https://" + HEX[:32] + "@o1.ingest.sentry.io/2", HEX[:32]),
    ("url-password", "git clone https://oauth2:" + "abcde" + "@git.internal/x.git", "abcde"),
    ("signed-url", "https://acct.blob.core.windows.net/c/x?sv=2024&sig=" + FILL[:43] + "%3D&se=2026", FILL[:43] + "%3D"),
    ("signed-url", "https://b.s3.amazonaws.com/x?X-Amz-Signature=" + HEX[:64], HEX[:64]),
    ("webhook", "POST https://hooks.slack.com/services/T01234567/B01234567/" + FILL[:24], "T01234567/B01234567/" + FILL[:24]),
    ("wandb-key", "wandb login --relogin " + HEX[:40], HEX[:40]),
    ("wandb-key", "wandb.login(key='" + HEX[:40] + "')", HEX[:40]),
]
"""(kind, line, what in it is the secret)."""

PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(FILL[:64] for _ in range(8)) + "\n-----END RSA PRIVATE KEY-----"

ORDINARY = """\
step 1234/100000 loss 2.3456 lr 3.0e-04 grad_norm 0.812 throughput 12,345 samples/s mem 61.2 GiB eta 3:14:07
epoch 3 | tokens/s 182,340 | tokens seen 1.2e9 | n_tokens=4096 | seq_len: 2048 | mfu 41.3 %
{'loss': 2.3456, 'grad_norm': 0.81, 'learning_rate': 3e-05, 'epoch': 1.0, 'num_tokens': 123456789.0, 'mean_token_accuracy': 0.61}
Special tokens: bos_token='<s>', eos_token='</s>', unk_token=<unk>, pad_token: [PAD], mask_token = "<mask>", image_token=<image_0012345>
The new embeddings will be initialized from a multivariate normal distribution. pad_token_id=128004 bos_token_id: 128000 eos_token_id=[128001, 128008]
Setting `pad_token_id` to `eos_token_id`:50256 for open-end generation. next token: 15339 token: Hello token='world' token 7
Token indices sequence length is longer than the specified maximum sequence length for this model (1535 > 1024).
tokenizer.json: 100%|##########| 1.84M/1.84M [00:00<00:00, 5.02MB/s] tokenizer_class: GPT2Tokenizer use_fast_tokenizer=True use_auth_token=False
generation config token: None, hf_token=None, token=token, auth_token=self.auth_token, api_key=os.environ["OPENAI_API_KEY"], password=getpass()
  File "/opt/venv/lib/python3.11/site-packages/huggingface_hub/file_download.py", line 1008, in hf_hub_download
    return _hf_hub_download_to_cache_dir(repo_id, token=token, headers=hf_headers, etag_timeout=etag_timeout, local_files_only=local_files_only)
    def login(self, user: str, password: str = "", token: Optional[str] = None, api_key: SecretStr | None = None) -> None:
KeyError: 'model.layers.0.self_attn.q_proj.weight'; missing key: model.embed_tokens.weight, unexpected key(s) in state_dict: "lm_head.bias"
Missing key(s) in state_dict: "encoder.key.weight", "encoder.key_proj.bias". sort_key=loss, cache_key: 4bf92f3577b34da6a3ce929d0e0e4736, primary_key=id
:::MLLOG {"namespace": "", "time_ms": 1715335122176, "event_type": "POINT_IN_TIME", "key": "cache_clear", "value": true, "metadata": {"lineno": 4}}
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7 rank=3 traceparent 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
git commit 1d2c3b4a5f6e7d8c9b0a1f2e3d4c5b6a7f8e9d0c (dirty), config hash sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
wandb: Run data is saved locally in /home/ada/gpt/wandb/run-20261130_031407-1a2b3c4d
wandb: View run brave-sunset-42 at: https://wandb.ai/ada/gpt/runs/1a2b3c4d; commit 1d2c3b4a5f6e7d8c9b0a1f2e3d4c5b6a7f8e9d0c
init_process_group(backend=nccl, init_method=tcp://10.0.0.1:29500, world_size=64, rank=3) store=TCPStore(host=node-a, port=29500)
[rank3]:[E1130 03:14:07.412 ProcessGroupNCCL.cpp:633] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1042, OpType=ALLREDUCE)
NCCL WARN NET/IB : Got completion from peer 10.1.2.3<47011> with error 12, opcode 129, len 0, vendor err 129
RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:30002
RuntimeError: Connection closed by peer [2001:db8:85a3::8a2e:370:7334]:29500; fe80::1%eth0
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.21 GiB is free.
NVRM: Xid (PCI:0000:c1:00): 79, pid=4103, name=python, GPU has fallen off the bus. GPU-8f2a1c3d-0b4e-4f6a-9d7c-2e1f0a9b8c7d
saving checkpoint to s3://models/gpt/step=00012340/shard-00003-of-00064.safetensors (11.2 GiB, 812 MB/s, etag "9b2cf535f27731c974343645a3985328-17")
Loading https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/model-00001-of-00004.safetensors?download=true
docker://nvcr.io/nvidia/pytorch:26.05-py3@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
git+ssh://git@github.com/ada/gpt.git@1d2c3b4a5f6e7d8c9b0a1f2e3d4c5b6a7f8e9d0c#egg=gpt
PWD=/workspace/gpt OLDPWD=/home/ada SSH_KEY_PATH=/home/ada/.ssh/id_rsa GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/key.json private_key=/etc/ssl/key.pem
password_file: /run/secrets/db, token_file=/var/run/secrets/kubernetes.io/serviceaccount/token, secretName: registry, password=${DB_PASSWORD}
HF_TOKEN=$HF_TOKEN API_KEY=${API_KEY:-} password=******** token=<redacted> api_key: "<your key>" secret={{ secrets.X }} password=None
password="${DB_PASSWORD}" token='${{ secrets.HF_TOKEN }}' secret="{{ vault.key }}" api_key="{api_key}" password="%(password)s" zip pwd: expected bytes
forward pass 12.3 ms, backward pass 30.1 ms, key_padding_mask=None, is_causal=True, num_key_value_heads: 8, key dim 128, query/key/value fused
Basic data augmentation enabled; basic tokenizer; bearer of bad news: authentication failed for rank 3; Authorization failed: 403 Forbidden
a secret: to train well, keep the learning rate low; the secret: 42; shared secret is not set; skipping the secret tests 12345678
slurmstepd: error: *** JOB 91234 ON node-a CANCELLED AT 2026-11-30T03:14:07 DUE TO TIME LIMIT ***
uuid 550e8400-e29b-41d4-a716-446655440000 run_id=550e8400e29b41d4a716446655440000 rdzv id 100 attempt a1 etag W/"0815" md5 d41d8cd98f00b204e9800998ecf8427e
0it [00:00, ?it/s]  12%|█▏        | 123/1000 [00:12<01:27, 10.03it/s, loss=2.35, token_acc=0.61, lr=3e-4]
-----BEGIN CERTIFICATE----- and disk-encryption-at-rest-enabled, task-0123456789abcdef0123456789abcdef, sk-learn-like-estimators-are-supported
mask eyJhbGciOiJub25lIn0 alone is base64 and no token; x86_64-conda-linux-gnu; NVIDIA-SMI 570.86; ASIAN-PACIFIC; glove-t-sne-embedding-with-perplexity
Traceback (most recent call last): raise ValueError("bad batch 7f3a at index 0x7f3a5c0012d0") # see issue 1234
损失 2.3456 学习率 3e-4 令牌: 12345 训练步 1234 吞吐 12,345 样本/秒
"""


def redacted(kind: str) -> str:
    return f"[redacted:{kind}]"


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("kind", "secret"), [(kind, secret) for kind, found in KNOWN.items() for secret in found])
def test_a_known_form_goes_wherever_it_stands_and_the_rest_stays(kind: str, secret: str, around: str) -> None:
    assert REDACTOR.redact(around.format(secret)) == around.format(redacted(kind))


@pytest.mark.parametrize(("kind", "line", "secret"), NAMED)
def test_what_a_name_calls_secret_goes_and_the_rest_stays(kind: str, line: str, secret: str) -> None:
    assert line.count(secret) == 1
    assert REDACTOR.redact(line) == line.replace(secret, redacted(kind))


COLUMNS = [before + sign for before in ("", " ", "  ", "\t", " \t", "\t ", "      ") for sign in ("=", ":", " => ", ' : "', "='")]


@pytest.mark.parametrize("between", [*COLUMNS, '": "', "'] = '", '\\": \\"', "': b'"])
@pytest.mark.parametrize("name", ["hf_token", "token", "CLIENT_SECRET", "password", "api-key"])
def test_a_name_and_its_secret_may_be_set_in_columns(name: str, between: str) -> None:
    found = REDACTOR.redact(f"{name}{between}{FILL[:20]}' and more")
    assert re.fullmatch(rf"{name}{re.escape(between)}\[redacted:[a-z-]+\].*", found)
    assert FILL[:20] not in found


def test_a_private_key_goes_with_all_its_lines_also_where_its_end_was_cut_off() -> None:
    assert REDACTOR.redact(f"loaded\n{PEM}\nok") == f"loaded\n{redacted('private-key')}\nok"
    assert REDACTOR.redact(f"loaded\n{PEM[:200]}") == f"loaded\n{redacted('private-key')}"
    inline = PEM.replace("\n", "\\n")
    assert REDACTOR.redact(f'{{"pem": "{inline}"}}') == f'{{"pem": "{redacted("private-key")}"}}'


def test_every_rule_is_tried_here() -> None:
    assert {rule.kind for rule in RULES} == {*KNOWN, *(kind for kind, _, _ in NAMED), "private-key"}


def test_several_secrets_in_one_line_go_each_by_itself() -> None:
    line = f"https://ada:pw1@h/ api_key={FILL[:20]} key={KNOWN['aws-key'][0]} password='x y' step 3"
    expected = f"https://ada:{redacted('url-password')}@h/ api_key={redacted('api-key')} key={redacted('aws-key')} password='{redacted('password')}' step 3"
    assert REDACTOR.redact(line) == expected


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_output_passes_as_the_same_object(line: str) -> None:
    assert REDACTOR.redact(line) is line


def test_ordinary_output_passes_in_one_piece_too() -> None:
    assert REDACTOR.redact(ORDINARY) is ORDINARY


LINES = ("step {} done", "{}", "id {}, next", "saved to /data/{}/x.pt", "run={} rank=3", '{{"name": "{}"}}', "hash: {}", "at {}: key {}", "tokens {}")


@given(st.sampled_from(LINES), st.one_of(st.binary(min_size=4, max_size=32).map(bytes.hex), st.uuids().map(str), st.integers().map(str), st.floats().map(repr)))
def test_ids_and_numbers_stay(line: str, value: str) -> None:
    text = line.format(*[value] * line.count("{}"))
    assert REDACTOR.redact(text) is text


@given(st.lists(st.from_regex(r"[a-z0-9_.-]{1,20}", fullmatch=True), min_size=1, max_size=8))
def test_paths_stay(parts: list[str]) -> None:
    for text in ("/" + "/".join(parts), "s3://" + "/".join(parts), f'  File "/{"/".join(parts)}.py", line 3, in f', f"password_file=/{parts[0]}"):
        assert REDACTOR.redact(text) is text


FRAGMENTS = st.sampled_from(
    [
        "password",
        "token",
        "api_key",
        "secret",
        "Bearer",
        "Authorization",
        "AKIA",
        "hf_",
        "sk-",
        "eyJ",
        "://",
        "@",
        ":",
        "=",
        '"',
        "'",
        "\\",
        " ",
        "\t",
        "\n",
        ",",
        "-",
    ]
    + [
        "--",
        ".",
        "?sig=",
        "]",
        "{",
        "$",
        "<",
        "-----BEGIN",
        " PRIVATE KEY-----",
        "wandb login ",
        "IA",
        "gh",
        "p_",
        "x",
        "7",
        FILL[:20],
        UPPER[:16],
        HEX[:40],
        "令",
    ]
)
TEXTS = st.one_of(st.text(max_size=200), st.lists(FRAGMENTS, max_size=24).map("".join))


@given(TEXTS)
@example("token \t\t =" + FILL[:12])
@example("--hftoken abcdefgh")
@example('"PRIVATE_KEY" => \'' + FILL[:12])
@example(PEM)
def test_the_literals_hold_back_nothing_that_the_rules_would_find(text: str) -> None:
    found = text
    for finder in REDACTOR._finders:
        found = finder.replace(found)
    assert REDACTOR.redact(text) == found


@given(TEXTS)
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    once = REDACTOR.redact(text)
    assert REDACTOR.redact(once) is once


@given(st.sampled_from([line for _, line, _ in NAMED] + [KNOWN["jwt"][0], PEM]), st.text(max_size=40), st.text(max_size=40))
def test_nothing_but_secrets_is_lost(line: str, before: str, after: str) -> None:
    text = f"{before} {line} {after}"
    pieces = re.split(r"\[redacted:[a-z-]+\]", REDACTOR.redact(text))
    assert len(pieces) >= 2
    place = 0
    for piece in pieces:
        place = text.index(piece, place) + len(piece)


HOSTILE = [
    "a",
    "eyJ",
    "eyJ.",
    "sk-",
    "://",
    "://a:",
    "://a:b",
    "token",
    "token=",
    "token = ",
    "password=",
    'password="',
    "password='\\",
    "-----BEGIN PRIVATE KEY-----",
]
HOSTILE += [
    "-",
    "--token ",
    "--api-key",
    "key",
    "api_key",
    "=",
    ":",
    " ",
    "\\",
    '"',
    "'",
    "[",
    "$",
    "${",
    "<",
    "*",
    "bearer ",
    "authorization: ",
    "login x password",
]
HOSTILE += [
    "8Q~",
    "gh",
    "ghp_",
    "wandb login ",
    "hooks.slack.com/services/",
    "?sig=",
    "&",
    "secret: a1",
    "api_key=a.",
    "password=,",
    "\n",
    "\\'",
    "x." * 40,
    "a_",
    "~/a",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_line_takes_for_ever(piece: str) -> None:
    """64 KB is the longest record there is; an expression that backtracks would meet the suite's time limit here."""
    for text in (piece * (65_536 // len(piece)), piece * (32_768 // len(piece)) + "\x00" * 32_768, "password=" + piece * (65_536 // len(piece))):
        assert isinstance(REDACTOR.redact(text), str)


@given(st.lists(FRAGMENTS, min_size=1, max_size=4).map("".join))
def test_no_repetition_takes_for_ever(piece: str) -> None:
    assert isinstance(REDACTOR.redact(piece * (16_384 // len(piece))), str)


def record(body: str | None = None, **attributes: Value) -> Record:
    return Record(id="a-1", time_ns=1, kind="log", name=names.LOG, identity=Identity(rank=0), body=body, attributes=attributes)


def test_a_record_without_secrets_is_the_same_object() -> None:
    for found in (record("step 3 loss 2.1", where="train.py:3", count=3), record(None), record("")):
        assert REDACTOR.redact_record(found) is found


def test_a_records_body_and_text_attributes_are_redacted_and_nothing_else() -> None:
    found = record("password=hunter2", **{"exception.message": "token: " + FILL[:16], "step": 3, "ratio": 0.5, "on": True, "log.logger": "root"})
    assert REDACTOR.redact_record(found) == record(
        f"password={redacted('password')}",
        **{"exception.message": f"token: {redacted('token')}", "step": 3, "ratio": 0.5, "on": True, "log.logger": "root"},
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("password", "password"),
        ("db.password", "password"),
        ("api_key", "api-key"),
        ("hf_token", "token"),
        ("client_secret", "secret"),
        ("Authorization", "authorization"),
    ]
    + [
        ("token", ""),
        ("pad_token", ""),
        ("tokens", ""),
        ("key", ""),
        ("step", ""),
        ("password_file", ""),
        ("llmtrace.metric.name", ""),
        ("exception.message", ""),
    ],
)
def test_an_attribute_whose_name_calls_it_secret_goes_as_a_whole(name: str, kind: str) -> None:
    assert kind_of_name(name) == kind
    found = REDACTOR.redact_record(record("x", **{name: "plain words"})).attributes[name]
    assert found == (redacted(kind) if kind else "plain words")


def test_the_users_own_expressions_are_added_and_a_bad_one_is_left_out_with_a_warning() -> None:
    before = len(guard.warnings)
    redactor = make_redactor(resolve({"redact_patterns": "# employees\nEMP-\\d{6}\n\n(unclosed\nproject (\\w+-x)"}, {}, ""))
    assert (
        redactor.redact("EMP-123456 on project blue-x password=hunter2") == f"{redacted(CUSTOM)} on project {redacted(CUSTOM)} password={redacted('password')}"
    )
    assert redactor.redact("EMP-12 on project blue") == "EMP-12 on project blue"
    assert [warning for warning in guard.warnings[before:] if "'(unclosed' is left out" in warning]


def test_an_expression_that_matches_nothing_at_all_redacts_nothing() -> None:
    redactor = make_redactor(resolve({"redact_patterns": "x*"}, {}, ""))
    assert redactor.redact("a xx b") == f"a {redacted(CUSTOM)} b"


def test_the_users_own_expressions_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "patterns").write_text("# ours\nEMP-\\d{6}\n")
    redactor = make_redactor(resolve({}, {"LLMTRACE_REDACT_PATTERNS": f"@{tmp_path}/patterns"}, ""))
    assert redactor.redact("EMP-123456") == redacted(CUSTOM)
    before = len(guard.warnings)
    assert make_redactor(resolve({}, {"LLMTRACE_REDACT_PATTERNS": f"@{tmp_path}/none"}, "")).redact("password=hunter2") == f"password={redacted('password')}"
    assert [warning for warning in guard.warnings[before:] if "none" in warning]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@given(st.text(max_size=30))
def test_whatever_the_user_writes_does_not_raise(text: str) -> None:
    redactor = make_redactor(resolve({}, {"LLMTRACE_REDACT_PATTERNS": text.replace("\0", "").removeprefix("@")}, ""))
    assert isinstance(redactor.redact("step 3 of 4"), str)


def test_the_switch_turns_it_off() -> None:
    redactor = make_redactor(resolve({}, {"LLMTRACE_REDACT": "0", "LLMTRACE_REDACT_PATTERNS": "."}, ""))
    found = record("password=hunter2", password="hunter2")
    assert redactor.redact("password=hunter2") == "password=hunter2"
    assert redactor.redact_record(found) is found


def test_a_context_is_redacted_in_its_records_and_its_incident_and_else_the_same() -> None:
    context = exception()
    assert redact_context(context, REDACTOR) is context
    assert context.incident is not None
    secret = KNOWN["huggingface-token"][0]
    line = Record(id="b-1", time_ns=ONSET, kind="log", name=names.LOG, identity=context.records[0].identity, body=f"login with {secret}")
    incident = msgspec.structs.replace(
        context.incident, summary=f"rank 3 raised ValueError: {secret}", reason=f"password={secret[:12]}", links={"page": f"http://h/?token={secret}"}
    )
    found = redact_context(msgspec.structs.replace(context, records=[*context.records, line], incident=incident), REDACTOR)
    assert secret.encode() not in msgspec.json.encode(found)
    assert found.incident is not None
    assert found.incident.summary == f"rank 3 raised ValueError: {redacted('huggingface-token')}"
    assert found.records[:-1] == context.records
    assert found.records[-1].body == f"login with {redacted('huggingface-token')}"
    assert (found.trace_id, found.window, found.processes) == (TRACE, context.window, context.processes)


def test_a_context_is_redacted_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    context = exception()
    line = Record(id="b-1", time_ns=ONSET, kind="log", name=names.LOG, identity=context.records[0].identity, body="password=hunter2 EMP-1")
    context = msgspec.structs.replace(context, records=[line])
    assert redact_context(context).records[0].body == f"password={redacted('password')} EMP-1"
    monkeypatch.setenv("LLMTRACE_REDACT_PATTERNS", r"EMP-\d")
    assert redact_context(context).records[0].body == f"password={redacted('password')} {redacted(CUSTOM)}"
    monkeypatch.setenv("LLMTRACE_REDACT", "0")
    assert redact_context(context) is context


def test_the_reference_names_every_kind_as_the_code_does() -> None:
    rows = [line for line in REFERENCE.read_text().splitlines() if line.startswith("| `")]
    expected = [f"| `{rule.kind}` | {rule.what} | {', '.join(f'`{look}`' for look in rule.looks)} |" for rule in RULES]
    assert [row for row in rows if row.startswith("| `") and "LLMTRACE_" not in row] == expected


@given(st.uuids())
def test_a_uuid_under_a_secret_name_goes(value: uuid.UUID) -> None:
    assert REDACTOR.redact(f"api_key={value}") == f"api_key={redacted('api-key')}"
