//! The two permits of one connection: of all connections, and of the connections of HTTP/2.

use std::{net::IpAddr, rc::Rc, task::Waker};

use crate::{
    engine::Activity,
    net::{
        peer_table::{PeerEntry, PeerKey},
        worker_state::{ConnectionPermit, WorkerState},
    },
};

/// Both permits; dropping this value returns both.
pub(in crate::net) struct Http2Permit {
    connection: ConnectionPermit,
    http2: PeerEntry,
}

impl Http2Permit {
    /// Takes a permit of the connections of HTTP/2.
    ///
    /// # Errors
    /// The given permit, if `http2_connections_max` connections are open and none of these can be
    /// ended.
    pub(in crate::net) fn take(
        connection: ConnectionPermit,
    ) -> Result<Http2Permit, ConnectionPermit> {
        let server = &connection.server;
        let peer = connection.entry().map_or(PeerKey::UNKNOWN, PeerEntry::peer);
        let accepted = server.http2.accept(peer, connection.remote());
        if accepted.as_ref().is_none_or(|accepted| accepted.evicts) {
            server.refused(connection.worker, "http2_connections_max");
        }
        match accepted {
            Some(accepted) => Ok(Http2Permit { connection, http2: accepted.entry }),
            None => Err(connection),
        }
    }

    /// The state that the tasks of this worker share.
    pub(super) fn local(&self) -> &Rc<WorkerState> {
        self.connection.local()
    }

    /// The address of the peer, if it has one.
    pub(super) fn remote(&self) -> Option<IpAddr> {
        self.connection.remote()
    }

    /// Sets the task that is woken when the connection has to end.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.entries().for_each(|entry| entry.set_waker(waker));
    }

    /// True: the connection has to end now, to free its slot for another connection.
    pub(super) fn is_ending(&self) -> bool {
        self.entries().any(PeerEntry::is_ending)
    }

    /// Notes the activity of the connection.
    pub(super) fn note(&self, activity: Activity) {
        self.entries().for_each(|entry| entry.note(activity));
    }

    /// Counts the connection for the client that a trusted proxy has reported.
    pub(super) fn forwards(&self, address: IpAddr) {
        self.entries().for_each(|entry| entry.set_peer(PeerKey::of(address)));
    }

    fn entries(&self) -> impl Iterator<Item = &PeerEntry> {
        self.connection.entry().into_iter().chain([&self.http2])
    }
}
