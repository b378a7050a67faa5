//! The echo agent.
