//! Reads an artifact or a chunk of an artifact.

use std::io::Write as _;

use crate::{
    json::{Kind, Value},
    model::{
        Generation, ReadError,
        pack::{Packer, artifact_tag},
    },
};

use super::{
    INT32_MAX, boolean, count, identifier, message, object, part,
    reply::{ReplyCx, wrong},
    slots, task,
};

slots!(ArtifactSlots {
    id: "artifactId" | "artifact_id";
    index: "index";
    name: "name";
    description: "description";
    parts: "parts";
    metadata: "metadata";
    extensions: "extensions";
    append: "append";
    last_chunk: "lastChunk" | "last_chunk";
});

/// The flags of a chunk: 0.1 has them inside an artifact, other generations next to it.
#[derive(Clone, Copy, Default)]
pub(super) struct ChunkFlags {
    pub append: bool,
    pub last_chunk: bool,
}

/// Packs an artifact; `in_task` is its position in its task, which is its id if it has none.
pub(super) fn read(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    in_task: usize,
    pack: &mut Vec<u8>,
) -> Result<ChunkFlags, ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    let mut slots = ArtifactSlots::default();
    slots.fill(value);
    let (rules, read_cx) = (cx.rules(), cx.read_cx());
    let id = identifier(value.at(slots.id), "artifactId", &read_cx).map_err(wrong)?;
    let mut packer = Packer(pack);
    match id {
        Some(id) => packer.put(artifact_tag::ARTIFACT_ID, &id),
        // Wire §1.9: index n is artifact id `"n"`. Servers of both generations also show tasks of
        // 0.1 in that form to clients of 0.3, since the method names are the same. Without id and
        // index the position in the task is used.
        None => {
            let index = count(value.at(slots.index), "index", 0..=INT32_MAX).map_err(wrong)?;
            let is_known = match cx.generation {
                Generation::V01 => true,
                Generation::V03 => index.is_some(),
                Generation::V1 => false,
            };
            if cx.is_strict && !is_known {
                return Err(ReadError::at("artifactId", "is required"));
            }
            let index = index.map_or(in_task, |index| index as usize);
            let open = packer.open(artifact_tag::ARTIFACT_ID);
            // Writing to memory does not fail.
            let _ = write!(packer.0, "{index}");
            packer.close(open);
        }
    }
    for (slot, field, tag) in [
        (slots.name, "name", artifact_tag::NAME),
        (slots.description, "description", artifact_tag::DESCRIPTION),
    ] {
        let Some(text) = value.at(slot) else { continue };
        let raw = text.string_raw().ok_or_else(|| ReadError::at(field, "must be a string"))?;
        let most = cx.limits.string_bytes_max;
        if raw.len() > most {
            return Err(ReadError::at(field, format!("must not be longer than {most} bytes")));
        }
        packer.put_some(tag, Some(raw).filter(|raw| !raw.is_empty()));
    }
    let metadata = object(value.at(slots.metadata), "metadata").map_err(wrong)?;
    let mut parts = 0;
    task::each(value.at(slots.parts), "parts", |value| {
        let most = cx.limits.parts_max;
        if parts >= most {
            return Err(ReadError::new(format!("exceeds the limit of {most} parts")));
        }
        parts += 1;
        let open = packer.open(artifact_tag::PART);
        part::read::<true>(&rules, &read_cx, value, &mut packer).map_err(ReadError::new)?;
        packer.close(open);
        Ok(())
    })?;
    packer.put_some(artifact_tag::METADATA, metadata.map(|metadata| metadata.raw()));
    if let Some(list) = value.at(slots.extensions) {
        let most = cx.limits.string_bytes_max;
        message::strings(&read_cx, list, "extensions", most, artifact_tag::EXTENSION, &mut packer)
            .map_err(wrong)?;
    }
    let flag = |slot, field| Ok(boolean(value.at(slot), field).map_err(wrong)?.unwrap_or(false));
    Ok(ChunkFlags {
        append: flag(slots.append, "append")?,
        last_chunk: flag(slots.last_chunk, "lastChunk")?,
    })
}
