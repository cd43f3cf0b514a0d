//! The *body* of a record's increment, and *more* behind it ([`crate::log`] describes both).

use crate::details::Details;
use crate::increment::{Event, Increment, Origin};
use crate::varint::{
    read_i64, read_pairs, read_text, read_u64, write_bytes, write_i64, write_pairs, write_u64,
};

/// Bits that announce the fields behind those of a plain increment.
const FLAG_CORRECTION: u64 = 1;
const FLAG_EVENT: u64 = 2;
const FLAG_ORIGIN: u64 = 4;
const FLAG_SET_ASIDE: u64 = 16;
const FLAG_DETAILS: u64 = 32;

/// Writes the first kind, or the second one with the fields of an event or an origin.
pub(super) fn encode_increment(out: &mut Vec<u8>, kinds: [u8; 2], increment: &Increment) {
    let details = increment.details.as_deref();
    let extended = increment.event.is_some() || increment.origin.is_some() || details.is_some();
    out.push(kinds[usize::from(extended)]);
    write_i64(out, increment.at);
    write_u64(out, increment.n);
    write_pairs(out, &increment.keys);
    write_pairs(out, &increment.by);
    for text in [&increment.id, &increment.user] {
        // An id or a user is never empty, so no length can mean "none".
        write_bytes(out, text.as_deref().unwrap_or_default().as_bytes());
    }
    if !extended {
        return;
    }
    let is_correction = increment
        .event
        .as_ref()
        .is_some_and(|event| event.correction);
    let flags = [
        (FLAG_CORRECTION, is_correction),
        (FLAG_EVENT, increment.event.is_some()),
        (FLAG_ORIGIN, increment.origin.is_some()),
        (FLAG_SET_ASIDE, increment.set_aside() > 0),
        (FLAG_DETAILS, details.is_some_and(Details::has_texts)),
    ];
    let set = flags.iter().filter(|(_, is_set)| *is_set);
    write_u64(out, set.map(|(flag, _)| flag).sum());
    if let Some(event) = &increment.event {
        write_bytes(out, event.kind.as_bytes());
        write_bytes(out, event.view.as_deref().unwrap_or_default().as_bytes());
    }
    if let Some(origin) = &increment.origin {
        write_bytes(out, origin.producer.as_bytes());
        write_u64(out, origin.epoch);
        write_u64(out, origin.sequence);
    }
    if let Some(details) = details {
        details.encode(out);
    }
}

/// Reads *body*.
pub(super) fn decode_increment(input: &mut &[u8]) -> Option<Increment> {
    Some(Increment {
        at: read_i64(input)?,
        n: read_u64(input)?,
        keys: read_pairs(input)?,
        by: read_pairs(input)?,
        id: Some(read_text(input)?).filter(|id| !id.is_empty()),
        user: Some(read_text(input)?).filter(|user| !user.is_empty()),
        ..Increment::default()
    })
}

/// Reads *body* and *more*.
pub(super) fn decode_extended(input: &mut &[u8]) -> Option<Increment> {
    let increment = decode_increment(input)?;
    let flags = read_u64(input)?;
    // A flag of a newer build may change what the record means.
    let known = FLAG_CORRECTION | FLAG_EVENT | FLAG_ORIGIN | FLAG_SET_ASIDE | FLAG_DETAILS;
    (flags & !known == 0).then_some(())?;
    let event = match flags & FLAG_EVENT {
        0 => None,
        _ => Some(Box::new(Event {
            kind: read_text(input)?,
            view: Some(read_text(input)?).filter(|view| !view.is_empty()),
            correction: flags & FLAG_CORRECTION != 0,
        })),
    };
    let origin = match flags & FLAG_ORIGIN {
        0 => None,
        _ => Some(Box::new(Origin {
            producer: read_text(input)?,
            epoch: read_u64(input)?,
            sequence: read_u64(input)?,
        })),
    };
    let has = |flag| flags & flag != 0;
    let details = Details::decode(input, has(FLAG_SET_ASIDE), has(FLAG_DETAILS))?;
    Some(Increment {
        details: details.boxed(),
        event,
        origin,
        ..increment
    })
}
