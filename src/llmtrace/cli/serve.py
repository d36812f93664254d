"""`serve`: runs, incidents and their pages over HTTP."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from .shared import Dirs, SourceKind, refuse

if TYPE_CHECKING:
    from ..show.server.wire import Server

PORT: Final = 8344
SHORTEST: Final = 12
"""Characters of a token that somebody chose."""


def serve(
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; any address but a loopback one asks readers for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", envvar="LLMTRACE_SERVE_TOKEN", help="Also from LLMTRACE_SERVE_TOKEN; else one is made where one is needed."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser, where there is a display.")] = False,
    dirs: Dirs = None,
    source: SourceKind = "journal",
) -> None:
    """Serve runs, incidents and pages over HTTP.

    The journals are read anew for each request; Ctrl-C ends it.
    """
    if source != "journal":
        refuse(f"--source {source} is not there yet; allowed: journal", 2)
    _check_dirs(dirs)
    loopback = _is_loopback(host)
    token = _token(token, loopback)
    server = _listening(host, port, token, loopback, dirs or [], source)
    address = f"http://{_in_url(host)}:{server.server_port}/" + (f"?token={token}" if token else "")
    print(f"Runs and incidents are at {address} (Ctrl-C ends it)", flush=True)
    if open_it:
        from .browser import show

        show(address)
    _run(server)


def _check_dirs(dirs: list[str] | None) -> None:
    """A folder that is not there is a slip, and said at once; one without a journal yet may get one."""
    import os

    for name in dirs or ():
        if not os.path.isdir(name):
            refuse(f"--dir {name}: there is no such folder")


def _is_loopback(host: str) -> bool:
    from ..show.server.security import is_loopback

    return is_loopback(host.strip("[]").lower())


def _token(given: str | None, loopback: bool) -> str | None:
    if given is None:
        if loopback:
            return None
        import secrets

        return secrets.token_urlsafe(24)
    if len(given) < SHORTEST or not given.isascii() or not given.isprintable() or " " in given:
        refuse(f"--token: at least {SHORTEST} letters, digits and signs, no blanks", 2)
    return given


def _listening(host: str, port: int, token: str | None, loopback: bool, dirs: list[str], source: str) -> Server:
    from ..config import resolve
    from ..show.advice import reading_options
    from ..show.server.routes import Site
    from ..show.server.security import Access
    from ..show.server.wire import Server
    from ..sources.open import open_source

    config = resolve()
    access = Access(token, _names(config.page_url), check_host=loopback)
    site = Site(lambda: open_source(dirs, source), access, reading_options(dirs, config))
    try:
        return Server(host.strip("[]"), port, site.reply, site.refuse)
    except (OSError, UnicodeError) as error:
        reason = "somebody else listens there" if _is_taken(error) else getattr(error, "strerror", None) or str(error)
        refuse(f"cannot listen at {host}:{port}: {reason}")


def _is_taken(error: Exception) -> bool:
    import errno

    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def _names(page_url: str) -> list[str]:
    """The name by which a proxy of ours is reached: LLMTRACE_PAGE_URL's."""
    from urllib.parse import urlsplit

    name = urlsplit(page_url).hostname
    return [name] if name else []


def _in_url(host: str) -> str:
    """The name to reach it by; a machine's own where it listens at all its addresses."""
    import socket

    host = host.strip("[]")
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _run(server: Server) -> None:
    def leave(number: int, _: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a browser that leaves in the middle of an answer ends that answer alone
    try:
        server.serve_forever(poll_interval=0.5)
    except KeyboardInterrupt:
        print("", file=sys.stderr)
    finally:
        server.server_close()
