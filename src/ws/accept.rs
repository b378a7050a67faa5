//! The accept key: proof that a server has read the handshake (RFC 6455 §4.2.2).

use sha1_smol::Sha1;

/// RFC 6455 §1.3.
const GUID: &[u8; 36] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`; `None` unless the key is 16 bytes in base64.
///
/// ```
/// let key = b"dGhlIHNhbXBsZSBub25jZQ==";
/// assert_eq!(peregrine::ws::accept(key), Some(*b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
/// ```
pub fn accept(key: &[u8]) -> Option<[u8; 28]> {
    let key: &[u8; 24] = key.try_into().ok()?;
    let is_key = key.ends_with(b"==") && key[..22].iter().all(|byte| ALPHABET.contains(byte));
    is_key.then(|| {
        let mut sha1 = Sha1::new();
        sha1.update(key);
        sha1.update(GUID);
        base64(sha1.digest().bytes())
    })
}

/// RFC 4648 §4, for a digest: 18 bytes are six whole groups, and two bytes remain.
fn base64(digest: [u8; 20]) -> [u8; 28] {
    let mut padded = [0; 21];
    padded[..20].copy_from_slice(&digest);
    let mut text = [b'='; 28];
    encode(&padded, &mut text);
    text[27] = b'=';
    text
}

/// Encodes groups of three bytes as four letters each.
pub(super) fn encode(bytes: &[u8], text: &mut [u8]) {
    let groups = bytes.as_chunks::<3>().0.iter().zip(text.as_chunks_mut::<4>().0);
    for (&[a, b, c], four) in groups {
        let bits = u32::from_be_bytes([0, a, b, c]);
        *four = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 63) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc6455_1_3_example_accept_key_is_computed() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), Some(*b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn malformed_websocket_key_is_rejected() {
        for bad in [
            &b""[..],
            b"dGhlIHNhbXBsZSBub25jZQ",
            b"dGhlIHNhbXBsZSBub25jZQ=",
            b"dGhlIHNhbXBsZSBub25jZQA=",
            b"dGhlIHNhbXBsZSBub25jZQAA",
            b"dGhlIHNhbXBsZSBub25jZ===",
            b"dGhlIHNhbXBsZSBub25j-Q==",
            b"dGhlIHNhbXBsZSBub25jZWFh=",
        ] {
            assert_eq!(accept(bad), None, "{}", bad.escape_ascii());
        }
    }
}
