"""The three template engines behind one call: render a list of (template, context) pairs."""

import datetime
import json
import re
import subprocess
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).resolve().parent
FIXED_TIME = datetime.datetime(2024, 1, 2, 3, 4, 5)  # the probe's moment, too
# Text that holds an address of the Python process and so has no counterpart.
ADDRESS = re.compile(r"(object|method|function|generator|iterator|range).* at 0x|<(built-in|bound)|"
                     r"_iterator|<class ")


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}`: a call block around its body, as the released pipelines make it."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


class Jinja2Engine:
    name = "Jinja2 " + jinja2.__version__

    def __init__(self, fold_constants=True):
        # Folding gives some wrong constant expressions another meaning: `true[0:1]` becomes undefined.
        self.environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols],
            optimized=fold_constants)
        self.environment.filters["tojson"] = tojson
        self.environment.globals["raise_exception"] = raise_exception
        self.environment.globals["strftime_now"] = FIXED_TIME.strftime
        self.parsed = {}

    def render_one(self, template, context):
        try:
            if template not in self.parsed:
                self.parsed[template] = self.environment.from_string(template)
            return {"output": self.parsed[template].render(**json.loads(json.dumps(context)))}
        except Exception as error:  # any failure of the template counts as one
            return {"error": f"{type(error).__name__}: {error}"}

    def render(self, pairs):
        return [self.render_one(template, context) for template, context in pairs]


class LineEngine:
    """A program that answers one JSON line per JSON line."""

    def __init__(self, name, command, cwd=None):
        self.name = name
        self.command = command
        self.cwd = cwd

    def render(self, pairs):
        lines = "".join(json.dumps({"template": template, "context": context}) + "\n"
                        for template, context in pairs)
        done = subprocess.run(self.command, input=lines.encode(), stdout=subprocess.PIPE,
                              cwd=self.cwd, check=True)
        answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        if len(answers) != len(pairs):
            raise SystemExit(f"{self.name}: {len(answers)} answers to {len(pairs)} requests")
        return answers


def motley_engine(probe):
    return LineEngine("motley", [str(probe)])


def huggingface_engine(packages):
    # Node finds packages from the script's own folder, so the script is placed beside them.
    script = packages / "huggingface.mjs"
    script.write_text((HERE / "huggingface.mjs").read_text())
    version = json.loads((packages / "node_modules/@huggingface/jinja/package.json").read_text())
    return LineEngine("@huggingface/jinja " + version["version"], ["node", str(script)], packages)


def has_address(answer):
    return "output" in answer and ADDRESS.search(answer["output"]) is not None


def agree(left, right):
    if "error" in left or "error" in right:
        return "error" in left and "error" in right
    return left["output"] == right["output"]
