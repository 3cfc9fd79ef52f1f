"""Seeded templates that mix tags, marks and white space, for the lexer and the statements."""

import random

SPACES = ["", "", " ", "  ", "\n", "\n\n", "\t", " \n ", "\n   ", "\u00a0\n", "\r\n", "  \n\t"]
WORDS = ["a", "b c", "x.", "%", "}", "{", "#", "é", "{ {", "%}", "-"]
CONTEXT = {"xs": [1, 2, 3], "name": "N", "yes": True, "no": False, "d": {"k": "v", "w": 2},
           "pairs": [["p", 1], ["q", 2]], "empty": []}


def mark(rng):
    return rng.choice(["", "", "", "-", "-", "+"])


def end_mark(rng):
    return rng.choice(["", "", "", "-", "-", "+"])


def block(rng, inside):
    return "{%" + mark(rng) + rng.choice([" ", ""]) + inside + rng.choice([" ", "\n "]) + \
        end_mark(rng) + "%}"


def show(rng, expression):
    return "{{" + rng.choice(["", "", "-"]) + " " + expression + " " + rng.choice(["", "-"]) + "}}"


def filler(rng):
    return "".join(rng.choice(SPACES) + rng.choice(WORDS + [""] * 6) for _ in range(rng.randint(0, 2))) \
        + rng.choice(SPACES)


def loop(rng, depth):
    head = rng.choice(["for x in xs", "for x in xs if x != 2", "for p, q in pairs", "for x in empty",
                       "for k, v in d.items()", "for x in xs[::-1]", "for x in range(1, 4)"])
    marks = ["loop.index", "loop.first", "loop.last", "loop.revindex0", "loop.length",
             "loop.previtem", "loop.nextitem", "loop.cycle('o', 'e')", "x", "p", "k", "loop.changed(x)"]
    body = body_of(rng, depth) + show(rng, rng.choice(marks)) + body_of(rng, depth)
    if rng.random() < 0.3:
        body += block(rng, "if loop.index == 2") + block(rng, rng.choice(["break", "continue"])) + \
            block(rng, "endif") + filler(rng)
    other = block(rng, "else") + body_of(rng, depth) if rng.random() < 0.3 else ""
    return block(rng, head) + body + other + block(rng, "endfor")


def conditional(rng, depth):
    text = block(rng, "if " + rng.choice(["yes", "no", "xs|length > 2", "missing", "loop is defined"]))
    text += body_of(rng, depth)
    if rng.random() < 0.4:
        text += block(rng, "elif " + rng.choice(["no", "name == 'N'"])) + body_of(rng, depth)
    if rng.random() < 0.5:
        text += block(rng, "else") + body_of(rng, depth)
    return text + block(rng, "endif")


def macro(rng, depth):
    name = rng.choice("mn")
    head = f"macro {name}(a, b='B', c=a)"
    use = rng.choice([f"{name}(1)", f"{name}(1, c=2)", f"{name}(b=3)", f"{name}(1, 2, 3)", f"{name}()"])
    return block(rng, head) + filler(rng) + show(rng, rng.choice(["a", "b", "c", "a ~ b"])) + \
        body_of(rng, depth) + block(rng, "endmacro") + filler(rng) + show(rng, use)


def call_block(rng, depth):
    return block(rng, "macro w(t)") + "<" + show(rng, "caller(t)") + filler(rng) + ">" + \
        block(rng, "endmacro") + block(rng, "call(y) w('T')") + body_of(rng, depth) + show(rng, "y") + \
        block(rng, "endcall")


def assignment(rng, depth):
    choice = rng.random()
    if choice < 0.4:
        return block(rng, "set s = " + rng.choice(["1", "s ~ 'x'", "name", "(1, 2)"])) + filler(rng) + \
            show(rng, "s")
    if choice < 0.7:
        return block(rng, rng.choice(["set s", "set s | upper", "set s | trim"])) + \
            body_of(rng, depth) + block(rng, "endset") + "[" + show(rng, "s") + "]"
    return block(rng, "set ns = namespace(v=0)") + block(rng, "for x in xs") + \
        block(rng, "set ns.v = ns.v + x") + block(rng, "endfor") + show(rng, "ns.v")


def other(rng, depth):
    choice = rng.randrange(5)
    if choice == 0:
        return "{#" + rng.choice(["", "-", "+"]) + " note " + rng.choice(["", "-", "+"]) + "#}"
    if choice == 1:
        return "{%" + mark(rng) + " raw " + rng.choice(["", "-"]) + "%}" + filler(rng) + "{{ x }}" + \
            filler(rng) + "{%" + mark(rng) + " endraw " + end_mark(rng) + "%}"
    if choice == 2:
        return block(rng, "filter upper") + body_of(rng, depth) + block(rng, "endfilter")
    if choice == 3:
        return block(rng, "with w = 1, name = 'W'") + body_of(rng, depth) + show(rng, "w ~ name") + \
            block(rng, "endwith")
    return block(rng, "generation") + body_of(rng, depth) + block(rng, "endgeneration")


def body_of(rng, depth):
    if depth <= 0:
        return filler(rng)
    text = filler(rng)
    for _ in range(rng.randint(0, 2)):
        maker = rng.choice([loop, conditional, macro, call_block, assignment, other, other])
        text += maker(rng, depth - 1) if rng.random() < 0.8 else show(rng, rng.choice(["name", "s", "xs"]))
        text += filler(rng)
    return text


def fragment(seed, index):
    rng = random.Random(f"{seed}/fragment/{index}")
    return body_of(rng, 3), CONTEXT
