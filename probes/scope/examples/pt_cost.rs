//! What decoding Intel PT costs an instruction: libipt's block decoder alone, the stream over it, and with every block read
//! again, joined and judged. `cargo run --release --example pt_cost -- TRACE ELF@ADDR [FAMILY/MODEL/STEPPING]`, in turns;
//! lines of a name, a tab, and ns, the median of the passes. `pt_alone.c` is the same without this crate.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example shows what it gets, and ends where it cannot"
)]
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use object::{Object, ObjectSegment};
use scalpel_scope::pt::{Clock, CodeBytes, Decoder, Flows, Image, Item, Processor, Single, Stream};
use scalpel_scope::render::{Lines, Syntax};
use scalpel_scope::sink::{Kept, Sink};
use scalpel_scope::symbol::{Resolver, Symbol};
use scalpel_scope::trace::{Code, Step};

const PASSES: usize = 31;

struct Nothing;

impl Resolver for Nothing {
    fn resolve(&mut self, _addr: u64) -> Option<Symbol> {
        None
    }
}

impl Sink for Nothing {
    fn code(&mut self, _code: &Code, _symbol: Option<&Symbol>) {}

    fn step(&mut self, _thread: u32, _step: &Step) {}

    fn steps(&mut self, _thread: u32, _steps: &[Step]) {}
}

fn image(file: &str, base: u64) -> Image {
    let bytes = std::fs::read(file).unwrap();
    let elf = object::File::parse(bytes.as_slice()).unwrap();
    let image = Image::new().unwrap();
    let first = elf
        .segments()
        .map(|segment| segment.address() & !0xfff)
        .min()
        .unwrap();
    for segment in elf
        .segments()
        .filter(|segment| segment.permissions().executable())
    {
        let code = CodeBytes::new(segment.data().unwrap().to_vec()).unwrap();
        let at = base + segment.address() - first;
        image.map(at, &code, 0, segment.size()).unwrap();
    }
    image
}

/// Instructions, by libipt's block decoder and nothing else.
fn alone(trace: &[u8], image: &Rc<Image>, processor: Option<Processor>) -> u64 {
    let mut decoder = Decoder::new(trace.to_vec(), processor, Clock::default()).unwrap();
    decoder.set_image(image);
    decoder.synchronise();
    let mut count = 0;
    loop {
        match decoder.item() {
            Item::Block(block) => count += u64::from(block.instructions),
            Item::Event(..) => {}
            Item::Error(_) if decoder.synchronise() => {}
            Item::Error(_) | Item::End => return count,
        }
    }
}

/// By our stream; `judged`: each step is read again, joined and judged too.
fn streamed(
    trace: &[u8],
    image: Image,
    processor: Option<Processor>,
    judged: bool,
    sink: &mut dyn Sink,
) -> u64 {
    let mut names = Nothing;
    let mut guide = Single::new(image, &mut names);
    let mut flows = Flows::new(sink);
    flows.mute(!judged);
    let mut stream = Stream::new(processor, Clock::default());
    stream.all(trace, &mut guide, &mut flows).unwrap();
    flows.finish().instructions
}

/// ns a distinct instruction as text.
fn text(trace: &[u8], image: Image, processor: Option<Processor>) -> f64 {
    let mut kept = Kept::default();
    streamed(trace, image, processor, true, &mut kept);
    let mut lines = Lines::new(Syntax::Intel);
    let begun = Instant::now();
    for code in &kept.code {
        lines.code(code, None);
    }
    let took = begun.elapsed().as_nanos() as f64;
    std::hint::black_box(lines.finish());
    took / kept.code.len() as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let mut words = std::env::args().skip(1);
    let trace = PathBuf::from(words.next().expect("a trace"));
    let code = words.next().expect("ELF@ADDR");
    let (file, base) = code.rsplit_once('@').expect("ELF@ADDR");
    let base = u64::from_str_radix(base.trim_start_matches("0x"), 16).expect("an address");
    let processor = words.next().map(|text| {
        let mut numbers = text.split('/').map(|word| word.parse::<u8>().unwrap());
        Processor {
            family: u16::from(numbers.next().unwrap()),
            model: numbers.next().unwrap(),
            stepping: numbers.next().unwrap(),
        }
    });
    let trace = std::fs::read(trace).unwrap();
    let shared = Rc::new(image(file, base));
    let instructions = alone(&trace, &shared, processor);
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..PASSES {
        let mut pass = |place: usize, run: &mut dyn FnMut()| {
            let begun = Instant::now();
            run();
            let ns = begun.elapsed().as_nanos() as f64 / instructions as f64;
            if let Some(times) = times.get_mut(place) {
                times.push(ns);
            }
        };
        pass(0, &mut || {
            std::hint::black_box(alone(&trace, &shared, processor));
        });
        for (place, judged) in [(1, false), (2, true)] {
            let mut fresh = Some(shared.forked().unwrap());
            pass(place, &mut || {
                let image = fresh.take().unwrap();
                let ran = streamed(&trace, image, processor, judged, &mut Nothing);
                std::hint::black_box(ran);
            });
        }
        let [_, _, _, texts] = &mut times;
        texts.push(text(&trace, shared.forked().unwrap(), processor));
    }
    let [alone, stream, judged, text] = times.map(median);
    println!("instructions\t{instructions}");
    println!("item by item\t{alone:.3}");
    println!("stream\t{stream:.3}");
    println!("judged\t{judged:.3}");
    println!("text\t{text:.1}");
}
