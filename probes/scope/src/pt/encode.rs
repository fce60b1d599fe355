//! The packets that a processor would write for a path: what the self-proof and the tests decode again. It knows the
//! packets, not how they are decoded.
use iced_x86::FlowControl;

use super::psb::PSB;
use crate::flow;
use crate::trace::Trace;

/// Return addresses that a processor remembers.
const RETURNS: usize = 64;

/// A packet with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPacket {
    /// Where an indirect branch went.
    Tip = 0x0d,
    /// Tracing begins here.
    Enable = 0x11,
    /// Tracing ends, on the way here.
    Disable = 0x01,
    /// Where something happened that is no branch.
    Fup = 0x1d,
}

/// How a path is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Returns to where their call came from are one bit.
    pub compressed_returns: bool,
    /// Branches go in packets of up to 47 bits, not of up to 6.
    pub long_branches: bool,
    /// Bytes between synchronisation points; 0 = only the first.
    pub psb_every: usize,
}

/// Writes packets.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    last_ip: u64,
    branches: u64,
    pending: u32,
}

impl Writer {
    /// The packets.
    #[must_use]
    pub fn finish(mut self, long: bool) -> Vec<u8> {
        self.flush(long);
        self.bytes
    }

    /// How many bytes were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// An address, as short as what is known of the last one allows.
    pub fn ip(&mut self, packet: IpPacket, ip: u64) {
        let last = std::mem::replace(&mut self.last_ip, ip);
        let sign_extended = (ip as i64) << 16 >> 16 == ip as i64;
        let (width, len) = if ip >> 16 == last >> 16 {
            (1, 2)
        } else if ip >> 32 == last >> 32 {
            (2, 4)
        } else if sign_extended {
            (3, 6)
        } else {
            (6, 8)
        };
        self.bytes.push(packet as u8 | width << 5);
        self.bytes.extend(ip.to_le_bytes().iter().take(len));
    }

    /// The packet without its address.
    pub fn suppressed(&mut self, packet: IpPacket) {
        self.bytes.push(packet as u8);
    }

    /// A conditional branch, or a return to where its call came from.
    pub fn branch(&mut self, taken: bool, long: bool) {
        self.branches = self.branches << 1 | u64::from(taken);
        self.pending += 1;
        if self.pending == if long { 47 } else { 6 } {
            self.flush(long);
        }
    }

    /// Writes the branches that wait.
    pub fn flush(&mut self, long: bool) {
        let bits = 1 << self.pending | self.branches;
        if self.pending > 0 && long {
            self.bytes.extend([0x02, 0xa3]);
            self.bytes.extend(bits.to_le_bytes().iter().take(6));
        } else if self.pending > 0 {
            self.bytes.push((bits << 1) as u8);
        }
        (self.branches, self.pending) = (0, 0);
    }

    /// A synchronisation point: what was known of the last address is forgotten. `ip` is the next instruction if tracing
    /// is on.
    pub fn psb(&mut self, ip: Option<u64>) {
        self.bytes.extend(PSB);
        self.last_ip = 0;
        self.mode_64();
        if let Some(ip) = ip {
            self.ip(IpPacket::Fup, ip);
        }
        self.bytes.extend([0x02, 0x23]);
    }

    /// The code is 64-bit code.
    pub fn mode_64(&mut self) {
        self.bytes.extend([0x99, 0x01]);
    }

    /// Packets were dropped.
    pub fn overflow(&mut self) {
        self.bytes.extend([0x02, 0xf3]);
        self.last_ip = 0;
    }

    /// A time stamp.
    pub fn tsc(&mut self, tsc: u64) {
        self.bytes.push(0x19);
        self.bytes.extend(tsc.to_le_bytes().iter().take(7));
    }
}

/// The packets of a trace: from a synchronisation point and the address where it began to the one where it would have
/// gone on. `None` if it has no steps, or bytes that are no instruction.
#[must_use]
pub fn path(trace: &Trace, shape: Shape) -> Option<Vec<u8>> {
    let mut writer = Writer::default();
    let long = shape.long_branches;
    writer.psb(None);
    writer.ip(IpPacket::Enable, trace.begin?);
    let mut synchronised = writer.len();
    let mut returns: Vec<u64> = Vec::new();
    let last = trace.steps.len().checked_sub(1)?;
    for (at, step) in trace.steps.iter().enumerate() {
        let code = trace.code_of(step)?;
        let instruction = flow::decode(code.addr, &code.bytes)?;
        let fall = instruction.next_ip();
        if at == last {
            writer.flush(long);
            writer.ip(IpPacket::Disable, step.next);
            break;
        }
        if flow::is_system_call(&instruction) {
            writer.flush(long);
            writer.suppressed(IpPacket::Disable);
            writer.ip(IpPacket::Enable, step.next);
            continue;
        }
        match instruction.flow_control() {
            FlowControl::ConditionalBranch => writer.branch(step.next != fall, long),
            FlowControl::Call | FlowControl::IndirectCall => {
                let far = instruction.flow_control() == FlowControl::IndirectCall;
                if far {
                    writer.flush(long);
                    writer.ip(IpPacket::Tip, step.next);
                }
                // A call of the next instruction only tells where it stands: no return answers it.
                if far || step.next != fall {
                    if returns.len() == RETURNS {
                        returns.remove(0);
                    }
                    returns.push(fall);
                }
            }
            FlowControl::Return => {
                let expected = returns.pop();
                if shape.compressed_returns && expected == Some(step.next) {
                    writer.branch(true, long);
                } else {
                    writer.flush(long);
                    writer.ip(IpPacket::Tip, step.next);
                }
            }
            FlowControl::IndirectBranch => {
                writer.flush(long);
                writer.ip(IpPacket::Tip, step.next);
            }
            _ => {}
        }
        if shape.psb_every > 0 && writer.len() - synchronised >= shape.psb_every {
            writer.flush(long);
            writer.psb(Some(step.next));
            synchronised = writer.len();
            returns.clear();
        }
    }
    Some(writer.finish(long))
}
