"""Seeded conversations with every shape of message that clients send."""

import json
import random

TEXTS = [
    "Hello", "What is the weather in Bergen?", "", " ", "  padded \n", "two\nlines", "ünïcode ß",
    "漢字とかな", "emoji 🙂👍🏽", "tab\there", "quotes \" and ' and `", "<b>&amp;</b>", "{{ not a tag }}",
    "{% raw %}", "a </think> b", "<think>\nhidden\n</think>\n\nshown", "<think>x</think>y",
    "\n\n<think>a</think>b</think>c", "<tool_response>\nfake\n</tool_response>", "/nothink",
    "hi /nothink", "line\u2028separator", "nul-free \u0001 control", "\r\nwindows\r\n",
    "back\\slash", "<|im_end|>", "a" * 300,
]
NAMES = ["get_weather", "search_files", "add", "überprüfe", "no_arguments"]
SCHEMAS = [
    {"type": "object", "properties": {"city": {"type": "string", "description": "Größe <b>"},
                                      "unit": {"type": "string", "enum": ["c", "f"]}},
     "required": ["city"]},
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "default": 1.5},
                                      "deep": {"type": "array", "items": {"type": ["null", "number"]}}}},
]
ARGUMENTS = [
    {}, {"city": "Bergen"}, {"city": "東京", "days": 3, "exact": True}, {"x": 1.0, "y": -0.5, "z": 1e21},
    {"nested": {"list": [1, "two", None, [False]], "empty": {}}}, {"text": "a \"quoted\"\nline"},
    {"none": None, "items": [1, 2]}, {"html": "<a href='x'>&</a>"},
]


class Source(random.Random):
    """Most conversations are of the common kind; `odd` ones hold what some templates refuse."""

    def __init__(self, key):
        super().__init__(key)
        self.odd = self.random() < 0.35
        # Clients send all arguments as text or all as objects; some templates take only one of them.
        self.text_arguments = self.random() < 0.35

    def oddly(self, share):
        return self.random() < share and self.odd


def text(rng):
    return rng.choice(TEXTS)


def content(rng, list_share=0.15):
    """A text, or the list of parts that newer clients send."""
    if not rng.oddly(list_share * 2):
        return text(rng)
    parts = []
    for _ in range(rng.randint(0, 3)):
        kind = rng.random()
        if kind < 0.7:
            parts.append({"type": "text", "text": text(rng)})
        elif kind < 0.8:
            parts.append({"type": "image", "image": "file.png"})
        elif kind < 0.9:
            parts.append({"type": "image_url", "image_url": {"url": "http://x"}})
        else:
            parts.append(text(rng))
    return parts


def tool(rng):
    function = {"name": rng.choice(NAMES), "description": text(rng), "parameters": rng.choice(SCHEMAS)}
    if rng.oddly(0.3):
        return function
    if rng.random() < 0.2:
        function["strict"] = rng.random() < 0.5
    return {"type": "function", "function": function}


def tool_call(rng, number):
    arguments = rng.choice(ARGUMENTS)
    if rng.text_arguments:
        arguments = json.dumps(arguments, ensure_ascii=rng.random() < 0.5)
    function = {"name": rng.choice(NAMES), "arguments": arguments}
    if rng.oddly(0.2):
        del function["arguments"]
    if rng.oddly(0.3):
        return function
    return {"id": f"functions.{function['name']}:{number}", "type": "function", "function": function}


def assistant(rng):
    message = {"role": "assistant", "content": content(rng, 0.05)}
    if rng.random() < 0.35:
        message["reasoning_content"] = None if rng.oddly(0.3) else text(rng)
    if rng.random() < 0.4:
        message["tool_calls"] = [tool_call(rng, i) for i in range(rng.randint(0, 3))]
        if rng.random() < 0.5:
            message["content"] = None if rng.oddly(0.5) else ""
        elif rng.oddly(0.2):
            del message["content"]
    return message


def tool_result(rng):
    message = {"role": "tool", "content": content(rng, 0.1)}
    if rng.random() < 0.6:
        message["tool_call_id"] = "functions.add:0"
    if rng.random() < 0.3:
        message["name"] = "add"
    if rng.oddly(0.2):
        message["content"] = [{"output": text(rng)}, {"output": text(rng)}]
    return message


def messages(rng):
    made = []
    if rng.random() < 0.5:
        made.append({"role": "system", "content": content(rng, 0.1)})
    for _ in range(rng.randint(1, 4)):
        made.append({"role": "user", "content": content(rng)})
        if rng.random() < 0.15:
            made[-1]["name"] = "ana"
        for _ in range(rng.randint(0, 3)):
            made.append(assistant(rng))
            for _ in range(rng.randint(0, 2) if made[-1].get("tool_calls") else 0):
                made.append(tool_result(rng))
    if rng.oddly(0.1):
        made.append({"role": rng.choice(["system", "developer", "critic"]), "content": text(rng)})
    if rng.oddly(0.05):
        made = []
    return made


def conversation(seed, index):
    rng = Source(f"{seed}/{index}")
    context = {"messages": messages(rng)}
    tools = rng.random()
    if tools < 0.45:
        context["tools"] = [tool(rng) for _ in range(rng.randint(0, 3))]
    elif tools < 0.6:
        context["tools"] = None
    if rng.random() < 0.8:
        context["add_generation_prompt"] = rng.random() < 0.6
    if rng.random() < 0.5:
        context["enable_thinking"] = rng.random() < 0.5
    if rng.random() < 0.1:
        context["add_vision_id"] = True
    return context
