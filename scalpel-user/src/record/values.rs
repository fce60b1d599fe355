//! What functions returned: it may be a secret, and nobody asked for it.

use crate::event::{Event, Kind};

/// Takes return values out of events, before anything is written.
pub(super) fn forget(events: &mut [Event]) {
    let exits = events.iter_mut().filter(|event| event.kind == EXIT);
    exits.for_each(|event| event.value = 0);
}

const EXIT: u8 = Kind::Exit as u8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_return_value_stays_and_nothing_else_is_touched() {
        let mut events: Vec<Event> = Kind::ALL
            .iter()
            .map(|&kind| Event {
                kind: kind as u8,
                value: 0x5ec2e7,
                ..Event::default()
            })
            .collect();
        forget(&mut events);
        for event in events {
            let expect = if event.kind == EXIT { 0 } else { 0x5ec2e7 };
            assert_eq!(event.value, expect, "{event:?}");
        }
    }
}
