//! Identifiers that contain their task's location (shard and slot), and the keyed hash that all
//! indexes use.
//!
//! An id of the store is a UUIDv4 as text: its first and its last 32 bits are the location and 32
//! random bits, sealed by a permutation with the store's secret ([`super::permute`]); its other 58
//! free bits are random. A lookup decodes the location and compares the whole text, so a guessed id
//! must match 90 random bits. Neither the distance between two ids nor their order reveals the
//! number of tasks. The id of a context contains the location of the context's first task in the
//! same way, with another permutation.
//!
//! In the store of a numbered node, the readable number of the node replaces 16 of the random bits,
//! and the UUID has version 8 (RFC 9562 §5.8):
//!
//! ```text
//! xxxxxxxx-rrrr-4rrr-yrrr-rrrrxxxxxxxx  x: sealed (location, 32 random bits); r: random; y: 8 to b
//! xxxxxxxx-nnnn-8rrr-yrrr-rrrrxxxxxxxx  n: the node; 74 random bits remain
//! ```

use siphasher::sip::{SipHasher13, SipHasher24};

use super::permute::{Block, Permutation};
use crate::model::{RawText, uuid};

/// Domains of [`Keys::code`] for the keys of [`Keys::hash`] and of the permutations.
const INDEX: u32 = u32::MAX - 2;
const TASKS: u32 = u32::MAX - 3;
const CONTEXTS: u32 = u32::MAX - 4;

/// Length of an identifier of this store.
pub const ID_LEN: usize = 36;

/// The positions of the node's digits and of the version in the text of an id.
const NODE_AT: std::ops::Range<usize> = 9..13;
const VERSION_AT: usize = 14;
/// The bits of an id that are random, unless they are a node's number.
const INNER: u128 = (u128::MAX >> 64) << 32;
const NODE_BIT: u32 = 80;

/// The number of the node that created an id of a task or a context; `None` if no numbered node
/// did. The number is not authenticated: a forged id can name any node.
pub fn node_of(id: RawText<'_>) -> Option<u16> {
    let id: &[u8; ID_LEN] = id.raw().try_into().ok()?;
    let is_ours = id.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        VERSION_AT => *byte == b'8',
        19 => matches!(byte, b'8' | b'9' | b'a' | b'b'),
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    });
    if is_ours { unhex(&id[NODE_AT]).map(|node| node as u16) } else { None }
}

/// Bits of a shard's number within its group.
const GROUP_BITS: u32 = 4;
/// Number of shards in a group: the shards of one worker. Each context is in one shard.
pub(super) const GROUP: usize = 1 << GROUP_BITS;
/// Maximum number of groups: further workers share them.
const GROUPS_MAX: usize = 64;

/// The number of shards, and the encoding of a location.
#[derive(Clone, Copy)]
pub(super) struct Sharding {
    /// Number of low bits of a location that are the shard; the other bits are the slot.
    bits: u32,
    /// The mask of these bits.
    mask: usize,
}

impl Sharding {
    /// A group for each of the workers.
    pub fn new(workers: usize) -> Sharding {
        let groups = workers.clamp(1, GROUPS_MAX).next_power_of_two();
        Sharding { bits: GROUP_BITS + groups.trailing_zeros(), mask: groups * GROUP - 1 }
    }

    pub fn shards(self) -> usize {
        self.mask + 1
    }

    pub fn groups(self) -> usize {
        self.shards() / GROUP
    }

    /// Maximum slots of a shard.
    pub fn index_max(self) -> u32 {
        u32::MAX >> self.bits
    }

    /// The shard for a hash.
    pub fn shard_of(self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// The shard for a number, in a worker's group.
    pub fn shard_of_worker(self, worker: usize, number: u64) -> usize {
        ((worker << GROUP_BITS) | (number as usize % GROUP)) & self.mask
    }

    /// The shard for a number, in the group of another shard.
    pub fn in_group_of(self, shard: usize, number: u64) -> usize {
        (shard & !(GROUP - 1)) | (number as usize % GROUP)
    }

    /// The location of a slot.
    pub fn position(self, shard: usize, index: u32) -> u32 {
        index << self.bits | shard as u32
    }

    /// The slot at a location.
    #[inline]
    pub fn split(self, position: u32) -> SlotAt {
        SlotAt { at: position as usize & self.mask, index: position >> self.bits }
    }
}

/// A slot of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotAt {
    /// Its shard.
    pub at: usize,
    /// Its index in the shard.
    pub index: u32,
}

