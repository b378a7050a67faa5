//! Refusals by h2 itself: of calls beyond `http2_streams_max`, and of peers that flood h2. h2 does
//! not report these refusals, so they are detected in the frames that h2 writes.

/// Bytes of the head of a frame (RFC 9113 §4.1).
const HEAD: usize = 9;
/// Bytes of a frame that are read: the head, the fixed fields of GOAWAY, and enough of its debug
/// data to distinguish the limits.
const BEGINNING: usize = HEAD + 8 + 15;
/// Types of frames (RFC 9113 §6.4, §6.8).
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
/// The error code REFUSED_STREAM (RFC 9113 §7).
const REFUSED_STREAM: [u8; 4] = 7_u32.to_be_bytes();

/// The beginning of the debug data of h2's GOAWAY for each limit. `http2_control_frames_max`
/// includes the errors that h2 counts, CONTINUATION and small DATA frames.
const FLOODS: [(&[u8; 15], &str); 5] = [
    (b"too_many_resets", "http2_resets_max"),
    (b"too_many_intern", "http2_control_frames_max"),
    (b"too_many_contin", "http2_control_frames_max"),
    (b"too_many_data_f", "http2_control_frames_max"),
    (b"header_list_way", "head_bytes_max"),
];

/// Finds the refusals in written bytes, in pieces of any size.
pub(super) struct Refusals {
    /// Payload bytes that are still to be skipped.
    skip: usize,
    /// The beginning of a frame; `received` of `wanted` bytes are present.
    begun: [u8; BEGINNING],
    received: usize,
    wanted: usize,
}

impl Refusals {
    /// Starts at the first byte from a server.
    pub(super) fn new() -> Refusals {
        Refusals { skip: 0, begun: [0; BEGINNING], received: 0, wanted: HEAD }
    }

    /// Calls `refused` with the limit of each refusal that ends in the next bytes.
    pub(super) fn scan(&mut self, mut bytes: &[u8], mut refused: impl FnMut(&'static str)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let some = bytes.len().min(self.wanted - self.received);
            self.begun[self.received..self.received + some].copy_from_slice(&bytes[..some]);
            self.received += some;
            bytes = &bytes[some..];
            if self.received < self.wanted {
                return;
            }
            let [_, a, b, kind, ..] = self.begun;
            let length = u32::from_be_bytes([0, self.begun[0], a, b]) as usize;
            let looked_at = match kind {
                RST_STREAM | GOAWAY => BEGINNING.min(HEAD + length),
                _ => HEAD,
            };
            if self.received < looked_at {
                self.wanted = looked_at;
                continue;
            }
            let limit = limit_of(&self.begun[..looked_at]);
            limit.into_iter().for_each(&mut refused);
            (self.received, self.wanted, self.skip) = (0, HEAD, length + HEAD - looked_at);
        }
    }
}

/// The limit that a frame reports as exceeded.
fn limit_of(frame: &[u8]) -> Option<&'static str> {
    match (frame[3], &frame[HEAD..]) {
        (RST_STREAM, code) => (*code == REFUSED_STREAM).then_some("http2_streams_max"),
        (GOAWAY, payload) => {
            let debug_data = payload.get(8..)?;
            FLOODS.iter().find(|(begin, _)| debug_data == *begin).map(|(_, limit)| *limit)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    fn goaway(debug_data: &str) -> Vec<u8> {
        frame(GOAWAY, &[&[0, 0, 0, 1, 0, 0, 0, 11], debug_data.as_bytes()].concat())
    }

    proptest! {
        /// Refusals are found in pieces of any size, and similar bytes in data are ignored.
        #[test]
        fn h2_refusals_are_found_across_chunk_boundaries(
            frames in prop::collection::vec((0..8_u8, 0..9_u32), 0..40),
            pieces in prop::collection::vec(1..40_usize, 1..200),
        ) {
            let (mut all, mut wanted) = (Vec::new(), Vec::new());
            for (kind, number) in frames {
                match kind {
                    RST_STREAM => {
                        all.extend(frame(kind, &number.to_be_bytes()));
                        wanted.extend((number == 7).then_some("http2_streams_max"));
                    }
                    GOAWAY => {
                        let data = ["", "too_many", "too_many_resets", "too_many_internal_resets"];
                        let at = number as usize % 4;
                        all.extend(goaway(data[at]));
                        let limits = ["http2_resets_max", "http2_control_frames_max"];
                        wanted.extend(limits.get(at.wrapping_sub(2)));
                    }
                    _ => {
                        let data = frame(RST_STREAM, &REFUSED_STREAM).repeat(number as usize);
                        all.extend(frame(kind, &data));
                    }
                }
            }
            let (mut refusals, mut found, mut rest) = (Refusals::new(), Vec::new(), &all[..]);
            for piece in pieces.into_iter().chain([usize::MAX]) {
                let (some, after) = rest.split_at(piece.min(rest.len()));
                refusals.scan(some, |limit| found.push(limit));
                rest = after;
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
