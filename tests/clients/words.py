"""What the clients ask: types whose values end soon, since the model says anything that it may."""

import os
from typing import Annotated, Literal

from pydantic import BaseModel, Field

URL = os.environ.get("TROUPE_TEST_URL", "")
MODEL = "with-tools"
QUESTION = "What does river mean?"
CHAT = [{"role": "user", "content": QUESTION}]
HOT = {"temperature": 1.0, "max_tokens": 400}

Word = Annotated[str, Field(max_length=12)]


class Sense(BaseModel):
    text: Annotated[str, Field(max_length=20)]
    kind: Literal["noun", "verb"]


class Entry(BaseModel):
    """A word with its senses."""

    word: Word
    rank: Annotated[int, Field(ge=1, le=1200)]
    senses: Annotated[list[Sense], Field(min_length=1, max_length=2)]


class LookUp(BaseModel):
    """Looks a word up."""

    word: Word
    senses: Annotated[int, Field(ge=1, le=9)]


class Rhymes(BaseModel):
    """Finds words that rhyme."""

    sound: Literal["moon", "june", "spoon"]


TOOLS = {"LookUp": LookUp, "Rhymes": Rhymes}
