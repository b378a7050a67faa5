//! When two sends are equal: same caller, same name, same content of the message.
//!
//! Invariants: equal messages have the same content in every generation and binding: fields are
//! hashed in the order of their numbers, and JSON by its values and not by its text. Names and
//! contents are hashes under secret seeds. A client that finds a collision within its scope affects
//! no other client, and a hash alone never gives access to a task of another scope, see `table.rs`.

use std::{borrow::Cow, hash::Hasher};

use foldhash::{SharedSeed, fast::FoldHasher};
use siphasher::sip128::SipHasher13;

use crate::{
    json::write::canonical_raw,
    model::{
        IdempotentConflict, Message, RawText, Send,
        pack::{FIELD_HEAD, PackedFields, Packer, message_tag, part_tag},
    },
    service::Caller,
};

use super::table::NamedSend;

/// Longest accepted `Idempotency-Key` in bytes; a longer one is ignored (UUIDs have 36).
const KEY_BYTES_MAX: usize = 255;

/// Hashes under the secret of the server.
pub(super) struct SendHash {
    /// Two independent hashes.
    halves: [(SharedSeed, u64); 2],
    /// The hasher of JSON values.
    values: SipHasher13,
    /// How a used message id with different content is treated.
    conflict: IdempotentConflict,
}

impl SendHash {
    /// Creates hashes that cannot be predicted without the secret.
    pub fn new(secret: u128, conflict: IdempotentConflict) -> SendHash {
        let values = SipHasher13::new_with_keys((secret >> 64) as u64, secret as u64);
        let half = |number: u8| {
            let seeds = values.hash(&[b"half", &[number][..]].concat());
            (SharedSeed::from_u64(seeds.h1), seeds.h2)
        };
        SendHash { halves: [half(0), half(1)], values, conflict }
    }

    fn hash(&self, bytes: &[u8]) -> u128 {
        self.values.hash(bytes).as_u128()
    }

