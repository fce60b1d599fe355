//! Synchronisation points among the bytes of a stream, and the address that one gives.

/// A synchronisation point.
pub(crate) const PSB: [u8; 16] = 0x0282_0282_0282_0282_0282_0282_0282_0282_u128.to_be_bytes();

/// Whether bytes begin with one.
pub(super) fn begins(bytes: &[u8]) -> bool {
    // Padding may stand before it.
    let begin = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
    bytes
        .get(begin..)
        .is_some_and(|rest| rest.starts_with(&PSB))
}

/// Where the last whole synchronisation point stands, but for one at the beginning, and the address that it gives, if
/// tracing is on there.
pub(super) fn last(bytes: &[u8]) -> Option<(usize, Option<u64>)> {
    let windows = bytes.windows(PSB.len()).enumerate().skip(1).rev();
    windows
        .filter(|(_, window)| *window == PSB)
        .find_map(|(place, _)| Some((place, address(bytes.get(place..)?)?)))
}

/// The address that a synchronisation point gives, if tracing is on there; `None` if it is not whole.
fn address(bytes: &[u8]) -> Option<Option<u64>> {
    let mut at = PSB.len();
    loop {
        let rest = bytes.get(at..)?;
        at += match rest {
            [0x02, 0x23, ..] => return Some(None),
            // FUP: the address is never compressed against another here.
            [byte, ..] if byte & 0x1f == 0x1d => return fup(rest).map(Some),
            [0x00, ..] => 1,
            [0x99, ..] => 2,
            // TSC
            [0x19, ..] => 8,
            // MTC
            [0x59, ..] => 2,
            // CBR, PIP, TMA, VMCS, MNT
            [0x02, 0x03, ..] => 4,
            [0x02, 0x43, ..] => 8,
            [0x02, 0x73 | 0xc8, ..] => 7,
            [0x02, 0xc3, 0x88, ..] => 11,
            // CYC: goes on as long as its bits say.
            [byte, more @ ..] if byte & 3 == 3 => {
                let long = more.iter().take_while(|byte| **byte & 1 != 0).count();
                if byte & 4 == 0 { 1 } else { 2 + long }
            }
            _ => return None,
        };
    }
}

fn fup(bytes: &[u8]) -> Option<u64> {
    let (byte, rest) = bytes.split_first()?;
    let len = match byte >> 5 {
        1 => 2,
        2 => 4,
        3 | 4 => 6,
        6 => 8,
        _ => return None,
    };
    let mut word = [0; 8];
    word.get_mut(..len)?.copy_from_slice(rest.get(..len)?);
    let ip = u64::from_le_bytes(word);
    let sign_extended = (ip as i64) << 16 >> 16;
    Some(if byte >> 5 == 3 {
        sign_extended as u64
    } else {
        ip
    })
}
