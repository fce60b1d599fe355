//! What a file holds where memory holds a breakpoint: the instruction under a uprobe.
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::flow;
use crate::maps::Map;

/// The instruction of the mapped file at this address, if it is not a breakpoint there too.
pub(crate) fn instruction_in_file(addr: u64) -> Option<Vec<u8>> {
    let maps = Map::all();
    let map = maps.iter().find(|map| map.holds(addr))?;
    let file = File::open(map.path.as_ref()?).ok()?;
    let mut bytes = [0; 15];
    let got = file
        .read_at(&mut bytes, addr - map.start + map.offset)
        .ok()?;
    let instruction = flow::decode(addr, bytes.get(..got)?)?;
    let bytes = bytes.get(..instruction.len())?;
    (bytes != [0xcc]).then(|| bytes.to_vec())
}
