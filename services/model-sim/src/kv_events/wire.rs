//! Batches as msgpack: `[time, [events], rank]`, with the fields each release of vLLM has.
//!
//! Events are arrays with the tag first up to 0.23 and maps with the key `type` from 0.24 on. Arrays are written whole;
//! maps leave out what has its default.

use engine::AdapterId;
use rmp::encode::{write_array_len, write_f64, write_map_len, write_nil, write_sint, write_str, write_uint};

use crate::options::Version;

/// One change, with everything a subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Stored {
        hashes: Vec<u64>,
        parent: Option<u64>,
        tokens: Vec<u32>,
        block_tokens: u32,
        adapter: Option<(AdapterId, String)>,
        /// Of the first block, if that is among them.
        salt: Option<String>,
    },
    Removed {
        hash: u64,
    },
}

/// One field's value.
#[derive(Debug)]
enum Value<'a> {
    Nil,
    Uint(u64),
    Int(i64),
    Text(&'a str),
    Hashes(&'a [u64]),
    Tokens(&'a [u32]),
    /// Per block, the texts that set it apart from others with its tokens.
    Extras(Vec<Vec<&'a str>>),
}

/// One field: its name, the first release with it, its value, and whether a map leaves it out when it is nil.
type Field<'a> = (&'static str, Version, Value<'a>, Nil);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nil {
    Written,
    LeftOut,
}

/// First release whose events are maps.
const MAPS: Version = Version(0, 24, 0);
/// First release that tells the rank.
const RANK: Version = Version(0, 9, 2);
const ALWAYS: Version = Version(0, 0, 0);
const MEDIUM: Version = Version(0, 10, 2);
const GROUPS: Version = Version(0, 20, 0);

/// One message's payload.
pub(super) fn batch(version: Version, unix_s: f64, rank: u32, events: &[Event]) -> Vec<u8> {
    let mut out = Vec::new();
    array(&mut out, if version >= RANK { 3 } else { 2 });
    write_f64(&mut out, unix_s).expect(MEMORY);
    array(&mut out, events.len());
    for event in events {
        let (tag, fields) = event.fields();
        let fields: Vec<Field<'_>> = fields.into_iter().filter(|field| version >= field.1).collect();
        if version >= MAPS {
            write_as_map(&mut out, tag, &fields);
        } else {
            array(&mut out, fields.len() + 1);
            text(&mut out, tag);
            fields.iter().for_each(|field| write(&mut out, &field.2));
        }
    }
    if version >= RANK {
        uint(&mut out, u64::from(rank));
    }
    out
}

/// Writing to memory cannot fail.
const MEMORY: &str = "memory takes what is written";

impl Event {
    fn fields(&self) -> (&'static str, Vec<Field<'_>>) {
        match self {
            Self::Removed { hash } => (
                "BlockRemoved",
                vec![
                    ("block_hashes", ALWAYS, Value::Hashes(std::slice::from_ref(hash)), Nil::Written),
                    ("medium", MEDIUM, Value::Text("GPU"), Nil::Written),
                    ("group_idx", GROUPS, Value::Uint(0), Nil::LeftOut),
                ],
            ),
            Self::Stored { hashes, parent, tokens, block_tokens, adapter, salt } => {
                let id = adapter.as_ref().map_or(Value::Nil, |(id, _)| Value::Int(i64::from(id.0) + 1));
                let name = adapter.as_ref().map(|(_, name)| name.as_str());
                let lora = name.map_or(Value::Nil, Value::Text);
                let extras = extras(hashes.len(), name, salt.as_deref());
                let fields = vec![
                    ("block_hashes", ALWAYS, Value::Hashes(hashes), Nil::Written),
                    ("parent_block_hash", ALWAYS, parent.map_or(Value::Nil, Value::Uint), Nil::Written),
                    ("token_ids", ALWAYS, Value::Tokens(tokens), Nil::Written),
                    ("block_size", ALWAYS, Value::Uint(u64::from(*block_tokens)), Nil::Written),
                    ("lora_id", ALWAYS, id, Nil::Written),
                    ("medium", MEDIUM, Value::Text("GPU"), Nil::Written),
                    ("lora_name", Version(0, 14, 0), lora, Nil::Written),
                    ("extra_keys", Version(0, 17, 0), extras, Nil::LeftOut),
                    ("group_idx", GROUPS, Value::Uint(0), Nil::LeftOut),
                    ("kv_cache_spec_kind", Version(0, 22, 0), Value::Text("full_attention"), Nil::LeftOut),
                    ("kv_cache_spec_sliding_window", Version(0, 22, 0), Value::Nil, Nil::LeftOut),
                ];
                ("BlockStored", fields)
            }
        }
    }
}

/// One entry per block, nil for one without any.
fn extras<'a>(blocks: usize, adapter: Option<&'a str>, salt: Option<&'a str>) -> Value<'a> {
    let of = |block: usize| adapter.into_iter().chain(salt.filter(|_| block == 0)).collect();
    Value::Extras((0..blocks).map(of).collect())
}

fn write_as_map(out: &mut Vec<u8>, tag: &str, fields: &[Field<'_>]) {
    let shown = |field: &&Field<'_>| field.3 == Nil::Written || !matches!(field.2, Value::Nil);
    write_map_len(out, 1 + fields.iter().filter(shown).count() as u32).expect(MEMORY);
    text(out, "type");
    text(out, tag);
    for (name, _, value, _) in fields.iter().filter(shown) {
        text(out, name);
        write(out, value);
    }
}

fn write(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Nil => write_nil(out).expect(MEMORY),
        Value::Uint(number) => uint(out, *number),
        Value::Int(number) => {
            write_sint(out, *number).expect(MEMORY);
        }
        Value::Text(value) => text(out, value),
        Value::Hashes(hashes) => {
            array(out, hashes.len());
            hashes.iter().for_each(|hash| uint(out, *hash));
        }
        Value::Tokens(tokens) => {
            array(out, tokens.len());
            tokens.iter().for_each(|token| uint(out, u64::from(*token)));
        }
        Value::Extras(blocks) => {
            array(out, blocks.len());
            for extras in blocks {
                if extras.is_empty() {
                    write_nil(out).expect(MEMORY);
                    continue;
                }
                array(out, extras.len());
                extras.iter().for_each(|extra| text(out, extra));
            }
        }
    }
}

fn array(out: &mut Vec<u8>, len: usize) {
    write_array_len(out, len as u32).expect(MEMORY);
}

fn uint(out: &mut Vec<u8>, number: u64) {
    write_uint(out, number).expect(MEMORY);
}

fn text(out: &mut Vec<u8>, value: &str) {
    write_str(out, value).expect(MEMORY);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> [Event; 2] {
        let tokens = vec![1, 2, 3, 4];
        let stored =
            Event::Stored { hashes: vec![7], parent: None, tokens, block_tokens: 4, adapter: None, salt: None };
        [stored, Event::Removed { hash: 7 }]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What msgspec makes of the classes of these releases.
    #[test]
    fn old_releases_write_arrays_and_new_ones_maps() {
        assert_eq!(
            hex(&batch(Version(0, 18, 0), 1.5, 0, &events())),
            "93cb3ff80000000000009299ab426c6f636b53746f7265649107c0940102030404c0a3475055c091c093ac426c6f636b52656d6f76\
             65649107a347505500"
        );
        assert_eq!(
            hex(&batch(Version(0, 24, 0), 1.5, 0, &events())),
            "93cb3ff8000000000000928ba474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865739107b1706172656e745f62\
             6c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756d\
             a3475055a96c6f72615f6e616d65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f6174\
             74656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739107a66d656469756da3475055a9\
             67726f75705f6964780000"
        );
    }

    #[test]
    fn each_release_has_its_fields() {
        let lengths = |version| {
            let bytes = batch(version, 0.0, 3, &events());
            // Array of 2 or 3, ten bytes of time, array of 2 events, then the first event's head.
            (bytes[0] & 0x0f, bytes[11] & 0x0f)
        };
        assert_eq!(lengths(Version(0, 9, 0)), (2, 6));
        assert_eq!(lengths(Version(0, 9, 2)), (3, 6));
        assert_eq!(lengths(Version(0, 10, 2)), (3, 7));
        assert_eq!(lengths(Version(0, 14, 0)), (3, 8));
        assert_eq!(lengths(Version(0, 17, 0)), (3, 9));
        assert_eq!(lengths(Version(0, 20, 0)), (3, 10));
        assert_eq!(lengths(Version(0, 23, 0)), (3, 12));
        assert_eq!(lengths(Version(0, 33, 0)), (3, 11), "type, eight that are always there, group and kind");
    }

    #[test]
    fn adapters_and_salts_set_blocks_apart() {
        let adapter = Some((AdapterId(0), "sql".to_owned()));
        let salted = Event::Stored {
            hashes: vec![1, 2],
            parent: None,
            tokens: vec![0; 8],
            block_tokens: 4,
            adapter,
            salt: Some("s".to_owned()),
        };
        let bytes = hex(&batch(Version(0, 32, 0), 0.0, 0, &[salted]));
        // extra_keys: [["sql", "s"], ["sql"]]
        assert!(bytes.contains(&(hex(b"extra_keys") + "9292a373716ca17391a373716c")), "{bytes}");
        assert!(bytes.contains(&(hex(b"lora_id") + "01")) && bytes.contains(&(hex(b"lora_name") + "a373716c")));
    }
}
