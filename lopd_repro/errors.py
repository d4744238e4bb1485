"""Errors a user can mend: the command line prints their one line and exits with 2."""


class UserError(Exception):
    """Bad input. The message names the file or option, what was found and what is allowed."""
