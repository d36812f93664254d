"""Who may read: whoever reaches a loopback address by its own name, else whoever has the token; and what a page may do."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Collection
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlencode

from .answers import Answer, Asked, RefusedError

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""With every answer. `no-store`: logs of a job are nothing to leave in a shared machine's cache."""

CLOSED: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The policy of what is no page."""

_SCRIPT: Final = re.compile(r"<script(?![^>]*\btype=[\"']?application/json)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_STYLE: Final = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")


class Access:
    """Decides over requests. Without a token all depends on the Host header: a page of elsewhere whose name leads to us has another."""

    def __init__(self, token: str | None, names: Collection[str] = (), *, check_host: bool) -> None:
        self._token, self._names, self._check_host = token, {name.lower() for name in names}, check_host

    def check(self, request: Asked) -> Answer | None:
        """None where the request may be answered; the answer that makes its token a cookie where it has one; else raises RefusedError."""
        if self._check_host and not self._is_ours(request.headers.get("host", "")):
            raise RefusedError(
                403, "The name by which this server was asked is not its own. It answers to localhost and 127.0.0.1, and to the name in LLMTRACE_PAGE_URL."
            )
        if self._token is None or self._has(request, self._token):
            return None
        if (given := request.query.get("token")) is not None and _same(given, self._token):
            return self._with_cookie(request, self._token)
        raise RefusedError(401, "This server asks for its token: open the address that it printed, with ?token=... at its end.", {"WWW-Authenticate": "Bearer"})

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        return match is not None and (is_loopback(name := match[1].lower().strip("[]")) or name in self._names)

    def _has(self, request: Asked, token: str) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), token):
            return "token" not in request.query
        cookies = SimpleCookie()
        try:
            cookies.load(request.headers.get("cookie", ""))
        except CookieError:
            return False
        found = cookies.get(cookie_name(token))
        return found is not None and _same(found.value, cookie_value(token)) and "token" not in request.query

    def _with_cookie(self, request: Asked, token: str) -> Answer:
        """To the same address without the token, which then stands in no history and no log. Relative: a proxy may have put a path before ours."""
        rest = {name: value for name, value in request.query.items() if name != "token"}
        where = f"./{quote(request.parts[-1], safe='')}" + (f"?{urlencode(rest)}" if rest else "")
        cookie = f"{cookie_name(token)}={cookie_value(token)}; Path=/; HttpOnly; SameSite=Lax"
        return Answer(status=303, headers={"Location": where, "Set-Cookie": cookie})


def cookie_name(token: str) -> str:
    """Each server's own: cookies know no ports, and several servers may run on a machine."""
    return f"llmtrace_{sha256(token.encode()).hexdigest()[:8]}"


def cookie_value(token: str) -> str:
    """Not the token itself: who reads it from a browser's files has this server's pages, and cannot share its address."""
    return hmac.new(token.encode(), b"llmtrace serve", sha256).hexdigest()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def policy(html: str) -> str:
    """The Content-Security-Policy of a page of ours: the scripts and styles that stand in it, and answers of this server; nothing else."""
    return (
        f"default-src 'none'; script-src {_hashes(_SCRIPT, html)}; style-src {_hashes(_STYLE, html)}; img-src data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _hashes(element: re.Pattern[str], html: str) -> str:
    digests = [b64encode(sha256(text.encode(errors="replace")).digest()).decode() for text in element.findall(html)]
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
