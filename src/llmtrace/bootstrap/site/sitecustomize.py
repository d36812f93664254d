"""On PYTHONPATH under `llmtrace run`, where no .pth is installed: begins tracing, then runs the sitecustomize it stands before."""

import os
import sys


def activate() -> None:
    try:
        from llmtrace.bootstrap import activate as begin
    except ImportError:  # another Python, without llmtrace: this command is not for us
        return
    begin()


def run_the_next() -> None:
    """Find the sitecustomize that would have run without us, and run it in our place."""
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [folder for folder in sys.path if os.path.abspath(folder) != here]
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find("sitecustomize", elsewhere, None) if find else None
        if spec is not None and spec.loader is not None and spec.origin and os.path.dirname(os.path.abspath(spec.origin)) != here:
            module = sys.modules[__name__]
            module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
            spec.loader.exec_module(module)
            return


activate()
run_the_next()