    /// One of the two hashers, seeded with another hash.
    #[inline(always)]
    fn hasher(&self, half: usize, from: u64) -> FoldHasher<'_> {
        let (seed, start) = &self.halves[half];
        FoldHasher::with_seed(start ^ from, seed)
    }

    /// The key of this caller's send; `None`: the send has no name. `by_id`: the message id may be
    /// the name.
    ///
    /// The key uses the names of tenant and owner, because their numbers are reused for other
    /// names.
    #[inline(always)]
    pub fn of(&self, caller: &Caller<'_>, send: &Send<'_>, by_id: bool) -> Option<NamedSend> {
        // In a plain user message only the id precedes the content.
        let plain = send.message.as_user_text().map(|(id, _)| id.raw());
        let (is_field, name) = match caller.idempotency_key.and_then(field_key) {
            Some(key) => (true, key.as_bytes()),
            None if !send.has_own_id || !by_id => return None,
            None => (false, plain.unwrap_or_else(|| send.message.message_id().raw())),
        };
        let content = match plain {
            Some(id) => send.message.packed().get(FIELD_HEAD + id.len()..),
            None => None,
        };
        let content = match content {
            Some(content) => self.bytes(content),
            None => self.content(send.message),
        };
        let space = self.space(caller, send);
        // If a message id may be reused with different content, id and content together are the
        // name.
        let by_content = match self.conflict {
            IdempotentConflict::New if !is_field => content,
            IdempotentConflict::New | IdempotentConflict::Refuse => 0,
        };
        let from = space ^ ((name.len() as u64) << 1) ^ u64::from(is_field) ^ by_content;
        let mut hasher = self.hasher(1, from);
        hasher.write(name);
        let name = (u128::from(space) << 64) | u128::from(hasher.finish());
        Some(NamedSend { name, content, scope: caller.scope.bits() })
    }

    /// The scope of a name: usually the owner; also the tenant, task or context that the call
    /// names.
    #[inline(always)]
    fn space(&self, caller: &Caller<'_>, send: &Send<'_>) -> u64 {
        let owner = caller.owner.unwrap_or_default().as_bytes();
        let is_authenticated = u64::from(caller.owner.is_some()) << 16;
        let head =
            u64::from(caller.scope.agent.0) | is_authenticated | ((owner.len() as u64) << 32);
        let more = match (caller.tenant, send.task_id, send.context_id) {
            (None, None, None) => 0,
            (tenant, task, context) => self.more([
                tenant.map(str::as_bytes),
                task.map(RawText::raw),
                context.map(RawText::raw),
            ]),
        };
        let mut hasher = self.hasher(0, 0);
        hasher.write_u128((u128::from(more) << 64) | u128::from(head));
        hasher.write(owner);
        hasher.finish()
    }

    /// Hashes optional texts.
    #[cold]
    #[inline(never)]
    fn more(&self, texts: [Option<&[u8]>; 3]) -> u64 {
        let mut hasher = self.hasher(1, 0);
        for text in texts {
            // No text has the length that marks an absent text.
            hasher.write_u64(text.map_or(u64::MAX, |text| text.len() as u64));
            hasher.write(text.unwrap_or_default());
        }
        hasher.finish()
    }

    #[inline(always)]
    fn bytes(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher(1, bytes.len() as u64);
        hasher.write(bytes);
        hasher.finish()
    }

    /// The content of a message, without its ids.
    #[cold]
    #[inline(never)]
    fn content(&self, message: Message<'_>) -> u64 {
        match self.plain(message) {
            Some(content) => self.bytes(content),
            None => self.bytes(&self.sorted(message)),
        }
    }

    /// The fields after the ids, if they are already in the order of [`SendHash::sorted`].
    fn plain<'m>(&self, message: Message<'m>) -> Option<&'m [u8]> {
        let (mut begin, mut before) = (0, 0);
        for (tag, bytes) in message.fields() {
            if tag < before {
                return None;
            }
            before = tag;
            match tag {
                ..=message_tag::TASK_ID => begin += FIELD_HEAD + bytes.len(),
                message_tag::PART if !is_plain_part(bytes) => return None,
                message_tag::METADATA => return None,
                _ => {}
            }
        }
        message.packed().get(begin..)
    }

    /// The fields after the ids, in the order of their numbers, with digests instead of JSON.
    #[cold]
    fn sorted(&self, message: Message<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(message.packed().len());
        let (first, last) = (message_tag::ROLE, message_tag::REFERENCE);
        for tag in first..=last {
            for (_, bytes) in message.fields().filter(|(found, _)| *found == tag) {
                match tag {
                    message_tag::PART => {
                        let part = Packer(&mut out).open(tag);
                        self.sorted_part(bytes, &mut out);
                        Packer(&mut out).close(part);
                    }
                    message_tag::METADATA => self.put_json(tag, bytes, &mut out),
                    _ => Packer(&mut out).put(tag, bytes),
                }
            }
        }
        out
    }

    fn sorted_part(&self, part: &[u8], out: &mut Vec<u8>) {
        for tag in part_tag::TEXT..=part_tag::MEDIA_TYPE {
            for (_, bytes) in PackedFields(part).filter(|(found, _)| *found == tag) {
                match tag {
                    part_tag::DATA | part_tag::METADATA => self.put_json(tag, bytes, out),
                    _ => Packer(out).put(tag, bytes),
                }
            }
        }
    }

    fn put_json(&self, tag: u8, json: &[u8], out: &mut Vec<u8>) {
        Packer(out).put(tag, &self.json(json).to_le_bytes());
    }

    /// The digest of a checked JSON text, independent of white space, escapes, the order of members
    /// and the notation of numbers.
    fn json(&self, json: &[u8]) -> u128 {
        let (mut open, mut at, mut whole) = (Vec::<OpenValue>::new(), 0, 0);
        while let Some(byte) = json.get(at) {
            let end = at + 1;
            let digest = match byte {
                b'{' | b'[' => {
                    open.push(OpenValue { is_object: *byte == b'{', ..OpenValue::default() });
                    at = end;
                    continue;
                }
                b'}' | b']' => open.pop().map(|value| (end, self.closed(&value))),
                b'"' => Some(self.string(json, end)),
                byte if byte.is_ascii_alphanumeric() || *byte == b'-' => {
                    Some(self.scalar(json, at))
                }
                _ => None,
            };
            let Some((end, digest)) = digest else {
                at = end;
                continue;
            };
            at = end;
            match open.last_mut() {
                Some(value) => self.add(value, digest),
                None => whole = digest,
            }
        }
        whole
    }

    /// Adds an element, a member's name, or its value.
    fn add(&self, value: &mut OpenValue, digest: u128) {
        value.count += 1;
        if !value.is_object {
            value.sum = self.two(value.sum, digest);
        } else if let Some(name) = value.name.take() {
            // A sum, since the members of an object have no order.
            value.sum = value.sum.wrapping_add(self.two(name, digest));
        } else {
            value.name = Some(digest);
        }
    }

    fn closed(&self, value: &OpenValue) -> u128 {
        self.two(value.sum, u128::from(value.count) << 1 | u128::from(value.is_object))
    }

    fn two(&self, first: u128, second: u128) -> u128 {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&first.to_le_bytes());
        both[16..].copy_from_slice(&second.to_le_bytes());
        self.hash(&both)
    }

    /// The end of the string with its text from `from`, and its digest.
    fn string(&self, json: &[u8], from: usize) -> (usize, u128) {
        let mut at = from;
        while let Some(byte) = json.get(at).filter(|byte| **byte != b'"') {
            at += if *byte == b'\\' { 2 } else { 1 };
        }
        let raw = json.get(from..at).unwrap_or_default();
        let text = canonical_raw(str::from_utf8(raw).unwrap_or_default());
        (at + 1, self.hash(&[b"\"", text.as_bytes()].concat()))
    }

    /// The end of the number, `true`, `false` or `null` that begins at `from`, and its digest.
    fn scalar(&self, json: &[u8], from: usize) -> (usize, u128) {
        let is_of_it = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let text = &json[from..];
        let length = text.iter().position(|byte| !is_of_it(byte)).unwrap_or(text.len());
        let text = str::from_utf8(&text[..length]).unwrap_or_default();
        (from + length, self.hash(&number(text)))
    }
}

