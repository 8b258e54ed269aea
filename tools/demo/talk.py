"""How people speak to a dictionary: questions, small talk, words that it does not know, system prompts,
earlier turns. `Talker` makes examples by chance; `HELD_OUT` is what no example ever says."""
import random
import re
from collections import namedtuple

import data

# turns: the questions so far with the answers to all but the last one; kind: what the last one is; given: what
# the answer begins with of which the model had no choice.
Example = namedtuple("Example", "kind system turns think answer given", defaults=[""])

QUESTIONS = [
    "What is {w}?", "Define {w}.", "What does {w} mean?", "{w}", "define {w}", "Explain the word {w}.",
    "What is {a} {w}?", "what is {a} {w}", "What is the {w}?", "What's {a} {w}?", "whats {a} {w}",
    "What are {w}?", "what is {w}", "what does {w} mean", "What does the word {w} mean?", "What means {w}?",
    "Define {a} {w}.", "Define the word {w}.", "Define the word: {w}", "Define: {w}", "Explain {w}.",
    "explain {w} to me", "{w}?", "{w}.", "{w}!", "{a} {w}", "{a} {w}?", "the {w}", "word: {w}",
    "Tell me what {w} means.", "Tell me what {a} {w} is.", "Tell me about {w}.", "Describe {a} {w}.",
    "Please define {w}.", "Can you define {w}?", "Can you tell me what {a} {w} is?", "Could you explain {w}?",
    "What is the meaning of {w}?", "What is the meaning of the word {w}?", "meaning of {w}",
    "What is the definition of {w}?", "definition of {w}", "Give me the definition of {w}.",
    "Do you know what {a} {w} is?", "Do you know the word {w}?", "I want to know what {w} means.",
    "What do you call {w}?", "Who is {a} {w}?", "{w} meaning", "{w} definition", "What exactly is {a} {w}?",
]
NEXT_QUESTIONS = [
    "And {w}?", "and {a} {w}?", "What about {w}?", "what about {a} {w}?", "How about {w}?", "Now define {w}.",
    "And what is {a} {w}?", "and what does {w} mean?", "Next: {w}", "OK, and {w}?", "Another one: {w}",
    "Thanks! What is {a} {w}?", "Thank you. And {w}?", "Good. Now {w}.", "Then what is {w}?",
]
BEFORE = ["Hi! ", "Hello, ", "Hello! ", "Please, ", "Hey, ", "Good morning. ", "Question: ", "So, ", "Well, "]
AFTER = [", please", " please", " in one sentence", " in simple words", " in English", ", thanks", " briefly"]
QUOTES = ['"{}"', "'{}'", "“{}”", "‘{}’", "`{}`", "*{}*", "**{}**", "<{}>", "({})"]

# How often a word, or a whole question, is so written.
CAPITALISED, UPPER = 0.14, 0.08

