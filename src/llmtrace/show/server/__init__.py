"""`llmtrace serve`: runs, incidents and their pages over HTTP, read anew from the journals at each request."""
