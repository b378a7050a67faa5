//! The permits of one connection: among all connections, and among those of HTTP/2.

use std::{net::IpAddr, rc::Rc, task::Waker};

use crate::{
    engine::Activity,
    net::{
        peer_table::{PeerEntry, PeerKey},
        worker_state::{ConnectionPermit, WorkerState},
    },
};

/// Both permits; dropping it returns them.
pub(in crate::net) struct Http2Permit {
    connection: ConnectionPermit,
    http2: PeerEntry,
}

impl Http2Permit {
    /// A permit among the connections of HTTP/2.
    ///
    /// # Errors
    /// The connection, when there are `http2_connections_max` and none of them ends for this one.
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

    /// True: the connection has to end now, for another one.
    pub(super) fn is_ending(&self) -> bool {
        self.entries().any(PeerEntry::is_ending)
    }

    /// Notes the activity of the connection.
    pub(super) fn note(&self, activity: Activity) {
        self.entries().for_each(|entry| entry.note(activity));
    }

    /// Counts the connection for the client of a trusted proxy.
    pub(super) fn forwards(&self, address: IpAddr) {
        self.entries().for_each(|entry| entry.set_peer(PeerKey::of(address)));
    }

    fn entries(&self) -> impl Iterator<Item = &PeerEntry> {
        self.connection.entry().into_iter().chain([&self.http2])
    }
}
