//! Attaches one of the bench's floor programs to the first instruction of a function, as a recording attaches its own,
//! and throws away what it writes, until it is killed.
//!
//! `floor empty|empty-entry|two-records PID FILE FUNCTION`

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use anyhow::{Context as _, bail, ensure};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use scalpel_common::kernel::settings_flags;
use scalpel_user::event::{FuncId, MonoTime, Pid};
use scalpel_user::function::ExitStrategy;
use scalpel_user::kernel::attach::{AttachOptions, Attachments, ProbedFile, SiteRequest};
use scalpel_user::kernel::ring::{Decoders, Poller};
use scalpel_user::kernel::{Family, Kernel, LoadOptions, Mechanism};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, pid, path, function] = arguments.as_slice() else {
        bail!("usage: floor empty|empty-entry|two-records PID FILE FUNCTION");
    };
    let (family, exit) = match program.as_str() {
        "empty" => (Family::Empty, ExitStrategy::Return),
        "empty-entry" => (Family::Empty, ExitStrategy::EntryOnly),
        "two-records" => (Family::TwoRecords, ExitStrategy::Return),
        other => bail!("no floor is called {other}"),
    };
    let mut kernel = Kernel::load(&LoadOptions {
        family,
        flags: settings_flags::ALL_PROCESSES,
        lease_until: MonoTime(u64::MAX),
        ..LoadOptions::new(Mechanism::Session)
    })?;
    let nothing = Decoders {
        sample: |_| None,
        control: |_| None,
    };
    let (sender, inputs) = sync_channel(64);
    let _poller = Poller::start(&mut kernel, None, nothing, sender)?;
    let mut attachments = Attachments::new(&kernel, AttachOptions::default());
    attachments.set_targets(&[Pid(pid.parse()?)]);
    let report = attachments.attach(&[request(path, function, exit)?], &mut |_| {})?;
    ensure!(report.attached == 1, "refused: {:?}", report.refused);
    for input in inputs {
        drop(input);
    }
    Ok(())
}

fn request(path: &str, function: &str, exit: ExitStrategy) -> anyhow::Result<SiteRequest> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {path}"))?;
    Ok(SiteRequest {
        func: FuncId::new(1).context("1 is not 0")?,
        file: Arc::new(ProbedFile::open(path)?),
        offset: offset_of(&bytes, function)?,
        stepped: false,
        exit,
        ret_offsets: Vec::new(),
        heat: 0,
        pid_filter: None,
    })
}

/// File offset of a function.
fn offset_of(bytes: &[u8], function: &str) -> anyhow::Result<u64> {
    let file = object::File::parse(bytes)?;
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name() == Ok(function))
        .with_context(|| format!("no function {function}"))?;
    let address = symbol.address();
    let segment = file
        .segments()
        .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&address))
        .with_context(|| format!("{function} is in no segment"))?;
    Ok(segment.file_range().0 + address - segment.address())
}
