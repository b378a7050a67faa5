"""The agent of agent.py, unchanged, served by Peregrine:

    pip install . 'a2a-sdk[http-server]>=1.3' uvicorn uvloop    # in a clone of the repository
    python executor.py [PORT]
"""

import sys

import uvloop
from agent import Agent, card
from peregrine import a2a_sdk

port = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
a2a_sdk.serve(Agent(), card(port), port=port, new_loop=uvloop.new_event_loop)
