"""Write paths into the configuration files of other programs, whatever characters the paths have."""

import os
import re
from pathlib import Path

# Java takes the encoding of file names from the locale, and in C cannot open names outside ASCII.
JAVA_LOCALE = {"LC_ALL": "C.UTF-8"}


def property_value(value: str | os.PathLike[str]) -> str:
    """Return the value for a Java properties file, which holds Latin-1 only and treats backslashes as escapes."""
    escaped = os.fspath(value).replace("\\", "\\\\")
    return "".join(sign if sign.isascii() else _unicode_escapes(sign) for sign in escaped)


def with_log_file(configuration: str, file: Path) -> str:
    """Return a Log4j configuration with ``{file}`` and ``{pattern}`` replaced by those of a file that rolls over."""
    name = str(file).replace("${", "$${")  # Otherwise Log4j looks a variable up.
    pattern = property_value(name.replace("%", "%%") + ".%i")
    return configuration.replace("{pattern}", pattern).replace("{file}", property_value(name))


def quoted(value: str | os.PathLike[str]) -> str:
    """Return the value in double quotes, as Valkey and Java's login configurations read it."""
    escaped = os.fspath(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def literal_glob(path: Path) -> str:
    """Return the argument that means this file to Valkey, which expands ``*``, ``?`` and ``[`` in a file's name."""
    text = str(path)
    return re.sub(r"([\\*?\[])", r"\\\1", text) if set(text) & set("*?[") else text


def _unicode_escapes(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
