//! Properties of WebSocket frames for any bytes.

use peregrine::ws::{Reader, ReaderRules, WsError, WsEvent};

/// Limits that short inputs reach.
pub const RULES: ReaderRules =
    ReaderRules { frame_bytes_max: 200, message_bytes_max: 300, binary: true, masked: true };

/// The events of some bytes, and the error that ended reading.
pub type Seen = (Vec<(WsEvent, Vec<u8>)>, Option<WsError>);

/// Reads bytes in pieces; each step but the last consumes or produces something.
pub fn read(bytes: &[u8], rules: &ReaderRules, piece: &mut dyn FnMut() -> usize) -> Seen {
    let (mut reader, mut scratch, mut seen) = (Reader::default(), Vec::new(), Vec::new());
    let (mut input, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
        input.extend_from_slice(now);
        rest = later;
        loop {
            let (ate, event) = match reader.advance(&input, &mut scratch, rules) {
                Ok(read) => read,
                Err(error) => return (seen, Some(error)),
            };
            assert!(ate <= input.len());
            assert!(reader.held_bytes() <= 2 * rules.message_bytes_max.max(8));
            input.drain(..ate);
            if event == WsEvent::Partial {
                // A header, or a control frame: no other bytes wait unread.
                assert!(input.len() < 6 + 125 + 8, "{} bytes wait", input.len());
                break;
            }
            assert!(ate > 0 && scratch.len() <= rules.message_bytes_max.max(125));
            assert!(event != WsEvent::Text || str::from_utf8(&scratch).is_ok());
            seen.push((event, std::mem::take(&mut scratch)));
        }
    }
    (seen, None)
}

/// Whole, byte by byte, and in pieces of sizes that the first byte selects, the same bytes give the
/// same messages and the same error; only violations of a rule are errors.
pub fn server_reads_frames_the_same_however_cut(bytes: &[u8]) {
    frames_read_the_same_however_cut(bytes, &RULES);
}

/// The same for a server's frames, as a client reads them.
pub fn client_reads_frames_the_same_however_cut(bytes: &[u8]) {
    frames_read_the_same_however_cut(bytes, &ReaderRules { masked: false, ..RULES });
}

fn frames_read_the_same_however_cut(bytes: &[u8], rules: &ReaderRules) {
    let Some((seed, bytes)) = bytes.split_first() else { return };
    let whole = read(bytes, rules, &mut || usize::MAX);
    assert_eq!(read(bytes, rules, &mut || 1), whole, "byte by byte");
    let mut size = u32::from(*seed);
    let pieces = read(bytes, rules, &mut || {
        size = size.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (size >> 16) as usize % 40
    });
    assert_eq!(pieces, whole, "in pieces");
    assert_eq!(slow(bytes, rules.masked), whole, "against a slow reading");
}

/// A slow and simple reading of RFC 6455 §5: one frame after the other, each once it is complete,
/// except for errors in a header and for invalid text.
fn slow(bytes: &[u8], masked: bool) -> Seen {
    let (mut seen, mut rest) = (Vec::new(), bytes);
    let mut message: Option<(WsEvent, Vec<u8>)> = None;
    loop {
        let [first, second, ..] = *rest else { return (seen, None) };
        let (fin, opcode, short) = (first >> 7 == 1, first & 15, usize::from(second & 127));
        let control = opcode >= 8;
        let refused = [
            (first & 0x70 != 0, WsError::ReservedBit),
            (!matches!(opcode, 0..=2 | 8..=10), WsError::OpCode),
            (control && !fin, WsError::ControlFragment),
            (control && short > 125, WsError::ControlLength),
            (masked && second >> 7 == 0, WsError::Unmasked),
            (!masked && second >> 7 == 1, WsError::Masked),
        ];
        if let Some((_, error)) = refused.iter().find(|(is_so, _)| *is_so) {
            return (seen, Some(*error));
        }
        let digits = [0, 2, 8][usize::from(short > 125) + usize::from(short > 126)];
        let Some(length) = rest[2..].get(..digits) else { return (seen, None) };
        let long = length.iter().fold(0_u64, |sum, digit| sum << 8 | u64::from(*digit));
        let length = if digits == 0 { short as u64 } else { long };
        // RFC 6455 §5.2: only the shortest form is valid.
        let least = match digits {
            0 => 0,
            2 => 126,
            _ => 65_536,
        };
        if length < least || length >> 63 == 1 {
            return (seen, Some(WsError::Length));
        }
        let key_len = if masked { 4 } else { 0 };
        let Some(key) = rest[2 + digits..].get(..key_len) else { return (seen, None) };
        let key = if masked { key } else { &[0; 4] };
        let head = 2 + digits + key_len;
        let error = match (opcode, &message) {
            (0, None) => Some(WsError::NothingToContinue),
            (1 | 2, Some(_)) => Some(WsError::Interleaved),
            _ => None,
        };
        let gathered = message.as_ref().map_or(0, |(_, bytes)| bytes.len()) as u64;
        let limit = match (length > 200, gathered + length > 300) {
            _ if control => None,
            (true, _) => Some("ws_frame_bytes_max"),
            (false, true) => Some("ws_message_bytes_max"),
            (false, false) => None,
        };
        if let Some(error) = error.or(limit.map(|limit| WsError::TooLarge { limit })) {
            return (seen, Some(error));
        }
        let body = &rest[head..];
        let is_whole = body.len() as u64 >= length;
        let body = &body[..body.len().min(length as usize)];
        let unmasked = body.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key);
        let unmasked: Vec<u8> = unmasked.collect();
        if control {
            if !is_whole {
                return (seen, None);
            }
            match control_event(opcode, &unmasked) {
                Ok(event) => seen.push((event, unmasked)),
                Err(error) => return (seen, Some(error)),
            }
        } else {
            let kind = if opcode == 1 { WsEvent::Text } else { WsEvent::Binary };
            let (kind, mut all) = message.take().unwrap_or((kind, Vec::new()));
            all.extend_from_slice(&unmasked);
            let is_end = fin && is_whole;
            let bad = |error: std::str::Utf8Error| is_end || error.error_len().is_some();
            if kind == WsEvent::Text && str::from_utf8(&all).is_err_and(bad) {
                return (seen, Some(WsError::Utf8));
            }
            match (is_whole, fin) {
                (false, _) => return (seen, None),
                (true, true) => seen.push((kind, all)),
                (true, false) => message = Some((kind, all)),
            }
        }
        rest = &rest[head + length as usize..];
    }
}

fn control_event(opcode: u8, payload: &[u8]) -> Result<WsEvent, WsError> {
    match (opcode, payload) {
        (9, _) => Ok(WsEvent::Ping),
        (10, _) => Ok(WsEvent::Pong),
        (_, []) => Ok(WsEvent::Close(None)),
        (_, [_]) => Err(WsError::CloseCode),
        (_, [high, low, reason @ ..]) => {
            let code = u16::from(*high) << 8 | u16::from(*low);
            let is_named = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014];
            if !is_named.contains(&code) && !(3000..5000).contains(&code) {
                return Err(WsError::CloseCode);
            }
            str::from_utf8(reason).map(|_| WsEvent::Close(Some(code))).map_err(|_| WsError::Utf8)
        }
    }
}
