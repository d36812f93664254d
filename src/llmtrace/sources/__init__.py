"""Reading back: a journal, or several, as records, processes and incidents; and the window that a person asks for."""
