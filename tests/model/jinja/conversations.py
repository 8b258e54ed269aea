"""Conversations that templates are compared on: variables beside the tokens' names."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Tells the weather — \"now\".",
        "parameters": {
            "type": "object", "required": ["city"],
            "properties": {
                "city": {"type": "string", "description": "Which city"},
                "unit": {"type": "string", "enum": ["°C", "°F"], "default": "°C"},
                "days": {"type": ["integer", "null"], "description": "How many days"},
                "places": {"type": "array", "items": {"type": "string"}},
                "options": {"type": "object", "properties": {"wind": {"type": "boolean"}}}}}}},
    {"type": "function", "function": {
        "name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, number=0):
    return {"id": f"functions.{name}:{number}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def tool(text, name="get_weather", number=0):
    return {"role": "tool", "content": text, "name": name, "tool_call_id": f"functions.{name}:{number}"}


WEATHER = call("get_weather", {"city": "Zürich", "days": 3, "wind": True, "x": None, "f": 1.5})
WEATHER_TEXT = call("get_weather", '{"city": "Zürich"}')

CONVERSATIONS = {
    "hello": {"messages": [user("Hi")]},
    "system": {"messages": [system("Be brief.\n"), user("  Hi 'you' \"there\" <b>\n")]},
    "turns": {"messages": [system("S"), user("a"), assistant("b"), user("c é\u2028是👍"), assistant("d"),
                           user("e")]},
    "open answer": {"messages": [user("a"), assistant("b")]},
    "thoughts inside": {"messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"),
                                     assistant("<think>so</think>d"), user("e /nothink")]},
    "thoughts apart": {"messages": [user("a"), assistant("b", reasoning_content="hm\n"), user("c"),
                                    assistant("d", reasoning_content="")]},
    "thinking apart": {"messages": [user("a"), assistant("b", thinking="hm"), user("c")]},
    "tools offered": {"messages": [user("Weather?")], "tools": TOOLS},
    "tools offered, system": {"messages": [system("S"), user("Weather?")], "tools": TOOLS},
    "tool called": {"tools": TOOLS, "messages": [
        user("Weather?"), assistant("", tool_calls=[WEATHER]), tool("sunny")]},
    "tool called with text": {"tools": TOOLS, "messages": [
        system("S"), user("Weather?"), assistant("I look.", tool_calls=[WEATHER_TEXT]),
        tool('{"sky": "sunny"}'), assistant("Sunny."), user("Thanks")]},
    "tool called without content": {"tools": TOOLS, "messages": [
        user("Weather?"), assistant(None, tool_calls=[WEATHER_TEXT]), tool("sunny"), assistant("Sunny.")]},
    "tools called": {"tools": TOOLS, "messages": [
        user("Weather?"),
        assistant("", reasoning_content="I need both", tool_calls=[WEATHER, call("now", {}, 1)]),
        tool("sunny"), tool("12:00", "now", 1), assistant("Sunny at noon.", reasoning_content="fine"),
        user("And then?")]},
    "tools called, again": {"tools": TOOLS, "messages": [
        user("Weather?"), assistant("", tool_calls=[WEATHER_TEXT]), tool("sunny"),
        assistant("", tool_calls=[call("now", "{}", 1)]), tool("12:00", "now", 1)]},
    "no tools": {"messages": [user("Hi")], "tools": []},
    "developer": {"messages": [{"role": "developer", "content": "D"}, user("Hi")]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"},
                                                        {"type": "text", "text": "you"}]}]},
    "unknown role": {"messages": [{"role": "wizard", "content": "x"}]},
    "nothing": {"messages": []},
    "system last": {"messages": [user("Hi"), system("late")]},
    "two answers": {"messages": [assistant("first"), user("x"), user("y"), assistant("z")]},
}
