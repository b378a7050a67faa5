//! Webhooks over real sockets: what receivers are told, whatever they do, and whom nobody reaches.

mod bounds;
mod challenge;
mod failing;
mod forbidden;
mod load;
mod receiver;