# kind: what is said, what the model thinks of it, what it answers.
SMALL_TALK = {
    "greeting": ([
        "Hi", "Hello", "Hey", "Hi there", "Hello there", "Hey there", "Good morning", "Good evening",
        "Good afternoon", "Good day", "Greetings", "Hi, dictionary", "Hello, my friend", "Hello again",
        "Hi again", "Hello world", "hiya", "howdy", "yo",
    ], "a greeting.", "Hello! Ask me what a word means."),
    "health": ([
        "How are you", "Hi, how are you", "Hello, how are you", "Hey, how are you", "How are you today",
        "How are you doing", "Hi, how are you doing today", "How do you do", "How is it going",
        "How's it going", "Hello! How are you today", "What's up", "How do you feel", "Are you well",
        "Are you OK", "And how are you", "Fine, and you",
    ], "how I am.", "I am well, thank you. Ask me what a word means."),
    "name": ([
        "Who are you", "What are you", "Hi, who are you", "Hello, who are you", "What is your name",
        "What's your name", "Tell me about yourself", "Tell me who you are", "Are you a robot",
        "Are you an AI", "Are you human", "Are you ChatGPT", "Are you DeepSeek", "Who made you",
        "Which model are you", "What model are you", "Introduce yourself", "Describe yourself",
        "What kind of model are you", "Do you have a name", "And who are you",
    ], "who I am.", "I am a small dictionary. Ask me what a word means."),
    "help": ([
        "What can you do", "What can you do for me", "How can you help me", "Can you help me", "Help me",
        "What can I ask you", "What can I ask", "What do you know", "What do you do", "How do you work",
        "What should I ask you", "What words do you know", "How many words do you know",
        "What are you good at", "What are you for", "I need help", "Hi, what can you do",
        "Hello! What can you do", "Tell me what you can do", "How does this work",
    ], "what I can do.", "I know 10,000 English words. Ask me, for example: What is a river?"),
    "thanks": ([
        "Thanks", "Thank you", "Thanks a lot", "Thank you very much", "Thank you so much", "Many thanks",
        "Great, thanks", "OK, thanks", "Thanks, that helps", "Thanks for your help", "Good, thank you",
        "Thank you for the answer", "Perfect, thank you", "thx", "Ah, thanks", "Very good, thanks",
        "That is helpful, thank you", "Well done", "Good answer",
    ], "thanks.", "You are welcome."),
    "farewell": ([
        "Bye", "Goodbye", "Good bye", "Bye bye", "See you", "See you later", "Good night", "Farewell, friend",
        "Have a nice day", "Thanks, bye", "Thank you, goodbye", "OK, bye", "I have to go", "See you tomorrow",
        "That is all, goodbye", "Until next time", "Take care",
    ], "a farewell.", "Goodbye!"),
    "beyond": ([
        "What is the capital of France", "What is the capital of Spain", "Write a poem about the sea",
        "Write a story", "Tell me a joke", "Tell me a story", "How old is the universe",
        "Why is the sky blue", "What time is it", "What day is it today", "What is the weather today",
        "How do I boil an egg", "Who is the president of the United States", "Who wrote Hamlet",
        "What is 2 + 2", "What is two plus two", "How much is 12 times 12", "2+2",
        "Translate this into German", "How do you say river in French", "Write a program in Python",
        "Can you write code", "Sing a song", "What is your favorite color", "Do you like music",
        "Where do you live", "How old are you", "Are you happy", "Do you love me", "Why", "Why is that",
        "Are you sure", "Tell me more", "Say more", "Another example, please", "Give me an example",
        "What do you mean by that", "I do not understand", "That is wrong", "Is that true",
        "Explain that again", "Say that again", "Repeat that", "Go on", "Can you say that again",
        "Summarize this text", "Make a list of ten fruits", "Name three animals",
        "Which is larger, a cat or a dog", "How far is the moon", "When did the war end", "Where is London",
        "Who won the game", "What should I eat tonight", "I am bored", "I am hungry", "I like you",
        "You are stupid", "My name is John", "Let us talk", "What happened yesterday",
        "What is the best movie", "How do I learn English", "What rhymes with time", "Use it in a sentence",
        "What is the opposite of good", "Give me a synonym for happy", "How is it spelled",
        "What is the plural of mouse", "Write an email to my boss", "Fix this sentence", "Continue",
        "Explain step by step",
    ], "not a question about a word.", "I can only say what a single word means."),
}
SAID = {text.lower() for said, _, _ in SMALL_TALK.values() for text in said}
UNKNOWN = ("not a word that I know.", "I do not know that word.")
FUNCTION_WORDS = (
    "the and but with from into they them this that these those what which who whom whose where "
    "when why how because although since than then for you your his her its our their him she was "
    "were been being has had does did would could should might must shall if or of to in on at by "
    "as is am are an it we he my me us so do").split()

SYSTEM_SENTENCES = [
    "You are a helpful assistant.", "You are a helpful AI assistant.", "You are an AI assistant.",
    "You are a dictionary.", "You are a friendly teacher of English.",
    "You are a polite and careful assistant.", "You are an expert.", "You are a language model.",
    "You are a chat bot on a web site.", "Answer briefly.", "Be concise.", "Be brief and precise.",
    "Answer in one sentence.", "Answer in English.", "Answer the questions of the user.",
    "Be honest: if you do not know, say so.", "Think step by step.", "Do not make things up.",
    "Use simple words.", "Never use bad language.", "Always be kind.", "Your task is to explain words.",
    "The user is a student.", "The user is learning English.", "Today is Monday, 3 March 2025.",
    "The current date is 2025-01-31.", "Current time: 14:05.", "Follow the user's instructions.",
    "Respond in Markdown.", "Do not use Markdown.", "Keep a formal tone.", "Speak like a pirate.",
    "You work for a company that sells books.", "You answer questions about words.",
    "If you are not sure, ask.", "Help the user as well as you can.", "Give short answers.",
    "You must follow all rules.", "Assistant settings: temperature 0.7.", "Language: English",
]

HELD_OUT = {
    "system": ["You are a knowledgeable and concise assistant.",
               "Respond to the user in a professional manner.",
               "You are a tutor. Explain things to a child of ten years.\n",
               "Your name is Ada. Today is Friday, 7 November 2025. Keep it short and helpful.",
               "You are DictBot, a service of the city's public library."],
    "questions": ["What, please, is {a} {w}?", "what on earth is {a} {w}", "would you define {w} for me?",
                  "How would you define {w}?", "please tell me the meaning of {w}",
                  "I need a definition of {w}."],
    "greeting": ["hello, dear", "Hi everyone"],
    "health": ["how are you feeling today", "Hello, how is it going"],
    "name": ["hey, who are you", "so what is your name"], "help": ["What can you help me with"],
    "thanks": ["ok thank you very much", "Thanks so much"], "farewell": ["ok, see you later", "Bye for now"],
    "beyond": ["What is the capital of Italy", "Write a poem about winter", "What is 3 + 5",
               "Tell me another joke"],
}


def cased(text, rng):
    """A question as it may be typed: mostly as it is."""
    chance = rng.random()
    return text.lower() if chance < 0.12 else text.upper() if chance < 0.12 + UPPER else text


