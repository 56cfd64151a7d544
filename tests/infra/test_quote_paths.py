"""Paths in the configuration of Java's programs and Valkey."""

from pathlib import Path

from regraft.infra.process.quote_paths import literal_glob, property_value, quoted, with_log_file


def test_a_property_holds_any_path() -> None:
    """Backslashes are doubled, letters outside ASCII are Java's UTF-16 escapes, the rest stays."""
    assert property_value("/a b/50%#1") == "/a b/50%#1"
    assert property_value("/c\\d") == "/c\\\\d"
    assert property_value("/ł😀") == "/\\u0142\\ud83d\\ude00"


def test_a_log_file_is_neither_a_pattern_nor_a_variable() -> None:
    """Log4j would take ``%d`` of a directory for a date in the pattern, and look ``${x}`` up."""
    assert with_log_file("a={file}\nb={pattern}\n", Path("/%d/${x}.log")) == "a=/%d/$${x}.log\nb=/%%d/$${x}.log.%i\n"


def test_quotes_within_quotes_are_escaped() -> None:
    """A path with quotes stays one word."""
    assert quoted('/a "b"') == '"/a \\"b\\""'


def test_a_file_with_a_glob_in_its_name_is_found_by_the_name_alone() -> None:
    """A name without a glob is not escaped, because Valkey then opens it as it is."""
    assert literal_glob(Path("/a\\b")) == "/a\\b"
    assert literal_glob(Path("/a\\b?[")) == "/a\\\\b\\?\\["
