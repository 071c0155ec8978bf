"""What ends a gate without a judgement."""


class GateError(Exception):
    """One line: what is broken, naming the field, its value and what is allowed."""
