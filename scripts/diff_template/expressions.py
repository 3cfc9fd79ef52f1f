"""Seeded expressions over a small context."""

import random

CONTEXT = {
    "s": "Hello, World", "t": "  padded\ttext\n", "u": "Ünïcödé ß ΑΣ ﬁ 漢字 🙂", "e": "", "n": 7, "m": -3,
    "z": 0, "f": 2.5, "g": -0.125, "h": 1e16, "b": True, "c": False, "o": None, "l": [3, 1, 2],
    "k": ["b", "a", "C", "a"], "x": [], "d": {"a": 1, "b": "two", "items": [1], "c": None},
    "r": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25},
          {"name": "Cy", "age": 31, "tags": []}],
    "html": "<a href=\"x\">&'</a>", "q": {"x": {"y": [1, {"z": "deep"}]}}, "w": "one two  three\nfour",
}
STRINGS = ["s", "t", "u", "e", "html", "w", "'ab'", "'a,b,,c'", "\"it's\"", "'%s and %s'", "'x\\ny'", "''",
           "'Straße'", "'42'", "' 3.7 '", "'abcabc'", "'--x--'", "'é'", "d.b", "r[0].name", "'{}-{}'"]
NUMBERS = ["n", "m", "z", "0", "1", "2", "3", "-1", "10", "d.a", "l|length", "r[1].age", "loopless|default(4)"]
FLOATS = ["f", "g", "h", "0.5", "1e3", "2.0", "1e-7", "3.14159", "7/2"]
LISTS = ["l", "k", "x", "r", "[1, 'a', none]", "range(4)", "range(5, 0, -2)", "(1, 2)", "[[1, 2], [3]]",
         "d.keys()|list", "s.split(', ')", "w.split()", "[0.5, 1, true]"]
DICTS = ["d", "q", "r[0]", "{'k': 'v', 1: [2]}", "{}", "dict(a=1, b=2)", "q.x"]
ANYTHING = ["o", "b", "c", "missing", "d.nothing", "d['a']", "q.x.y[1].z", "q.x.y[5]", "s[0]", "l[-1]"]
STRING_METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "strip()", "lstrip()",
                  "rstrip()", "strip('-a ')", "replace('a', 'XY')", "replace('', '.', 2)", "split()",
                  "split(',')", "split('a', 1)", "rsplit(' ', 1)", "splitlines()", "startswith('a')",
                  "endswith(('x', 'd'))", "find('o')", "rfind('o', 2)", "count('a')", "center(9, '*')",
                  "ljust(6)", "rjust(6, '0')", "zfill(6)", "isdigit()", "isalpha()", "isspace()", "isupper()",
                  "islower()", "istitle()", "partition(',')", "rpartition('b')", "casefold()",
                  "removeprefix('He')", "removesuffix('ld')", "expandtabs(4)", "index('a')", "isalnum()",
                  "join(k)", "format(1, 'x')", "format(n, f)", "rsplit()", "split(none, 1)", "splitlines(true)",
                  "isidentifier()", "isnumeric()", "isprintable()"]
STRING_FILTERS = ["upper", "lower", "title", "capitalize", "trim", "trim('-x')", "length", "replace('a', 'b')",
                  "indent", "indent(2, true)", "indent('>', blank=true)", "truncate(5)", "truncate(8, true, '!')",
                  "wordcount", "reverse", "list", "first", "last", "int", "int(9)", "int(base=16)", "float",
                  "string", "tojson", "escape", "e", "safe", "center(11)", "default('x')", "default('x', true)",
                  "format(1, 2)", "count", "forceescape", "batch(3)|list", "unique|list", "sort|join",
                  "replace('a', '', 1)", "select|list", "map('upper')|join('.')", "truncate(6, leeway=0)",
                  "slice(3)|list", "string|upper", "max", "min", "join('-')", "tojson(ensure_ascii=true)"]
NUMBER_FILTERS = ["abs", "round", "round(1)", "round(-1)", "round(2, 'floor')", "round(0, 'ceil')", "int", "float",
                  "string", "tojson", "default(5)", "default(5, true)", "round(1)|int", "string|length"]
