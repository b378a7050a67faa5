"""The remote agent of Google's ADK against a running echo agent: adk.py BASE_URL

It refuses a card with a URL of another origin than its own, for any binding.
"""

import sys
import warnings

# It warns of its experimental features.
warnings.filterwarnings("ignore")

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from harness import case, check, equal, main

CARD = "/.well-known/agent-card.json"


class Talk:
    """One session of one user with the remote agent."""

    def __init__(self, base_url):
        self.agent = RemoteA2aAgent(name="remote", agent_card=base_url + CARD)
        self.sessions = InMemorySessionService()
        self.runner = Runner(app_name="test", agent=self.agent, session_service=self.sessions)

    async def __aenter__(self):
        self.session = await self.sessions.create_session(app_name="test", user_id="user")
        return self

    async def __aexit__(self, *_):
        await self.agent.cleanup()

    async def say(self, text):
        """The events with content that answer a message, as `(is_partial, texts)`."""
        message = types.Content(role="user", parts=[types.Part(text=text)])
        events = []
        async for event in self.runner.run_async(
            user_id="user", session_id=self.session.id, new_message=message
        ):
            check(not event.error_message, f"{text}: {event.error_message}")
            equal(event.author, "remote", "author")
            if event.content and event.content.parts:
                events.append((bool(event.partial), [p.text for p in event.content.parts]))
        return events


@case
async def send(base_url):
    async with Talk(base_url) as talk:
        said = "héllo \"wörld\" \\ 🦅"
        equal(await talk.say(said), [(False, [said])], "answer")


@case
async def ping_is_answered_by_a_message(base_url):
    async with Talk(base_url) as talk:
        equal(await talk.say("ping"), [(False, ["pong"])], "answer")


@case
async def stream(base_url):
    async with Talk(base_url) as talk:
        events = await talk.say("stream:7")
        texts = [text for _, texts in events for text in texts]
        equal(texts, [f"chunk {n}" for n in range(1, 6)], "chunks")
        equal([partial for partial, _ in events], [True] * 4 + [False], "partial")


@case
async def a_session_goes_on(base_url):
    async with Talk(base_url) as talk:
        for text in ("one", "two", "ping", "three"):
            answer = "pong" if text == "ping" else text
            check([answer] in [texts for _, texts in await talk.say(text)], f"answer to {text}")


@case
async def an_agent_by_name(base_url):
    async with Talk(f"{base_url}/agents/echo") as talk:
        equal(await talk.say("hi"), [(False, ["hi"])], "answer")


main("adk", sys.argv[1])
