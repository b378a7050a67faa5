//! What carries a connection's bytes: the socket itself, or something that stands on one.
//!
//! The driver is generic over it, so that a plain connection is compiled as if there were nothing
//! else. Whatever a transport keeps back is told by [`Transport::is_flushed`], and counts as output
//! that waits.

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::service::Peer;

/// A connected byte stream.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// What is known of the other side.
    fn peer(&self) -> Peer<'_>;

    /// False: it has taken bytes that the socket has not, and `poll_flush` moves them on.
    fn is_flushed(&self) -> bool;

    /// Bytes of output that it holds back, as far as they are to be counted.
    fn held_bytes(&self) -> usize;

    /// True: ending it is a word to the peer, which is said even to one that ended its own side.
    fn says_goodbye(&self) -> bool;

    /// From now on closing resets the peer, and frees what the kernel holds for it.
    fn reset_on_close(&self);
}

impl Transport for TcpStream {
    fn peer(&self) -> Peer<'_> {
        Peer::default()
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> usize {
        0
    }

    fn says_goodbye(&self) -> bool {
        false
    }

    fn reset_on_close(&self) {
        // A socket that refuses the option is closed already.
        let _ = self.set_zero_linger();
    }
}
