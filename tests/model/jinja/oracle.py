"""Jinja2 as Hugging Face transformers sets it up for chat templates: what Troupe's renderer must match."""

import functools
import json
from datetime import datetime, timezone

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """`{% generation %}` marks what the assistant says; what it holds is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


@functools.lru_cache
def environment(now_unix_s):
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    now = datetime.fromtimestamp(now_unix_s, timezone.utc)
    made.globals["strftime_now"] = now.strftime
    return made


@functools.lru_cache(maxsize=8)
def compiled(text, now_unix_s):
    return environment(now_unix_s).from_string(text)


def rendered_by_jinja(order):
    """{"text"} or {"error"}, as render_templates answers."""
    try:
        template = compiled(order["template"], order.get("now_unix_s", 0))
        return {"text": template.render(**order["variables"])}
    except Exception as error:  # Python's own come through: a bad index, a sum of text and number
        return {"error": str(error)}
