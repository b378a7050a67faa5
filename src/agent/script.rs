//! The script agent.