LIST_FILTERS = ["length", "first", "last", "join", "join('-')", "join(', ', attribute='name')", "list", "sort",
                "sort(reverse=true)", "sort(attribute='age')", "sort(attribute='age,name')", "reverse|list",
                "unique|list", "max", "min", "sum", "sum(attribute='age')", "sum(start=10)", "map('string')|list",
                "map(attribute='name')|list", "map(attribute='tags.0', default='-')|list", "select|list",
                "select('odd')|list", "reject('equalto', 1)|list", "selectattr('age', 'gt', 30)|list|length",
                "rejectattr('tags')|map(attribute='name')|list", "selectattr('name', 'in', ['bob'])|list",
                "batch(2)|list", "batch(2, 'z')|list", "slice(2)|list", "slice(2, '-')|list", "tojson",
                "tojson(indent=2)", "tojson(separators=(',', ':'))", "string", "groupby('age')|list",
                "groupby('age')|map(attribute='grouper')|list", "map('upper')|join(',')", "sort(case_sensitive=true)",
                "unique(attribute='age')|list|length", "max(attribute='age')", "map('length')|list", "count",
                "select('string')|list", "selectattr('tags', 'defined')|list|length", "default('d')", "sort|first",
                "map('tojson')|join(' ')", "map('int')|sum", "reject('none')|list"]
DICT_FILTERS = ["length", "items|list", "dictsort", "dictsort(by='value')", "dictsort(reverse=true)", "tojson",
                "tojson(sort_keys=true)", "tojson(indent=1, sort_keys=true)", "list", "string", "first",
                "items|map('first')|join", "default('x')", "tojson(indent=4)", "count", "attr('get') is defined"]
