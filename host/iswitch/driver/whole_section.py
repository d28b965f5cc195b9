"""Sections of code that must run to their end, because what they change fits together only then."""

__all__ = ["WholeSection"]


class WholeSection:
    """`with section:` notes whether an exception has ended the block in its middle.

    A signal handler may raise an exception at any instruction of the main thread: KeyboardInterrupt of Ctrl-C, or the
    exception of an alarm. A program may catch it and go on. Then `is_torn` tells the next call that what the block
    changes is neither old nor new, so that the call raises an error in place of wrong data.

    Parameters
    ----------
    own_errors : tuple of exception types
        Errors that the block raises itself, at places where nothing is half done. A TimeoutError is never one of them,
        because alarms raise it.
    """

    def __init__(self, own_errors: tuple[type[BaseException], ...]):
        self._own_errors = own_errors
        self._inside = self._torn = False

    @property
    def is_torn(self) -> bool:
        """True if an exception has ended a block in its middle. It is also True within the block, so read it only where
        no other thread can be in the block."""
        return self._torn or self._inside

    def __enter__(self) -> None:
        self._torn |= self._inside
        self._inside = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, self._own_errors) and not issubclass(kind, TimeoutError):
            self._inside = False