/// The group of a shard.
#[inline]
pub(super) fn group_of(shard: usize) -> usize {
    shard >> GROUP_BITS
}

/// The keys derived from the store's secret.
pub(super) struct Keys {
    tasks: Permutation,
    contexts: Permutation,
    index: SipHasher13,
    secret: u128,
    form: Form,
}

/// The common parts of a store's ids.
struct Form {
    /// The bits that are random.
    random: u128,
    /// The node's number, shifted into position.
    node: u128,
    /// The digit of the version.
    version: u8,
}

impl Form {
    fn of(node: Option<u16>) -> Form {
        match node {
            None => Form { random: INNER, node: 0, version: b'4' },
            Some(node) => Form {
                random: INNER & !(0xffff << NODE_BIT),
                node: u128::from(node) << NODE_BIT,
                version: b'8',
            },
        }
    }
}

impl Keys {
    pub fn new(secret: u128) -> Keys {
        let numbers = |domain| {
            let mut count = 0u64;
            move || {
                count += 1;
                code(secret, domain, [count, 0])
            }
        };
        let (tasks, contexts) = (numbers(TASKS), numbers(CONTEXTS));
        let (tasks, contexts) = (Permutation::new(tasks), Permutation::new(contexts));
        let mut number = numbers(INDEX);
        let index = SipHasher13::new_with_keys(number(), number());
        Keys { tasks, contexts, index, secret, form: Form::of(None) }
    }

    /// Sets the number of the node for new ids.
    pub fn set_node(&mut self, node: Option<u16>) {
        self.form = Form::of(node);
    }

    /// A SipHash-1-3 for the indexes: peers can neither predict nor see it.
    ///
    /// `domain` separates uses: a name has a different hash in each domain, and two names collide
    /// no more often across domains than within one.
    #[inline]
    pub fn hash(&self, domain: u64, bytes: &[u8]) -> u64 {
        self.index.hash(bytes) ^ domain
    }

    /// A code that peers may see; they can neither forge it nor derive a key from it.
    pub fn code(&self, domain: u32, message: [u64; 2]) -> u64 {
        code(self.secret, domain, message)
    }

    /// The id of a new task at `position`.
    pub fn id(&self, position: u32, bits: u128) -> [u8; ID_LEN] {
        seal(&self.tasks, &self.form, position, bits)
    }

    /// The location in an id that this store created for a task. Any other text of that length
    /// gives an arbitrary location; other lengths give `None`.
    #[inline]
    pub fn position(&self, id: &[u8]) -> Option<u32> {
        open(&self.tasks, id)
    }

    /// The id of a new context with its first task at `position`.
    pub fn context_id(&self, position: u32, bits: u128) -> [u8; ID_LEN] {
        seal(&self.contexts, &self.form, position, bits)
    }

    /// The location in an id that this store created for a context; else as [`Keys::position`].
    pub fn context_position(&self, id: &[u8]) -> Option<u32> {
        open(&self.contexts, id)
    }
}

fn code(secret: u128, domain: u32, [first, second]: [u64; 2]) -> u64 {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&domain.to_le_bytes());
    bytes[4..12].copy_from_slice(&first.to_le_bytes());
    bytes[12..].copy_from_slice(&second.to_le_bytes());
    SipHasher24::new_with_keys(secret as u64, (secret >> 64) as u64).hash(&bytes)
}

/// The id of a location: version and variant are between the sealed halves.
#[inline(never)] // Two inlined calls side by side would run out of registers.
fn seal(permutation: &Permutation, form: &Form, position: u32, bits: u128) -> [u8; ID_LEN] {
    let Block { left: first, right: last } =
        permutation.seal(Block { left: position, right: bits as u32 });
    let inner = bits & form.random | form.node;
    let mut id = uuid(u128::from(first) << 96 | inner | u128::from(last));
    id[VERSION_AT] = form.version;
    id
}

/// The location in an id.
#[inline]
fn open(permutation: &Permutation, id: &[u8]) -> Option<u32> {
    let id: &[u8; ID_LEN] = id.try_into().ok()?;
    let (first, last) = (id.first_chunk()?, id.last_chunk()?);
    Some(permutation.open(Block { left: unhex8(first), right: unhex8(last) }).left)
}