DICT_METHODS = ["items()|list", "keys()|list", "values()|list", "get('a')", "get('zz')", "get('zz', 5)", "items()",
                "keys()", "values()", "copy()", "get(1)", "a", "b", "x.y"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false",
         "mapping", "sequence", "iterable", "callable", "odd", "even", "divisibleby 2", "divisibleby(3)", "lower",
         "upper", "eq 1", "equalto('ab')", "ne 2", "lt 3", "le 3", "gt 0", "ge 7", "in l", "in k", "in s", "in d",
         "sameas none", "sameas(true)", "escaped", "filter", "test", "greaterthan 2", "lessthan(2)", "not none",
         "not defined", "not in x"]


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, *makers):
        return self.rng.choice(makers)()

    def any(self, depth):
        kind = self.rng.choice(["text", "text", "number", "list", "dict", "truth", "leaf"])
        if kind == "leaf":
            return self.rng.choice(ANYTHING)
        return getattr(self, kind)(depth)

    def wrong(self, depth, maker):
        """Mostly the wanted type, now and then any other."""
        return self.any(depth) if self.rng.random() < 0.06 else maker(depth)

    def text(self, depth):
        if depth <= 0:
            return self.rng.choice(STRINGS)
        text = lambda: self.wrong(depth - 1, self.text)
        number = lambda: self.wrong(depth - 1, self.number)
        return self.pick(
            lambda: f"({text()})|{self.rng.choice(STRING_FILTERS)}",
            lambda: f"({text()}).{self.rng.choice(STRING_METHODS)}",
            lambda: f"({text()} + {text()})", lambda: f"{text()} ~ {number()}",
            lambda: f"({text()})[{self.slice(depth)}]", lambda: f"({text()})[{number()}]",
            lambda: f"({text()} * {self.rng.randint(0, 3)})",
            lambda: f"({text()} if {self.truth(depth - 1)} else {text()})",
            lambda: f"({text()} if {self.truth(depth - 1)})", lambda: f"'%s:%r' % ({text()}, {text()})",
            lambda: f"'%05.1f|%-4d|%x' % ({number()}, {number()}, {number()})",
            lambda: f"'{{:>8}}|{{:<3}}|{{:^7}}'.format({text()}, {text()}, {number()})",
            lambda: f"{text()} ~ {self.any(depth - 1)} ~ {self.any(depth - 1)}",
            lambda: f"({text()} or {text()})", lambda: f"({text()} and {text()})")

    def slice(self, depth):
        part = lambda: self.rng.choice(["", "", "1", "-2", "n", "m", "3", "0"])
        return part() + ":" + part() + self.rng.choice(["", "", ":2", ":-1", ":-2", ":"])

    def number(self, depth):
        if depth <= 0:
            return self.rng.choice(NUMBERS + FLOATS)
        number = lambda: self.wrong(depth - 1, self.number)
        operator = self.rng.choice(["+", "-", "*", "/", "//", "%"])
        return self.pick(
            lambda: f"({number()} {operator} {number()})", lambda: f"({number()} {operator} {number()})",
            lambda: f"({number()})|{self.rng.choice(NUMBER_FILTERS)}", lambda: f"-({number()})",
            lambda: f"({self.rng.choice(NUMBERS)} ** {self.rng.randint(0, 4)})",
            lambda: f"({self.wrong(depth - 1, self.list)})|length", lambda: f"{number()} % {number()}",
            lambda: f"({number()} if {self.truth(depth - 1)} else {number()})", lambda: f"-{number()}|abs")

    def list(self, depth):
        if depth <= 0:
            return self.rng.choice(LISTS)
        items = lambda: self.wrong(depth - 1, self.list)
        return self.pick(
            lambda: f"({items()})|{self.rng.choice(LIST_FILTERS)}", lambda: f"({items()})|{self.rng.choice(LIST_FILTERS)}",
            lambda: f"({items()})[{self.slice(depth)}]", lambda: f"({items()} + {items()})",
            lambda: f"[{self.any(depth - 1)}, {self.any(depth - 1)}]", lambda: f"({items()})[{self.number(depth - 1)}]",
            lambda: f"({items()} * 2)", lambda: f"({items()}).{self.rng.choice(['count(1)', 'index(1)', 'copy()'])}",
            lambda: f"({self.any(depth - 1)}, {self.any(depth - 1)},)")

    def dict(self, depth):
        if depth <= 0:
            return self.rng.choice(DICTS)
        value = lambda: self.wrong(depth - 1, self.dict)
        return self.pick(
            lambda: f"({value()})|{self.rng.choice(DICT_FILTERS)}", lambda: f"({value()}).{self.rng.choice(DICT_METHODS)}",
            lambda: f"({value()})['{self.rng.choice(['a', 'b', 'k', 'name', 'items'])}']",
            lambda: f"{{'p': {self.any(depth - 1)}, {self.rng.choice(['1', 'true', 'n', 's'])}: {self.any(depth - 1)}}}",
            lambda: f"dict({value()}, z={self.any(depth - 1)})")

    def truth(self, depth):
        if depth <= 0:
            return self.rng.choice(["b", "c", "true", "false", "o", "n", "x", "missing"])
        any_value = lambda: self.any(depth - 1)
        order = self.rng.choice(["==", "!=", "<", "<=", ">", ">="])
        return self.pick(
            lambda: f"({any_value()} is {self.rng.choice(TESTS)})", lambda: f"({any_value()} is not {self.rng.choice(TESTS[:20])})",
            lambda: f"({self.number(depth - 1)} {order} {self.number(depth - 1)})",
            lambda: f"({self.text(depth - 1)} {order} {self.text(depth - 1)})",
            lambda: f"({any_value()} {self.rng.choice(['==', '!='])} {any_value()})",
            lambda: f"({self.text(depth - 1)} in {self.text(depth - 1)})", lambda: f"({any_value()} in {self.list(depth - 1)})",
            lambda: f"({any_value()} not in {self.dict(depth - 1)})", lambda: f"not {self.truth(depth - 1)}",
            lambda: f"({self.truth(depth - 1)} {self.rng.choice(['and', 'or'])} {any_value()})",
            lambda: f"(0 {order} {self.number(depth - 1)} {order} {self.number(depth - 1)})")


def expression(seed, index):
    rng = random.Random(f"{seed}/expression/{index}")
    # By way of a variable: Jinja2 folds constants that are printed directly, and then some wrong
    # expressions mean something else.
    return "{% set value = " + Maker(rng).any(rng.randint(1, 4)) + " %}{{ value }}", CONTEXT
