"""One file a source of facts about the node."""
