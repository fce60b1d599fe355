//! Protobuf written field by field: a file may be longer than memory, so no message holds all of it.

use std::io::{self, Write};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

/// Writes one field of an outer message that is itself a message.
pub(super) fn message(number: u32, inner: &impl Message, out: &mut dyn Write) -> io::Result<()> {
    bytes(number, &inner.encode_to_vec(), out)
}

/// Writes one field that is a string.
pub(super) fn string(number: u32, text: &str, out: &mut dyn Write) -> io::Result<()> {
    bytes(number, text.as_bytes(), out)
}

/// Writes one field that is a number; 0 is the default and not written.
pub(super) fn number(number: u32, value: u64, out: &mut dyn Write) -> io::Result<()> {
    if value == 0 {
        return Ok(());
    }
    let mut head = Vec::with_capacity(16);
    encode_key(number, WireType::Varint, &mut head);
    encode_varint(value, &mut head);
    out.write_all(&head)
}

fn bytes(number: u32, content: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut head = Vec::with_capacity(16);
    encode_key(number, WireType::LengthDelimited, &mut head);
    encode_varint(content.len() as u64, &mut head);
    out.write_all(&head)?;
    out.write_all(content)
}
