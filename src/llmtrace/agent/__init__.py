"""The one process beside the ranks of a node: rings in, journal out, deaths and incidents seen on the way. Never imports torch."""
