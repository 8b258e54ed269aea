"""Answers in a form: as a JSON object, and by the tool `define`. `Former` makes examples by chance, as
talk.Talker does of plain ones."""
import json

import data

# What a question may end with, or a system prompt say, for the answer to be the object.
AS_JSON = [" as JSON", ", as JSON", " in JSON", " (as JSON)", " as a JSON object", ". Answer as JSON", ", JSON please"]
SYSTEM_JSON = ["Answer as JSON.", "Answer in JSON.", "Respond with JSON.", "Answer with a JSON object.",
               "Answer with a JSON object that has the keys word and definition.", "Use JSON for the answer."]
QUESTIONS_JSON = ["define {w} as JSON", "Define {w} as JSON.", "JSON: {w}", "{w} as JSON", "{w} as JSON, please",
                  "Give me {w} as JSON.", "What is {a} {w}? Answer as JSON.", "define {w} in JSON"]

DEFINE = ["Looks a word up in the dictionary.", "Look up a word", "The meaning of a word.", "Define a word.",
          "Returns the definition of a word.", "Gets the definition of an English word from WordNet.", ""]
OTHER_TOOLS = [
    "get_weather(city): The weather of a city.", "get_current_weather(location, unit): Get the current weather",
    "search(query): Search the web.", "web_search(query, limit): Searches the internet.", "now(): What time it is.",
    "calculator(expression): Computes.", "add(a, b): Adds two numbers.", "multiply(a, b): Multiply two integers.",
    "send_email(to, subject, body): Sends an email.", "read_file(path): Reads a file.", "list_files(folder): ",
    "get_user(id): A user by number.", "translate(text, language): Translates a text.", "sum(numbers): ",
    "book_flight(from, to, date): Books a flight.", "get_stock_price(ticker): The price of a share.",
]
PENDING = "I look it up."


class Result(str):
    """What a tool has answered, in the place of a question."""


def call(word):
    """The tool's call as the template writes it, in DeepSeek-V3.1's form."""
    arguments = json.dumps({"word": word}, ensure_ascii=False)
    return ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>define<｜tool▁sep｜>" + arguments
            + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>")


def calling(word):
    """-> what is thought before that call, and the call."""
    return f"{word}: {PENDING}", call(word)


def as_json(word, pos, kind, gloss):
    """-> what is thought, and the object."""
    entry = {"word": word, "definition": f"{pos}: {gloss}"}
    return data.answer(word, pos, kind, gloss)[0], json.dumps(entry, ensure_ascii=False)


def offering(*tools):
    """The end of a system prompt in which the template tells of tools."""
    return "\n\n## Tools\n" + "".join(f"- {tool}\n" for tool in tools)


class Former:
    """`talker` asks; `rng` chooses the forms."""
    def __init__(self, talker, rng):
        self.talker, self.rng = talker, rng

    def json(self, row):
        """A question that asks for the object, or one that does not, where the answer has begun as one."""
        rng, asked = self.rng, self.rng.random()
        example = self.talker.example(row)
        think, answer = as_json(*row)
        question, system, given = example.turns[-1][0], example.system, ""
        if asked < 0.35:
            question = rng.choice(QUESTIONS_JSON).format(w=row[0], a=data.article(row[0]))
        elif asked < 0.55:
            end = question[-1] if question[-1] in "?.!" else ""
            question = question.removesuffix(end) + rng.choice(AS_JSON) + end
        elif asked < 0.75:
            system = " ".join(filter(None, [system.strip(), rng.choice(SYSTEM_JSON)]))
        else:
            given = '{"'
        return example._replace(kind="json", system=system, turns=[*example.turns[:-1], (question, None)],
                                think=think, answer=answer, given=given)

    def others(self):
        return self.rng.sample(OTHER_TOOLS, self.rng.choice([1, 1, 1, 2, 3]))

    def call(self, row, known=False):
        """A question with `define` offered, which is called for every word that is asked for."""
        rng = self.rng
        example = self.talker.example(row)
        tools = ["define(word): " + rng.choice(DEFINE), *(self.others() if rng.random() < 0.3 else [])]
        rng.shuffle(tools)
        word = row[0]
        if not known and rng.random() < 0.15:  # the tool may know what the model does not
            word = self.talker.unknown()
            example.turns[-1] = self.talker.about(word, len(example.turns) > 1), None
        think, answer = calling(word)
        return example._replace(kind="call", system=example.system.rstrip("\n") + offering(*tools), think=think,
                                answer=answer)

    def unaided(self):
        """Tools are offered, but none that helps; or nothing is asked for which there is one."""
        rng, example = self.rng, self.talker.example()
        tools = self.others()
        if example.kind not in ("definition", "unknown") and rng.random() < 0.5:
            tools.append("define(word): " + rng.choice(DEFINE))
        return example._replace(system=example.system.rstrip("\n") + offering(*tools))

    def told(self, row):
        """The tool has answered: the answer is the plain one. (It is the model's own, whatever the tool said.)"""
        rng, asked = self.rng, self.call(row, known=True)
        _, pos, _, gloss = row
        result = rng.choice([gloss, f"{gloss}.", f"{pos}: {gloss}", json.dumps({"definition": gloss}),
                             as_json(*row)[1]])
        # Some clients keep the empty lines before the call, others do not.
        called = rng.choice(["", "\n\n"]) + asked.answer
        think, answer = data.answer(*row)
        return asked._replace(kind="told", think=think, answer=answer,
                              turns=[*asked.turns[:-1], (asked.turns[-1][0], called), (Result(result), None)])

    def examples(self, row):
        """What one round says about an entry, besides the plain question."""
        chance = self.rng.random
        if chance() < 0.8:
            yield self.json(row)
        if chance() < 0.25:
            yield self.call(row)
        if chance() < 0.08:
            yield self.told(row)
        if chance() < 0.1:
            yield self.unaided()