/// Reads eight lower-case hexadecimal digits in parallel, one in each byte of a word. Other
/// characters give an arbitrary value: the caller compares the text.
#[inline]
fn unhex8(digits: &[u8; 8]) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_be_bytes(*digits);
    // The low nibble of a letter is 9 less than its value; no byte carries into the next.
    let nibbles = (word & (0x0f * ONES)) + (word >> 6 & ONES) * 9;
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    (fours | fours >> 16) as u32
}

/// Reads lower-case hexadecimal digits.
pub(super) fn unhex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn id_is_a_version_4_uuid_with_58_unsealed_random_bits() {
        let keys = Keys::new(5);
        let (none, all) = (keys.id(3, 0), keys.id(3, u128::MAX));
        assert_eq!(&none[8..28], b"-0000-4000-8000-0000");
        assert_eq!(&all[8..28], b"-ffff-4fff-bfff-ffff");
        assert_ne!((&none[..8], &none[28..]), (&all[..8], &all[28..]));
    }

    #[test]
    fn node_number_is_read_only_from_ids_of_numbered_nodes() {
        let mut keys = Keys::new(5);
        let ids = |keys: &Keys, bits| [keys.id(77, bits), keys.context_id(77, bits)];
        let node = |id: &[u8]| node_of(RawText::known(id));
        for number in [0, 1, 0x1234, u16::MAX] {
            keys.set_node(Some(number));
            for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978] {
                let [id, context_id] = ids(&keys, bits);
                assert_eq!([node(&id), node(&context_id)], [Some(number); 2]);
                assert_eq!(
                    (keys.position(&id), keys.context_position(&context_id)),
                    (Some(77), Some(77))
                );
            }
        }
        // 42 random bits are unchanged, and 32 are sealed with the location.
        let (none, all) = (keys.id(3, 0), keys.id(3, u128::MAX));
        assert_eq!(&none[8..28], b"-ffff-8000-8000-0000");
        assert_eq!(&all[8..28], b"-ffff-8fff-bfff-ffff");
        assert_ne!((&none[..8], &none[28..]), (&all[..8], &all[28..]));

        for (at, byte) in [(0, b'G'), (8, b'0'), (9, b'A'), (14, b'4'), (19, b'c'), (35, b'-')] {
            let mut foreign = none;
            foreign[at] = byte;
            assert_eq!(node(&foreign), None, "{}", foreign.escape_ascii());
        }
        keys.set_node(None);
        assert_eq!(ids(&keys, u128::MAX).map(|id| node(&id)), [None; 2]);
        assert_eq!([node(b""), node(&none[1..]), node(b"my-task")], [None; 3]);
    }

    #[test]
    fn distances_of_ids_have_no_bias() {
        const PAIRS: u32 = 1 << 16;
        for (seed, step) in [(1, 1), (2, 16), (3, 1 << GROUP_BITS << 1), (4, 3)] {
            let keys = Keys::new(seed);
            // The worst case: constant random bits.
            let shown = |position| {
                let id = keys.id(position, 0);
                unhex(&id[..8]).unwrap() as u32
            };
            let (mut high, mut low) = ([0; 256], [0; 256]);
            for count in 0..PAIRS {
                let position = count.wrapping_mul(step);
                let distance = shown(position.wrapping_add(step)).wrapping_sub(shown(position));
                high[(distance >> 24) as usize] += 1;
                low[(distance & 255) as usize] += 1;
            }
            // With 255 degrees of freedom, one of 100,000 random sequences exceeds 357.
            for counts in [high, low] {
                let fair = f64::from(PAIRS) / 256.0;
                let square = |count: i32| (f64::from(count) - fair).powi(2) / fair;
                let sum: f64 = counts.into_iter().map(square).sum();
                assert!(sum < 357.0, "{seed}: {sum}");
            }
        }
    }

    #[test]
    fn position_is_recovered_from_the_task_id() {
        for secret in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978] {
            let keys = Keys::new(secret);
            for position in [0, 1, 15, 16, 0x8000_0000, u32::MAX, 12_345_678] {
                assert_eq!(keys.position(&keys.id(position, secret ^ 77)), Some(position));
            }
        }
    }

    #[test]
    fn ids_codes_and_hashes_are_stable_for_a_secret() {
        let keys = || Keys::new(0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978);
        let [id, context_id] = [keys().id(77, 5), keys().context_id(77, 5)];
        assert_eq!(id.escape_ascii().to_string(), "837976e5-0000-4000-8000-00007c577680");
        assert_eq!(context_id.escape_ascii().to_string(), "4329ef98-0000-4000-8000-0000acad75fd");
        assert_eq!(
            (keys().code(1, [2, 3]), keys().hash(1, b"name")),
            (0xa078_cc9f_5784_ece1, 0xb642_4cce_bc6e_f43f)
        );
        assert_eq!(
            (keys().position(&id), keys().context_position(&context_id)),
            (Some(77), Some(77))
        );
    }

    #[test]
    fn hash_depends_on_bytes_length_domain_and_secret() {
        let keys = Keys::new(3);
        let mut seen = std::collections::HashSet::new();
        for length in 0..70usize {
            let mut bytes = vec![0; length];
            assert!(seen.insert(keys.hash(1, &bytes)));
            assert!(seen.insert(keys.hash(2, &bytes)));
            assert!(seen.insert(Keys::new(4).hash(1, &bytes)));
            for at in 0..length {
                bytes[at] = 1;
                assert!(seen.insert(keys.hash(1, &bytes)));
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn hashes_spread_over_shards_and_buckets() {
        let keys = Keys::new(11);
        let (mut high, mut low) = ([0; GROUP], [0; 256]);
        for count in 0..16_384u32 {
            let hash = keys.hash(7, format!("context-{count}").as_bytes());
            high[Sharding::new(1).shard_of(hash >> 32)] += 1;
            low[hash as usize % 256] += 1;
        }
        assert!(high.iter().all(|n| (900..1150).contains(n)), "{high:?}");
        assert!(low.iter().all(|n| (30..110).contains(n)), "{low:?}");
    }

    #[test]
    fn parallel_hex_parser_matches_the_digitwise_parser() {
        for value in [0, 1, 0x0123_4567, 0x89ab_cdef, 0xdead_beef, u32::MAX] {
            let text = format!("{value:08x}");
            let digits = text.as_bytes().first_chunk().expect("eight");
            assert_eq!((unhex8(digits), unhex(digits)), (value, Some(value.into())));
            for (at, digit) in (0..8).flat_map(|at| b"0123456789abcdef".map(|digit| (at, digit))) {
                let mut digits = *digits;
                digits[at] = digit;
                assert_eq!(Some(u64::from(unhex8(&digits))), unhex(&digits), "{digit:#x} at {at}");
            }
        }
        for byte in 0..=255 {
            let _ = unhex8(&[byte; 8]);
        }
    }

    #[test]
    fn location_is_shard_and_slot_and_workers_have_own_shards() {
        for workers in [1, 2, 3, 4, 33, 64, 1_000] {
            let sharding = Sharding::new(workers);
            let groups = sharding.groups();
            assert!(groups >= workers.min(GROUPS_MAX) && groups < 2 * workers);
            for position in [0, 1, 15, 16, 0x8000_0000, u32::MAX, 12_345_678] {
                let SlotAt { at: shard, index } = sharding.split(position);
                assert!(shard < sharding.shards() && index <= sharding.index_max());
                assert_eq!(sharding.position(shard, index), position);
                assert!(sharding.shard_of(u64::from(position)) < sharding.shards());
            }
            for worker in 0..workers.min(GROUPS_MAX) {
                let shards: Vec<usize> =
                    (5..21).map(|number| sharding.shard_of_worker(worker, number)).collect();
                assert!(shards.iter().all(|shard| group_of(*shard) == worker));
                assert!((0..GROUP).all(|at| shards.contains(&(worker * GROUP + at))));
            }
        }
    }

    #[test]
    fn position_is_recovered_from_the_context_id() {
        let keys = Keys::new(0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978);
        for position in [0, 1, 77, u32::MAX] {
            let id = keys.context_id(position, 5);
            assert_eq!(keys.context_position(&id), Some(position));
            assert_ne!(id, keys.id(position, 5));
        }
    }

    #[test]
    fn id_of_wrong_length_has_no_position() {
        let keys = Keys::new(9);
        assert_eq!(keys.position(b""), None);
        assert_eq!(keys.position(b"my-task"), None);
        assert_eq!(keys.position(&keys.id(7, 7)[1..]), None);
    }
}