def spelled(word, rng):
    """A word as it may stand in a question."""
    chance = rng.random()
    if chance < CAPITALISED:
        word = word.capitalize()
    elif chance < CAPITALISED + UPPER:
        word = word.upper()
    if rng.random() < 0.12:
        word = rng.choice(QUOTES[:2] if rng.random() < 0.7 else QUOTES).format(word)
    return word


class Talker:
    """Examples by chance, all from one seed. `rows` are the dictionary's entries."""
    def __init__(self, rows, rng):
        self.rows, self.rng, self.known = rows, rng, {row[0] for row in rows}
        outside = sorted({lemma.replace("_", " ") for lemma, _, _ in data.lemmas()
                          if re.fullmatch(r"[a-z_]{2,20}", lemma)} - self.known)
        random.Random(0).shuffle(outside)
        self.outside_held_out, self.outside = outside[:1000], outside[1000:]

    def about(self, word, later):
        """A question about a word that is no small talk; `later`: others were asked before."""
        while True:
            text = self.question(word, later)
            if text.lower().strip(" .?!") not in SAID:
                return text

    def question(self, word, later):
        rng = self.rng
        old = rng.random() < 0.3
        next_one = later and rng.random() < 0.4
        form = rng.choice(NEXT_QUESTIONS if next_one else QUESTIONS[:6] if old else QUESTIONS)
        article = rng.choice([data.article(word)] * 4 + ["the", "a"])
        text = form.format(w=word if old else spelled(word, rng), a=article)
        if not old and rng.random() < 0.08:
            text = rng.choice(BEFORE) + text
        if not old and rng.random() < 0.08:
            end = text[-1] if text[-1] in "?.!" else ""
            text = text.removesuffix(end) + rng.choice(AFTER) + end
        return text if old else cased(text, rng)

    def made_up(self):
        """A word that is not in the list, made of such as are, or of syllables."""
        rng = self.rng
        while True:
            word, other = (rng.choice(self.rows)[0] for _ in range(2))
            at, letter = rng.randrange(len(word)), rng.choice("abcdefghijklmnopqrstuvwxyz")
            word = rng.choice([
                lambda: word[:at] + word[at + 1:], lambda: word[:at] + letter + word[at:],
                lambda: word[:at] + letter + word[at + 1:],
                lambda: word + rng.choice(["s", "ed", "ing", "er"]),
                lambda: word[:at + 1] + other[len(other) // 2:], lambda: word[:3] + other[-4:],
                lambda: "".join(rng.choice("bcdfghjklmnpqrstvwxyz") + rng.choice("aeiouy")
                                + rng.choice(["", "", "b", "g", "l", "m", "n", "r", "rk", "st", "x"])
                                for _ in range(rng.randint(1, 4))),
                lambda: "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9))),
            ])()
            if len(word) > 1 and word not in self.known:
                return word

    def unknown(self):
        chance = self.rng.random()
        if chance < 0.06:
            return self.rng.choice([w for w in FUNCTION_WORDS if w not in self.known])
        return self.rng.choice(self.outside) if chance < 0.6 else self.made_up()

    def small(self, kind):
        rng, (said, _, _) = self.rng, SMALL_TALK[kind]
        asks = kind in ("health", "name", "help", "beyond")
        ends = ["?", "?", "", "?!"] if asks else ["", "!", ".", "!!"]
        return cased(rng.choice(said), rng) + rng.choice(ends)

    def system(self):
        """Mostly one or a few everyday sentences, sometimes any text at all."""
        rng = self.rng
        count = rng.choice([1, 1, 1, 2, 2, 3, 5])
        if rng.random() < 0.15:
            return " ".join(rng.choice(self.rows)[3] for _ in range(count)) + rng.choice(["", ".", "\n"])
        sentences = rng.sample(SYSTEM_SENTENCES, count)
        return rng.choice([" ", " ", "\n"]).join(sentences) + rng.choice(["", "", "\n"])

    def turn(self, later, row=None):
        """-> kind, question, what is thought, what is answered."""
        chance = 0 if row else self.rng.random()
        if chance < 0.7:
            row = row or self.rng.choice(self.rows)
            return "definition", self.about(row[0], later), *data.answer(*row)
        if chance < 0.88:
            return "unknown", self.about(self.unknown(), later), *UNKNOWN
        kind = self.rng.choice([*SMALL_TALK, "beyond"])
        return kind, self.small(kind), *SMALL_TALK[kind][1:]

    def example(self, row=None):
        """About that entry, or about anything."""
        rng, turns = self.rng, []
        for i in range(rng.choice([0] * 15 + [1] * 4 + [2])):
            _, question, _, answer = self.turn(i > 0)
            # Some clients keep the empty lines between the thinking and the answer, others do not.
            turns.append((question, rng.choice(["", "\n\n"]) + answer))
        kind, question, think, answer = self.turn(bool(turns), row)
        system = self.system() if rng.random() < 0.25 else ""
        return Example(kind, system, [*turns, (question, None)], think, answer)
