"""The command line: one file a group of commands. Start-up stays quick: what a command needs is imported when it runs."""
