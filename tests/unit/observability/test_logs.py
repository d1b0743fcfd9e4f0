"""Log lines: session ids, formats, and what must never be in them."""

from __future__ import annotations

import io
import json
import logging

import pytest

from session_server.observability.logs import Private, configure_logging, redact, session_log

pytestmark = pytest.mark.unit

LOG = logging.getLogger("session_server.test")


@pytest.fixture
def lines():
    """Configures logging; call the returned function with arguments, then read the lines."""
    undo = []
    stream = io.StringIO()

    def configure(**options):
        undo.append(configure_logging(stream=stream, **options))
        return stream

    yield configure
    for each in undo:
        each()


def test_the_root_logger_is_left_alone(lines):
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    lines(format="json")
    assert (root.level, list(root.handlers)) == before


def test_undo_restores_our_loggers(lines):
    logger = logging.getLogger("session_server")
    before = (logger.level, logger.propagate, list(logger.handlers))
    configure_logging(stream=io.StringIO())()
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_every_line_has_the_session_id(lines):
    stream = lines(format="text")
    session_log(LOG, "sess_1").info("opened")
    LOG.info("listening")
    first, second = stream.getvalue().splitlines()
    assert "[sess_1] opened" in first
    assert "[-] listening" in second


def test_json_lines_are_json_with_the_session(lines):
    stream = lines(format="json")
    session_log(LOG, "sess_1").warning("late by %d ms", 7)
    record = json.loads(stream.getvalue())
    assert record["session"] == "sess_1"
    assert record["level"] == "warning"
    assert record["message"] == "late by 7 ms"


def test_a_traceback_stays_in_its_json_line(lines):
    stream = lines(format="json")
    try:
        raise RuntimeError("Authorization: Bearer abc123secret")
    except RuntimeError:
        LOG.exception("failed")
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert "RuntimeError" in record["traceback"]
    assert "abc123secret" not in line


def test_what_was_said_is_not_in_the_log_at_info(lines):
    stream = lines(level="debug")
    LOG.info("heard %s", Private("my card number"))
    assert "card" not in stream.getvalue()
    assert "<14 characters>" in stream.getvalue()
    LOG.debug("heard %s", Private("my card number"))
    assert "my card number" in stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer KEYKEYKEY",
        "{'Authorization': 'Bearer KEYKEYKEY'}",
        "subprotocols realtime, openai-insecure-api-key.KEYKEYKEY",
        "key ek_KEYKEYKEY0123",
        "key sk-KEYKEYKEY0123",
        "resume_token=KEYKEYKEY",
    ],
)
def test_credentials_are_cut_out(text):
    assert "KEYKEYKEY" not in redact(text)
    assert "[redacted]" in redact(text)


def test_ordinary_text_is_left_as_it_is():
    text = "response resp_0001 cancelled after 1200 ms; the bearer of news, sk-i"
    assert redact(text) == text


def test_level_holds_back_lower_lines(lines):
    stream = lines(level="warning")
    LOG.info("quiet")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("options", [{"level": "loud"}, {"format": "xml"}])
def test_wrong_options_are_named(options):
    with pytest.raises(ValueError, match="is not one of"):
        configure_logging(**options)