/// An object or array that is not closed yet.
#[derive(Default)]
struct OpenValue {
    is_object: bool,
    sum: u128,
    count: u64,
    /// The name of the member to which the next value belongs.
    name: Option<u128>,
}

/// A number by its value as a double, since gRPC has only doubles; any other number by its text.
fn number(text: &str) -> Cow<'_, [u8]> {
    let Ok(value) = text.parse::<f64>() else { return Cow::Borrowed(text.as_bytes()) };
    let is_integer = !text.contains(['.', 'e', 'E']);
    let is_exact = !is_integer || text.parse::<i128>().is_ok_and(|whole| whole == value as i128);
    if !value.is_finite() || !is_exact {
        return Cow::Borrowed(text.as_bytes());
    }
    // Minus zero is zero.
    Cow::Owned((value + 0.0).to_bits().to_le_bytes().to_vec())
}

/// Whether the fields of a part are in order and contain no JSON.
fn is_plain_part(part: &[u8]) -> bool {
    let mut before = 0;
    PackedFields(part).all(|(tag, _)| {
        let is_in_order = tag >= before;
        before = tag;
        is_in_order && tag != part_tag::DATA && tag != part_tag::METADATA
    })
}

/// draft-ietf-httpapi-idempotency-key-header §2.1: a string of RFC 8941 §3.3.3; some clients send
/// it without the quotes. Any other value is ignored.
#[cold]
fn field_key(field: &str) -> Option<&str> {
    let quoted = field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let key = quoted.unwrap_or(field);
    let is_visible = |b: u8| matches!(b, 0x21..=0x7e) && b != b'"' && b != b'\\';
    let is_key = |b: u8| is_visible(b) || (quoted.is_some() && b == b' ');
    let fits = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    (fits && key.bytes().all(is_key)).then_some(key)
}
