"""One file a signal. Each module holds `instrument`: its name, what it requires, and `install(tracer)`, which returns the undo.

Instruments do not import each other; what one learns it publishes through the tracer, and others subscribe.
"""
