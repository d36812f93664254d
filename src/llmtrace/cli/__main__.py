"""`python -m llmtrace.cli`: the command without its script, for whoever has only the interpreter (the agent, writing a page)."""

from .main import main

if __name__ == "__main__":
    main()
