//! What naming addresses costs: `symbol_cost scalpel|blazesym FILE COUNT` asks for COUNT addresses of FILE, in functions spread
//! evenly over it, of a symbolizer that knows nothing yet (cold), and for as many others of the same one (warm). blazesym is
//! used as its own example `addr2ln` does.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{self, Input};
use scalpel_user::event::Pid;
use scalpel_user::image::{Image, NoDebugFiles};
use scalpel_user::survey::ImageReader;
use scalpel_user::symbol::{Backing, Mapping, Symbolizer};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [whose, path, count] = arguments.as_slice() else {
        bail!("usage: symbol_cost scalpel|blazesym FILE COUNT");
    };
    let (cold, warm) = addresses(path, count.parse()?)?;
    let (mut times, mut named) = (Vec::new(), Vec::new());
    let mut ask = naming(whose, path)?;
    for addresses in [&cold, &warm] {
        let start = Instant::now();
        named.push(ask(addresses)?);
        times.push(start.elapsed());
    }
    let ([cold_took, warm_took], [cold_named, warm_named]) = (&*times, &*named) else {
        bail!("two rounds");
    };
    writeln!(
        std::io::stdout(),
        "addresses {} cold {cold_took:.3?} named {cold_named} warm {warm_took:.3?} named {warm_named}",
        cold.len(),
    )?;
    Ok(())
}

/// Names addresses, and tells how many have a name.
type Naming = Box<dyn FnMut(&[u64]) -> anyhow::Result<usize>>;

fn naming(whose: &str, path: &str) -> anyhow::Result<Naming> {
    const PROCESS: Pid = Pid(1);
    Ok(match whose {
        "scalpel" => {
            let mut symbolizer = Symbolizer::new(Box::new(ImageReader));
            let backing = Backing::File(path.into(), Ok(Arc::new(File::open(path)?)));
            // As if the file were mapped whole at address 0.
            let mapping = Mapping {
                start: 0,
                end: u64::MAX >> 8,
                offset: 0,
                backing,
            };
            symbolizer.map(PROCESS, mapping);
            Box::new(move |addresses| {
                let named = symbolizer.resolve(PROCESS, addresses);
                Ok(named.iter().filter(|named| named.is_ok()).count())
            })
        }
        "blazesym" => {
            let symbolizer = symbolize::Symbolizer::new();
            let source = Source::Elf(Elf::new(path));
            Box::new(move |addresses| {
                let named = symbolizer.symbolize(&source, Input::FileOffset(addresses))?;
                Ok(named
                    .iter()
                    .filter(|named| named.as_sym().is_some())
                    .count())
            })
        }
        other => bail!("no symbolizer `{other}`"),
    })
}

/// File offsets in the middle of functions, `count` and as many others.
fn addresses(path: &str, count: usize) -> anyhow::Result<(Vec<u64>, Vec<u64>)> {
    let bytes = std::fs::read(path).with_context(|| path.to_owned())?;
    let image = Image::parse(&bytes, &Path::new(path).to_string_lossy(), &NoDebugFiles)?;
    let functions = image.functions();
    let step = (functions.len() / (2 * count)).max(1);
    let mut chosen: Vec<u64> = functions
        .iter()
        .step_by(step)
        .take(2 * count)
        .map(|function| function.file_offset + function.size / 2)
        .collect();
    // Neither half is of another part of the file than the other.
    let odd = chosen.iter().skip(1).step_by(2).copied().collect();
    chosen = chosen.into_iter().step_by(2).collect();
    Ok((chosen, odd))
}
